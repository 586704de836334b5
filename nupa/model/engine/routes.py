# SPDX-License-Identifier: BSD-3-Clause
"""The resources that a flow uses: links by level, or links of a graph."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Hashable, Mapping
from random import Random
from typing import Protocol, cast

from nupa.model.errors import ModelError
from nupa.model.network.graph import Graph
from nupa.model.network.network import Network

_FAR = 0xFFFF  #: no path


class Routes(Protocol):
    """*capacity* has each resource that `uses` has named, in bytes/s."""

    capacity: dict[Hashable, float]

    def uses(self, source: int, target: int) -> Mapping[Hashable, float]: ...

    def name(self, resource: Hashable) -> str: ...


class LevelRoutes:
    """Of a network by levels: an endpoint's ports, and the links above each group as one."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.capacity: dict[Hashable, float] = {}
        self._known: dict[tuple[int, str, int], int] = {}
        self._names: list[str] = []

    def _resource(self, level: int, way: str, place: int, capacity: float) -> int:
        """Returns the number of a resource: engines hash it often."""
        key = (level, way, place)
        if key not in self._known:
            self._known[key] = len(self._names)
            self._names.append(f"{self.network.levels[level].name} {way}")
            self.capacity[self._known[key]] = capacity
        return self._known[key]

    def uses(self, source: int, target: int) -> dict[Hashable, float]:
        network = self.network
        top = network.level_between(source, target)
        base = network.base(top)
        level = network.levels[base]
        port = level.port_bytes_per_s
        found: dict[Hashable, float] = {}
        for way, end in (("out", source), ("in", target)):
            # Endpoints that share an adapter share its ports.
            place = int(end * level.nics) if level.nics < 1 else end
            found[self._resource(base, way, place, port / min(1.0, level.nics))] = 1.0
        if level.mesh and top == base:
            pair = source * network.endpoints + target
            share = port / max(1, level.groups - 1)
            found[self._resource(base, "across", pair, share)] = 1.0
        for tier in range(base, top + 1):
            stacked = tier > base
            taper = network.levels[tier].taper
            if not stacked and taper >= 1:
                continue
            size = network.group_size(tier - 1) if tier else 1
            for way, end in (("up", source), ("down", target)):
                if not stacked or source // size != target // size:
                    found[self._resource(tier, way, end // size, size * port * taper)] = 1.0
        return found

    def name(self, resource: Hashable) -> str:
        return self._names[cast(int, resource)]


class GraphRoutes:
    """Of a graph: the paths with the fewest links.

    *spread*: a flow's packets take all of them alike; else one, by a hash of the pair and *seed*.
    """

    def __init__(self, graph: Graph, spread: bool = True, seed: int = 1) -> None:
        self.graph = graph
        self.spread = spread
        self.seed = seed
        self.capacity: dict[Hashable, float] = {}
        self._into: list[list[int]] = [[] for _ in range(graph.nodes)]
        self._from: list[list[int]] = [[] for _ in range(graph.nodes)]
        for index, (source, target) in enumerate(zip(graph.source, graph.target, strict=True)):
            self._into[target].append(index)
            self._from[source].append(index)
        self._distances: dict[tuple[int, ...], array[int]] = {}
        self._behind: dict[int, array[int]] = {}  #: of an endpoint: its switches' distances

    def _distance(self, node: int, target: int) -> int:
        """Returns the links from a node to an endpoint; none leads through another endpoint."""
        if node == target:
            return 0
        if target not in self._behind:
            before = tuple(sorted({self.graph.source[link] for link in self._into[target]}))
            # Endpoints behind the same switches are as far from all other nodes.
            alike = all(each >= self.graph.endpoints for each in before)
            key = before if alike else (target,)
            if key not in self._distances:
                self._distances[key] = self._search(before if alike else (), target)
            self._behind[target] = self._distances[key]
        return self._behind[target][node]

    def _search(self, before: tuple[int, ...], target: int) -> array[int]:
        graph = self.graph
        found = array("H", [_FAR]) * graph.nodes
        if not before:
            found[target] = 0
        for node in before:
            found[node] = 1
        queue = deque(before or (target,))
        while queue:
            node = queue.popleft()
            if node < graph.endpoints and node != target:
                continue
            for link in self._into[node]:
                source = graph.source[link]
                if found[source] == _FAR:
                    found[source] = found[node] + 1
                    queue.append(source)
        return found

    def _next(self, node: int, target: int) -> list[int]:
        named = self.graph.routes.get((node, target))
        if named:
            return list(named)
        nearer = self._distance(node, target) - 1
        ends = self.graph.target
        return [link for link in self._from[node] if self._distance(ends[link], target) == nearer]

    def uses(self, source: int, target: int) -> dict[Hashable, float]:
        graph = self.graph
        for end in (source, target):
            if not 0 <= end < graph.endpoints:
                raise ModelError(
                    f"{graph.name} has endpoints 0 to {graph.endpoints - 1}: not {end}"
                )
        if self._distance(source, target) == _FAR:
            raise ModelError(f"{graph.name}: no path from endpoint {source} to {target}")
        rng = Random(f"{self.seed} {source} {target}")
        found: dict[Hashable, float] = {}
        part = {source: 1.0}
        # A node is met after all that lead to it, as every path has the same length.
        for _ in range(graph.nodes):
            following: dict[int, float] = {}
            for node, share in part.items():
                if node == target:
                    continue
                links = self._next(node, target)
                links = links if self.spread else [rng.choice(links)]
                for link in links:
                    found[link] = found.get(link, 0.0) + share / len(links)
                    end = graph.target[link]
                    following[end] = following.get(end, 0.0) + share / len(links)
            if not following:
                break
            part = following
        for key in found:
            self.capacity[key] = graph.kinds[graph.kind[cast(int, key)]].rate_bytes_per_s
        return found

    def name(self, resource: Hashable) -> str:
        return self.graph.kinds[self.graph.kind[cast(int, resource)]].name
