# SPDX-License-Identifier: BSD-3-Clause
"""Small networks as graphs."""

from __future__ import annotations

from itertools import pairwise

from nupa.model.network.graph import Graph, LinkKind

GBPS = 1.25e8  # bytes a second


def star(endpoints: int, kind: LinkKind) -> Graph:
    """One switch."""
    graph = Graph("star", endpoints, 1)
    index = graph.add_kind(kind)
    for endpoint in range(endpoints):
        graph.add_cable(endpoint, endpoints, index)
    return graph


def line(switches: int, kind: LinkKind) -> Graph:
    """Two endpoints, and switches in a row between them."""
    graph = Graph("line", 2, switches)
    index = graph.add_kind(kind)
    nodes = [0, *range(2, 2 + switches), 1]
    for a, b in pairwise(nodes):
        graph.add_cable(a, b, index)
    return graph


def dumbbell(left: int, right: int, host: LinkKind, trunk: LinkKind) -> Graph:
    """Two switches with endpoints each, and one link between them."""
    graph = Graph("dumbbell", left + right, 2)
    edge, middle = graph.add_kind(host), graph.add_kind(trunk)
    a, b = left + right, left + right + 1
    for endpoint in range(left + right):
        graph.add_cable(endpoint, a if endpoint < left else b, edge)
    graph.add_cable(a, b, middle)
    return graph
