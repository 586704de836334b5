# SPDX-License-Identifier: BSD-3-Clause
"""The layout of ranks: which of them share a tensor, a pipeline, data or experts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from nupa.model.errors import ModelError
from nupa.model.network.group import group
from nupa.model.network.network import Network
from nupa.model.profile.profile import Profile, load
from nupa.model.work.collective import Collective
from nupa.model.work.phase import StepPart
from nupa.model.work.stack import case_of

ORDER = ("tp", "dp", "pp")


@dataclass(frozen=True)
class Parallelism:
    """Sizes of the groups.  *ep* ranks of each group of *dp* share the experts.

    *order*: the first has neighbours as members, as the ranks of a server or domain are.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    order: tuple[str, ...] = ORDER

    def __post_init__(self) -> None:
        for name in (*ORDER, "ep"):
            if getattr(self, name) < 1:
                raise ModelError(f"parallel: {name} is {getattr(self, name)}: give 1 or more")
        if sorted(self.order) != sorted(ORDER):
            raise ModelError(f"parallel: order is {list(self.order)}: give tp, dp and pp once each")
        if self.dp % self.ep:
            raise ModelError(
                f"parallel: {self.dp} dp do not divide by {self.ep} ep: experts are spread over "
                "ranks of one dp group"
            )

    @property
    def ranks(self) -> int:
        return self.tp * self.pp * self.dp

    def stride(self, name: str) -> int:
        """Returns the distance of two neighbours in a group."""
        place = self.order.index("dp" if name == "ep" else name)
        return prod(int(getattr(self, each)) for each in self.order[:place])

    def network(self, network: Network, name: str, size: int = 0, apart: int = 1) -> Network:
        """Returns the network as a group sees it; *size* of it, each *apart* of its members."""
        return group(network, self.stride(name) * apart, size or getattr(self, name), name.upper())

    def check(self, network: Network) -> None:
        """Raises ModelError if the network has fewer endpoints than there are ranks."""
        if self.ranks > network.endpoints:
            raise ModelError(
                f"tp {self.tp} x pp {self.pp} x dp {self.dp} are {self.ranks} ranks: "
                f"{network.name} has {network.endpoints} endpoints"
            )


def collectives(
    name: str,
    operations: Iterable[str],
    size_bytes: float,
    network: Network,
    times: float,
    *,
    piped: bool = False,
    hidden_ns: float = 0.0,
) -> list[StepPart]:
    """Returns a part for each collective of a group; none for a group of one, or no bytes."""
    names = list(operations)
    if network.endpoints < 2 or size_bytes < 1 or not times:
        return []
    return [
        StepPart(
            name,
            plan=Collective(each, max(1, round(size_bytes))).plan(network),
            network=network,
            times=times,
            piped=piped,
            hidden_ns=hidden_ns / len(names),
        )
        for each in names
    ]


def processor(name: str, network: Network) -> Profile:
    """Returns the profile of an accelerator, in the case of a network's figures."""
    found = load(name)
    if found.kind != "processor":
        raise ModelError(f"{name} is a {found.kind}: a processor was asked, for example h100")
    return found.at(case_of(network))


def moved_bytes(parts: Iterable[StepPart]) -> int:
    """Returns the bytes of all collectives, as their plans count them; 1 at least."""
    return max(1, round(sum(part.plan.bytes * part.times for part in parts if part.plan)))
