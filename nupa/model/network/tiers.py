# SPDX-License-Identifier: BSD-3-Clause
"""Levels of a graph: endpoints that share first switches, then those ever farther apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from nupa.model.errors import ModelError
from nupa.model.network.bare import bare, cable
from nupa.model.network.graph import Graph
from nupa.model.network.network import NetworkLevel

#: Endpoints whose distances to all others are compared, to see whether the graph is symmetric.
_SAMPLES = 4


@dataclass
class _Side:
    """The links of a graph that one of its networks has: the neighbours of each node."""

    graph: Graph
    next: dict[int, list[int]]  #: the links that leave a node

    def distances(self, start: int) -> dict[int, int]:
        """Returns the links on the shortest path from an endpoint; none leads through another."""
        found = {start: 0}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if node < self.graph.endpoints and node != start:
                continue
            for link in self.next.get(node, ()):
                target = self.graph.target[link]
                if target not in found:
                    found[target] = found[node] + 1
                    queue.append(target)
        return found

    def rate(self, links: Iterable[int]) -> float:
        return sum(self.graph.kinds[self.graph.kind[link]].rate_bytes_per_s for link in links)


def side(graph: Graph, without: frozenset[int] = frozenset()) -> _Side:
    """Returns the network of all nodes but some switches."""
    following: dict[int, list[int]] = {}
    for index, (source, target) in enumerate(zip(graph.source, graph.target, strict=True)):
        if source not in without and target not in without:
            following.setdefault(source, []).append(index)
    return _Side(graph, following)


def levels(
    network: _Side, source: str, below: int = 1, rails: bool = False
) -> tuple[NetworkLevel, ...]:
    """Returns levels by distance, above groups of *below* endpoints which another network joins.

    Where endpoints are not alike, one level has the farthest distance.  ModelError: an endpoint
    reaches no other.
    """
    graph = network.graph
    step = max(1, graph.endpoints // _SAMPLES)
    counts = [_counts(network, start, source) for start in range(0, graph.endpoints, step)]
    steps = _nested(counts, graph.endpoints, below, rails)
    first = network.next[0]
    port = network.rate(first)
    same = [
        link
        for link in first
        if graph.kinds[graph.kind[link]].rate_bytes_per_s * len(first) == port
    ]
    ports = len(first) if len(same) == len(first) else 1
    tapers = _tapers(network, port)
    made: list[NetworkLevel] = []
    for index, (distance, groups) in enumerate(steps):
        latency = _latency(network, distance)
        made.append(
            NetworkLevel(
                f"tier {index}",
                groups,
                bare(f"tier {index}", port / ports, 0.0, source, ports),
                distance - 1,
                cable(latency / distance, source),
                min([1.0, *tapers[: distance // 2 - 1]]),
                stacked=index > 0,
                rails=rails and index == 0,
            )
        )
    return tuple(made)


def _counts(network: _Side, start: int, source: str) -> dict[int, int]:
    """Returns how many endpoints lie within each distance."""
    endpoints = network.graph.endpoints
    found = network.distances(start)
    reached = sorted(distance for node, distance in found.items() if node < endpoints)
    if len(reached) != endpoints and not network.next.get(start):
        raise ModelError(f"{source}: endpoint {start} has no link")
    if len(reached) != endpoints:
        raise ModelError(
            f"{source}: endpoint {start} reaches {len(reached) - 1} of {endpoints - 1} others: "
            "add links that join the parts"
        )
    within: dict[int, int] = {}
    for index, distance in enumerate(reached):
        within[distance] = index + 1
    return within


def _nested(
    counts: list[dict[int, int]], endpoints: int, below: int, rails: bool
) -> list[tuple[int, int]]:
    """Returns the distance and the number of groups of each level."""
    farthest = max(max(within) for within in counts)
    whole = [(farthest, endpoints // below)]
    if any(within != counts[0] for within in counts):
        return whole
    steps: list[tuple[int, int]] = []
    size = below
    for index, (distance, count) in enumerate(
        (distance, count) for distance, count in sorted(counts[0].items()) if distance
    ):
        # A first switch of a rail joins one endpoint of each group below.
        members = count * below if rails and index == 0 else count
        if members % size:
            return whole
        if members > size or (rails and index == 1):
            steps.append((distance, members // size))
            size = members
    return steps if size == endpoints and steps else whole


def _tapers(network: _Side, port: float) -> list[float]:
    """Returns the rate of the links above each tier of switches, over that of all endpoints."""
    graph = network.graph
    tier = dict.fromkeys(range(graph.endpoints), 0)
    queue = deque(range(graph.endpoints))
    rates: dict[int, float] = {}
    while queue:
        node = queue.popleft()
        for link in network.next.get(node, ()):
            target = graph.target[link]
            if target not in tier:
                tier[target] = tier[node] + 1
                queue.append(target)
            if tier[target] > tier[node] > 0:
                rate = graph.kinds[graph.kind[link]].rate_bytes_per_s
                rates[tier[node]] = rates.get(tier[node], 0.0) + rate
    return [rates[index] / (port * graph.endpoints) for index in sorted(rates)]


def _latency(network: _Side, distance: int) -> float:
    """Returns the latency of the shortest path to an endpoint at that distance from endpoint 0."""
    graph = network.graph
    best = {0: (0, 0.0)}
    queue = deque([0])
    while queue:
        node = queue.popleft()
        hops, latency = best[node]
        if node < graph.endpoints and hops == distance:
            return latency
        if node < graph.endpoints and node:
            continue
        for link in network.next.get(node, ()):
            target = graph.target[link]
            if target not in best:
                best[target] = (hops + 1, latency + graph.kinds[graph.kind[link]].latency_ns)
                queue.append(target)
    return 0.0
