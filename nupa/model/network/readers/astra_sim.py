# SPDX-License-Identifier: BSD-3-Clause
"""ASTRA-sim's network YAML: dimensions of rings, meshes and switches.

Bandwidth is that of each link and direction, in GB/s of 10^9 bytes (before 2026, ASTRA-sim
counted 2^30).  Latency is each link's: a path over a switch has two, so it is charged twice.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nupa.model.errors import ModelError
from nupa.model.network.bare import bare, cable
from nupa.model.network.graph import Graph, LinkKind
from nupa.model.network.network import Network, NetworkLevel

_KINDS = ("Ring", "FullyConnected", "Switch")
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_DIMENSIONS_MAX = 16
_DEPTH_MAX = 8
FILE_BYTES_MAX = 1 << 18
NPUS_MAX = 1 << 18
LINKS_MAX = 1 << 22


def _document(data: bytes, source: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise ModelError(f"{source}: YAML files need PyYAML: `pip install pyyaml`") from None

    if len(data) > FILE_BYTES_MAX:
        raise ModelError(f"{source}: longer than {FILE_BYTES_MAX} bytes: such a file has fewer")
    try:
        depth = 0
        for event in yaml.parse(data, yaml.SafeLoader):
            line = event.start_mark.line + 1
            # A few lines of aliases stand for more than any memory holds.
            if isinstance(event, yaml.AliasEvent):
                raise ModelError(f"{source}:{line}: an alias: these files need none")
            # PyYAML's time grows with the square of the depth.
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEPTH_MAX:
                raise ModelError(f"{source}:{line}: more than {_DEPTH_MAX} lists or keys deep")
        found = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ModelError(f"{where}: not YAML: {problem}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{source}: the file holds no keys: {', '.join(_KEYS)} are needed")
    return found


def _list(table: dict[str, Any], key: str, source: str, count: int) -> list[Any]:
    if key not in table:
        raise ModelError(f"{source}: {key} is missing")
    found = table[key]
    values = found if isinstance(found, list) else [found]
    if not 1 <= len(values) <= _DIMENSIONS_MAX or (count and len(values) != count):
        wanted = f"{count}, as topology" if count else f"1 to {_DIMENSIONS_MAX}"
        raise ModelError(f"{source}: {key} has {len(values)} entries: {wanted} are needed")
    return values


def _numbers(table: dict[str, Any], key: str, source: str, count: int, low: float) -> list[float]:
    values = _list(table, key, source, count)
    for index, value in enumerate(values):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low <= value < 1e15:
            raise ModelError(
                f"{source}: {key}[{index}] is {str(value)[:40]!r}: a number of at least {low:g} "
                "is needed"
            )
    return [float(value) for value in values]


def parse(data: bytes, source: str, name: str) -> Network:
    """Returns the network, with its graph.  ModelError names the file, the key and the entry."""
    table = _document(data, source)
    topology = _list(table, "topology", source, 0)
    for index, kind in enumerate(topology):
        if kind not in _KINDS:
            raise ModelError(
                f"{source}: topology[{index}] is {str(kind)[:40]!r}: one of {', '.join(_KINDS)}"
            )
    count = len(topology)
    sizes = _numbers(table, "npus_count", source, count, 1)
    for index, size in enumerate(sizes):
        if not size.is_integer():
            raise ModelError(f"{source}: npus_count[{index}] is {size:g}: a whole number is needed")
    npus = prod(sizes)
    if npus > NPUS_MAX:
        raise ModelError(f"{source}: npus_count: {npus:g} NPUs: at most {NPUS_MAX}")
    dense = [size for kind, size in zip(topology, sizes, strict=True) if kind == "FullyConnected"]
    links = npus * sum(size - 1 for size in dense) / 2
    if links > LINKS_MAX:
        raise ModelError(f"{source}: {links:g} links of FullyConnected: at most {LINKS_MAX}")
    rates = [rate * 1e9 for rate in _numbers(table, "bandwidth", source, count, 1e-9)]
    latencies = _numbers(table, "latency", source, count, 0)
    groups = [int(size) for size in sizes]
    made = tuple(
        _level(index, kind, groups[index], rates[index], latencies[index], source)
        for index, kind in enumerate(topology)
    )
    notes = tuple(
        f"dimension {index}: a level's path is one link of its ring; the graph has them all"
        for index, kind in enumerate(topology)
        if kind == "Ring" and groups[index] > 3
    )
    return Network(name, made, _graph(name, topology, groups, rates, latencies), notes)


def _level(
    index: int, kind: str, groups: int, rate: float, latency: float, source: str
) -> NetworkLevel:
    ports = {"Switch": 1, "Ring": min(2, groups - 1), "FullyConnected": groups - 1}[kind]
    profile = bare(f"{kind} {index}", rate, 0.0, source, max(1, ports))
    link = cable(latency, source)
    switched = kind == "Switch"
    return NetworkLevel(f"{kind} {index}", groups, profile, int(switched), link, mesh=not switched)


def _graph(
    name: str, topology: list[str], groups: list[int], rates: list[float], latencies: list[float]
) -> Graph:
    """Draws it: each NPU has a router, as packets pass those of others on a ring."""
    npus = prod(groups)
    graph = Graph(name, npus, npus)
    injection = sum(rate * 2 * size for rate, size in zip(rates, groups, strict=True))
    port = graph.add_kind(LinkKind("NPU", injection))
    for npu in range(npus):
        graph.add_cable(npu, npus + npu, port)
    stride = 1
    for index, (kind, size) in enumerate(zip(topology, groups, strict=True)):
        link = graph.add_kind(LinkKind(f"{kind} {index}", rates[index], latencies[index]))
        for first in range(npus):
            if first // stride % size == 0:
                _dimension(
                    graph, kind, [npus + first + place * stride for place in range(size)], link
                )
        stride *= size
    return graph


def _dimension(graph: Graph, kind: str, routers: list[int], link: int) -> None:
    if len(routers) < 2:
        return
    if kind == "Switch":
        switch = graph.add_switch()
        for router in routers:
            graph.add_cable(router, switch, link)
    elif kind == "FullyConnected":
        for index, a in enumerate(routers):
            for b in routers[index + 1 :]:
                graph.add_cable(a, b, link)
    else:
        for index, a in enumerate(routers[: len(routers) - (len(routers) == 2)]):
            graph.add_cable(a, routers[(index + 1) % len(routers)], link)
