# SPDX-License-Identifier: BSD-3-Clause
"""The exchange of a layer of experts: tokens to the ranks of their experts, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.work.phase import Phase, Plan, RankOperation, StepPart


@dataclass(frozen=True)
class Dispatch:
    """Each rank has *tokens* of *hidden* numbers, and each token goes to *top_k* of *experts*.

    All endpoints of the network share the experts evenly, and kernels write to all of them at once:
    no library's time is in it.  A token travels once to a rank, however many of its experts are
    there; *per_expert*: once to each expert.  *dispatch_bytes* and *combine_bytes* are those of a
    number: FP8 and BF16, as DeepSeek-V3 has them.
    """

    tokens: int
    hidden: int
    experts: int
    top_k: int
    dispatch_bytes: int = 1
    combine_bytes: int = 2
    per_expert: bool = False

    def __post_init__(self) -> None:
        for name in ("tokens", "hidden", "experts", "dispatch_bytes", "combine_bytes"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} is {getattr(self, name)}: give 1 or more")
        if not 1 <= self.top_k <= self.experts:
            raise ModelError(f"top_k is {self.top_k}: give 1 to {self.experts}, the experts")

    @property
    def name(self) -> str:
        return f"dispatch:{self.tokens}x{self.hidden}:{self.top_k}of{self.experts}"

    def reached(self, ranks: int) -> float:
        """Returns the mean copies of a token for a rank, its own included.

        A rank has none if all of the token's experts are among the others'.
        """
        if self.experts % ranks:
            raise ModelError(f"{self.experts} experts do not divide by {ranks} ranks")
        if self.per_expert:
            return self.top_k / ranks
        others = self.experts - self.experts // ranks
        return 1 - comb(others, self.top_k) / comb(self.experts, self.top_k)

    def sent_bytes(self, ranks: int) -> tuple[float, float]:
        """Returns what a rank sends to the others in a dispatch and in a combine."""
        copies = self.tokens * (ranks - 1) * self.reached(ranks) * self.hidden
        return copies * self.dispatch_bytes, copies * self.combine_bytes

    def _each(self, ranks: int) -> tuple[int, int]:
        """Returns what a rank sends to one other, in a dispatch and in a combine."""
        there, back = self.sent_bytes(ranks)
        return max(1, round(there / (ranks - 1))), max(1, round(back / (ranks - 1)))

    def plan(self, network: Network) -> Plan:
        """Returns both exchanges.  ModelError: one rank, or experts that do not divide."""
        ranks = network.endpoints
        if ranks < 2:
            raise ModelError(f"{network.name} has 1 endpoint: a dispatch has 2 ranks or more")
        sent = self._each(ranks)
        parts = tuple(
            StepPart(name, plan=_exchange(name, size, network), network=network)
            for name, size in zip(("dispatch", "combine"), sent, strict=True)
        )
        share = self.reached(ranks)
        return Plan(
            (),
            "direct",
            f"{share * ranks:.3g} copies of a token for {self.top_k} experts on {ranks} ranks",
            round(sum(self.sent_bytes(ranks))),
            ranks,
            parts=parts,
        )

    def operations(self, network: Network) -> Iterator[RankOperation]:
        """Yields both exchanges: a rank sends tokens back when it has them."""
        ranks = network.endpoints
        there, back = self._each(ranks)
        number: dict[tuple[int, int], int] = {}
        for ahead in range(1, ranks):
            for rank in range(ranks):
                peer = (rank + ahead) % ranks
                number[rank, peer] = len(number)
                yield RankOperation(rank, peer, there, "write")
        for ahead in range(1, ranks):
            for rank in range(ranks):
                peer = (rank + ahead) % ranks
                yield RankOperation(rank, peer, back, "write", (number[peer, rank],))


def _exchange(name: str, size_bytes: int, network: Network) -> Plan:
    """Returns the plan in which each rank writes to all others, over all levels at once."""
    phases = []
    for index, level in enumerate(network.levels):
        inside = network.group_size(index - 1) if index else 1
        peers = network.group_size(index) - inside
        if level.groups > 1:
            phases.append(Phase(name, "write", index, size_bytes, 1, peers, "all-to-all"))
    ranks = network.endpoints
    total = size_bytes * (ranks - 1)
    return Plan(tuple(phases), "direct", "each rank writes to all", total, ranks, pipelined=True)
