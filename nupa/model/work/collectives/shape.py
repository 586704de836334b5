# SPDX-License-Identifier: BSD-3-Clause
"""The shape of a network as a library sees it: ranks, nodes, links in a node, and the net."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.profile import Profile, load
from nupa.model.profile.table import FigureTable

#: Endpoints of a profile with one of these post messages to an adapter.  Else they load and store.
_ADAPTER = ("post", "doorbell", "software", "completion")


def is_net(profile: Profile) -> bool:
    """Returns whether endpoints of a fabric use an adapter, and not loads and stores."""
    return any(name in profile.figures for name in _ADAPTER)


@dataclass(frozen=True)
class Shape:
    """A network, and a library on it.

    A node is what one fabric of loads and stores joins: the group of the lowest level.  Where the
    lowest level has adapters, each node has one rank.
    """

    network: Network
    library: Profile

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise ModelError(
                f"{self.network.name} has 1 endpoint: a collective has 2 ranks or more"
            )
        if self.library.kind != "library":
            raise ModelError(f"{self.library.name} is a {self.library.kind}: a library was asked")

    @cached_property
    def ranks(self) -> int:
        return self.network.endpoints

    @cached_property
    def first_net(self) -> int:
        """Returns the index of the lowest level between nodes."""
        return 0 if is_net(self.network.levels[0].profile) else 1

    @cached_property
    def local(self) -> int:
        """Returns the ranks of a node."""
        return self.network.levels[0].groups if self.first_net else 1

    @property
    def nodes(self) -> int:
        return self.ranks // self.local

    @cached_property
    def tray(self) -> int:
        """Returns the GPUs of a tray: a tree has chains in those, whatever fabric joins trays."""
        most = int(self.cell("fabric", "tray", self.gpu.name))
        return most if self.local > most and self.local % most == 0 else self.local

    @property
    def chain_hops(self) -> int:
        """Returns the hops of a tree in a node: a chain in a tray, and a tree over its trays."""
        return self.tray - 1 + ceil(log2(self.local / self.tray))

    @property
    def node(self) -> NetworkLevel:
        return self.network.levels[0]

    @property
    def net(self) -> NetworkLevel:
        """Returns the lowest level between nodes; in one node, its own level."""
        return self.network.levels[min(self.first_net, len(self.network.levels) - 1)]

    @property
    def gpu(self) -> Profile:
        """Returns the profile that says which GPUs they are."""
        return self.node.profile

    def net_levels(self) -> Iterator[tuple[int, NetworkLevel]]:
        """Yields the levels between nodes that more than one group has, with their indices."""
        for index, level in enumerate(self.network.levels):
            if index >= self.first_net and level.groups > 1:
                yield index, level

    def table(self, name: str) -> FigureTable:
        """Returns a table of the library.  ModelError: it has none of that name."""
        if name not in self.library.tables:
            raise ModelError(f"{self.library.name} has no table {name!r}")
        return self.library.tables[name]

    def port_rate(self, level: NetworkLevel) -> float:
        """Returns the rate of a rank's share of the ports of a level, in bytes a second."""
        return level.profile["rate"] * level.ways * level.taper

    def cell(self, table: str, column: str, *words: str) -> float:
        return self.table(table).row(*words)[column]


def library(name: str) -> Profile:
    """Returns the profile of a library.  ModelError: there is none, or it is another kind."""
    profile = load(name)
    if profile.kind != "library":
        raise ModelError(f"{name} is a {profile.kind}: a library was asked, for example nccl")
    if not profile.tables:
        raise ModelError(f"{name} is a library of no collectives: nccl and mpich are")
    return profile
