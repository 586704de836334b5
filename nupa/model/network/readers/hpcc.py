# SPDX-License-Identifier: BSD-3-Clause
"""Topologies of HPCC's ns-3 and of SimAI, which extends its first line.

Line 1 is `nodes switches links`, of SimAI `nodes gpus-a-server nv-switches switches links GPU`.
Line 2 names the switches, of SimAI the NVSwitches first.  Then each link has a line,
`source target rate delay error-rate`; what follows the last one is ignored, as ns-3 does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nupa.model.errors import ModelError
from nupa.model.network import tiers
from nupa.model.network.bare import bare, cable
from nupa.model.network.graph import LINKS_MAX, NODES_MAX, Graph, LinkKind
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.network.readers.lines import TextLine, lines

_QUANTITY = re.compile(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)([A-Za-z/]*)\Z")
_RATES = {
    prefix + unit: factor * per
    for prefix, factor in (("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))
    for unit, per in (("bps", 0.125), ("b/s", 0.125), ("Bps", 1.0), ("B/s", 1.0))
}
_TIMES = {"": 1e9, "s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0, "ps": 1e-3, "fs": 1e-6}
_RATE_MAX = 1e15
_NS_MAX = 1e12
_HPCC_WORDS = 3
_SIMAI_WORDS = 5


def _quantity(
    line: TextLine, index: int, field: str, units: dict[str, float], high: float
) -> float:
    word = line.word(index, field)
    match = _QUANTITY.match(word)
    if not match or match[2] not in units:
        shown = ", ".join(unit for unit in units if unit)
        line.fail(f"{field} is {word[:40]!r}: a number and one of {shown} are needed")
    return line.real(match[1], field, 0.0, high) * units[match[2]]


class _Head:
    """The first line: how many of each kind there are."""

    def __init__(self, line: TextLine) -> None:
        simai = len(line.words) >= _SIMAI_WORDS
        if not simai and len(line.words) != _HPCC_WORDS:
            line.fail(
                f"the first line has {len(line.words)} words: `nodes switches links` of HPCC, or "
                "`nodes gpus-a-server nv-switches switches links GPU` of SimAI"
            )
        self.nodes = line.whole(0, "nodes", 2, NODES_MAX)
        self.server = line.whole(1, "GPUs of a server", 1, self.nodes) if simai else 1
        self.nv_switches = line.whole(2, "NVSwitches", 0, self.nodes) if simai else 0
        at = 3 if simai else 1
        self.switches = line.whole(at, "switches", 0, self.nodes) + self.nv_switches
        self.links = line.whole(at + 1, "links", 1, LINKS_MAX // 2)
        if self.nodes > self.links + 1:
            line.fail(f"{self.links} links do not join {self.nodes} nodes")
        if self.switches >= self.nodes:
            line.fail(f"{self.switches} of {self.nodes} nodes are switches: no endpoint is left")


def _next(reader: Iterator[TextLine], source: str, wanted: str) -> TextLine:
    for line in reader:
        return line
    raise ModelError(f"{source}: the file ends where {wanted} is expected")


def parse(data: bytes, source: str, name: str) -> Network:
    """Returns the network, with its graph.  ModelError names file, line and field."""
    reader = lines(data, source)
    first = _next(reader, source, "the line `nodes switches links`")
    head = _Head(first)
    if head.links > data.count(b"\n"):
        first.fail(f"{head.links} links: the file has fewer lines")
    order: list[int] = []
    while len(order) < head.switches:
        line = _next(reader, source, f"switch {len(order) + 1} of {head.switches}")
        for index in range(len(line.words)):
            order.append(line.whole(index, "a switch", 0, head.nodes - 1))
        if len(order) > head.switches or len(set(order)) != len(order):
            line.fail(f"{len(order)} switches are named, or one twice: line 1 has {head.switches}")
    switches = set(order)
    endpoints = [node for node in range(head.nodes) if node not in switches]
    number = {node: index for index, node in enumerate([*endpoints, *order])}
    graph = Graph(name, len(endpoints), len(order))
    lossy = 0
    for count in range(head.links):
        line = _next(reader, source, f"link {count + 1} of {head.links}")
        lossy += _link(line, head, number, graph)
    left = sum(1 for _ in reader)
    notes = [f"{lossy} links have an error rate, which is ignored"] if lossy else []
    if left:
        notes.append(f"{left} lines follow the {head.links} links of line 1 and are ignored")
    return Network(name, _levels(graph, head, source), graph, tuple(notes))


def _link(line: TextLine, head: _Head, number: dict[int, int], graph: Graph) -> bool:
    """Adds a link; returns whether it loses packets."""
    ends = [line.whole(index, field, 0, head.nodes - 1) for index, field in enumerate(_ENDS)]
    if ends[0] == ends[1]:
        line.fail(f"a link from node {ends[0]} to itself")
    rate = _quantity(line, 2, "rate", _RATES, _RATE_MAX)
    if not rate:
        line.fail("rate is 0: no data would pass")
    delay = _quantity(line, 3, "delay", _TIMES, _NS_MAX)
    a, b = (number[end] for end in ends)
    first_nv = graph.endpoints
    nv = any(first_nv <= end < first_nv + head.nv_switches for end in (a, b))
    host = a < graph.endpoints or b < graph.endpoints
    kind = "NVSwitch" if nv else "host" if host else "switches"
    graph.add_cable(a, b, graph.add_kind(LinkKind(kind, rate, delay)))
    return line.real(line.word(4, "error rate"), "error rate", 0.0, 1.0) > 0


_ENDS = ("source", "target")


def _levels(graph: Graph, head: _Head, source: str) -> tuple[NetworkLevel, ...]:
    if not head.nv_switches:
        return tiers.levels(tiers.side(graph), source)
    nv = frozenset(range(graph.endpoints, graph.endpoints + head.nv_switches))
    if graph.endpoints % head.server:
        raise ModelError(f"{source}:1: {graph.endpoints} GPUs do not fill servers of {head.server}")
    inside = [
        index for index, node in enumerate(graph.source) if node == 0 and graph.target[index] in nv
    ]
    if not inside:
        raise ModelError(f"{source}: GPU 0 has no link to an NVSwitch, which line 1 says there are")
    kind = graph.kinds[graph.kind[inside[0]]]
    nvlink = bare("NVLink", kind.rate_bytes_per_s, 0.0, source, len(inside))
    server = NetworkLevel("server", head.server, nvlink, 1, cable(kind.latency_ns, source))
    if graph.endpoints == head.server:
        return (server,)
    return (server, *tiers.levels(tiers.side(graph, nv), source, head.server, rails=True))
