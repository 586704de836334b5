# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of networks by levels: endpoints, the switches of each tier, and the links between.

Rates are exact: the links of a tier together have the rate that its level states, so that closed
forms and graphs agree.  Tiers are extended generalised fat trees (Öhring et al., IPPS 1995): each
switch below has the same parents, each parent one link to each group below.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from nupa.model.errors import ModelError
from nupa.model.network.graph import Graph, LinkKind
from nupa.model.network.network import Network, NetworkLevel


class _Group(NamedTuple):
    """Switches that reach the same endpoints."""

    switches: list[int]
    endpoints: int


def graph(network: Network) -> Graph:
    """Returns the network's graph.  ModelError: a level has no known wiring, or it is too large."""
    if network.drawn is not None:
        return network.drawn
    made = Graph(network.name, network.endpoints)
    for index, level in enumerate(network.levels):
        if level.stacked:
            continue
        top = index
        while top + 1 < len(network.levels) and network.levels[top + 1].stacked:
            top += 1
        for _ in range(level.planes):
            _Plane(made, network, index).build(top)
    return made


class _Plane:
    """One of the parallel networks that begin at levels[base]."""

    def __init__(self, made: Graph, network: Network, base: int) -> None:
        self.made = made
        self.network = network
        self.base = base
        level = network.levels[base]
        self.port = level.port_bytes_per_s / level.planes

    def build(self, top: int) -> None:
        level = self.network.levels[self.base]
        if level.mesh or not level.switches:
            self._endpoint_mesh(level)
            return
        groups = [self._leaf(level, members) for members in self._members(level)]
        for index in range(self.base + 1, top + 1):
            tier = self.network.levels[index]
            children = len(groups) // (self.network.endpoints // self.network.group_size(index))
            groups = [
                self._join(tier, groups[first : first + children])
                for first in range(0, len(groups), children)
            ]

    def _members(self, level: NetworkLevel) -> Iterator[range]:
        """Yields the endpoints of each first switch."""
        size = self.network.group_size(self.base)
        places = size // level.groups if level.rails else 1
        for first in range(0, self.network.endpoints, size):
            for place in range(places):
                yield range(first + place, first + size, places)

    def _kind(self, level: NetworkLevel, way: str, rate: float, switches: int) -> int:
        """Returns a kind of links that end behind so many switches; 0: at an endpoint."""
        latency = level.link.latency_ns + level.profile.get("hop") * switches
        return self.made.add_kind(LinkKind(f"{level.name} {way}", rate, latency, 0, level.profile))

    def _leaf(self, level: NetworkLevel, members: range) -> _Group:
        switch = self.made.add_switch()
        up = self._kind(level, "out", self.port, level.switches)
        down = self._kind(level, "in", self.port, 0)
        for endpoint in members:
            self.made.add_link(endpoint, switch, up)
            self.made.add_link(switch, endpoint, down)
        return _Group([switch], len(members))

    def _join(self, level: NetworkLevel, groups: list[_Group]) -> _Group:
        if len(groups) == 1:
            return groups[0]
        endpoints = sum(group.endpoints for group in groups)
        per_group = groups[0].endpoints * self.port * level.taper
        if level.mesh:
            self._mesh(level, groups, per_group / (len(groups) - 1))
            return _Group([switch for group in groups for switch in group.switches], endpoints)
        nominal = level.profile["rate"] * level.profile.get("efficiency", 1.0)
        per_switch = per_group / len(groups[0].switches)
        parents = max(1, round(per_switch / nominal))
        up, down = (self._kind(level, way, per_switch / parents, 1) for way in ("up", "down"))
        tops = []
        for place in range(len(groups[0].switches)):
            for _ in range(parents):
                top = self.made.add_switch()
                tops.append(top)
                for group in groups:
                    self.made.add_link(group.switches[place], top, up)
                    self.made.add_link(top, group.switches[place], down)
        return _Group(tops, endpoints)

    def _mesh(self, level: NetworkLevel, groups: list[_Group], rate: float) -> None:
        """Links each pair of groups by cables of *rate* together, spread over their switches."""
        nominal = level.profile["rate"] * level.profile.get("efficiency", 1.0)
        cables = max(1, round(rate / nominal))
        kind = self._kind(level, "across", rate / cables, 1)
        used = [0] * len(groups)
        for a, b in combinations(range(len(groups)), 2):
            for _ in range(cables):
                ends = []
                for side in (a, b):
                    switches = groups[side].switches
                    ends.append(switches[used[side] % len(switches)])
                    used[side] += 1
                self.made.add_cable(ends[0], ends[1], kind)

    def _endpoint_mesh(self, level: NetworkLevel) -> None:
        if self.base or level.groups < 2:
            raise ModelError(
                f"{self.network.name}: {level.name}: only endpoints of the lowest level can be "
                "linked without a switch"
            )
        kind = self._kind(level, "across", self.port / (level.groups - 1), 0)
        for first in range(0, self.network.endpoints, level.groups):
            for a, b in combinations(range(first, first + level.groups), 2):
                self.made.add_cable(a, b, kind)
