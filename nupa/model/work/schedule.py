# SPDX-License-Identifier: BSD-3-Clause
"""Schedules: works that are a list of operations, as recordings and others' traces have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.work.phase import Plan, RankOperation

OPERATIONS_MAX = 20_000_000


@dataclass(frozen=True)
class Schedule:
    """Operations of *ranks* ranks, with what each waits for; rank n is endpoint n of a network.

    *labels* names the ranks, if anything does.  *recorded_ns* is how long it took where it was
    recorded, on *mover*.  *notes* says what was assumed.
    """

    name: str
    ranks: int
    steps: Sequence[RankOperation]
    labels: tuple[str, ...] = ()
    recorded_ns: float = 0.0
    mover: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.ranks < 1 or not self.steps:
            raise ModelError(f"{self.name}: a schedule has ranks and operations: there are none")
        if len(self.steps) > OPERATIONS_MAX:
            raise ModelError(
                f"{self.name}: {len(self.steps)} operations: at most {OPERATIONS_MAX} are run"
            )

    @property
    def bytes(self) -> int:
        """Returns the payload of all messages."""
        return sum(step.bytes for step in self.steps if step.peer != step.rank)

    @property
    def messages(self) -> int:
        return sum(step.peer != step.rank for step in self.steps)

    def label(self, rank: int) -> str:
        return self.labels[rank] if rank < len(self.labels) else f"rank {rank}"

    def plan(self, network: Network) -> Plan:
        """Returns a plan without phases: the operations are irregular."""
        del network
        return Plan((), "as recorded", "the program's operations", self.bytes, self.ranks)

    def operations(self, network: Network) -> Iterator[RankOperation]:
        """Yields each operation.  ModelError: the network has fewer endpoints than ranks."""
        if self.ranks > network.endpoints:
            raise ModelError(
                f"{self.name} has {self.ranks} ranks: {network.name} has {network.endpoints} "
                "endpoints"
            )
        yield from self.steps
