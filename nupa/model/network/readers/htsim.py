# SPDX-License-Identifier: BSD-3-Clause
"""htsim's .topo files: folded Clos networks of two or three tiers.

Words are keys and values, in any case: Nodes, Tiers, Podsize; then for each `Tier N` its switches'
Radix_Down, Radix_Up, Switch_Latency_ns, and for the links below it Downlink_speed_Gbps,
Downlink_Latency_ns and Bundle, the parallel links.
"""

from __future__ import annotations

from typing import NamedTuple

from nupa.model.errors import ModelError
from nupa.model.network.bare import bare, cable
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.network.readers.lines import TextLine, lines

GBPS = 1.25e8
NODES_MAX = 1 << 24
NS_MAX = 1e12
_WHOLE = {
    "nodes": NODES_MAX, "tiers": 3, "podsize": NODES_MAX, "radix_down": 1 << 16,
    "radix_up": 1 << 16, "bundle": 1 << 10,
}  # fmt: skip
_REAL = {
    "downlink_speed_gbps": 1e6, "downlink_latency_ns": NS_MAX, "switch_latency_ns": NS_MAX,
    "oversubscribed": 1e6,
}  # fmt: skip
#: Sizes of queues: the packet engine has its own.
_IGNORED = ("queue_up", "queue_down", "queue")


class _Value(NamedTuple):
    value: float
    line: TextLine


_Section = dict[str, _Value]


def _sections(data: bytes, source: str) -> tuple[_Section, list[_Section]]:
    head: _Section = {}
    tiers: list[_Section] = []
    at = head
    for line in lines(data, source):
        key = line.words[0].lower()
        if len(line.words) > 2:
            line.fail(f"{line.words[2]!r} follows {line.words[0]} and its value")
        if key == "tier":
            if line.whole(1, "Tier", 0, 2) != len(tiers):
                line.fail(f"Tier {line.words[1]} follows {len(tiers)} tiers: they begin with 0")
            at = {}
            tiers.append(at)
        elif key in _WHOLE:
            at[key] = _Value(line.whole(1, line.words[0], 1, _WHOLE[key]), line)
        elif key in _REAL:
            word = line.word(1, line.words[0])
            at[key] = _Value(line.real(word, line.words[0], 0.0, _REAL[key]), line)
        elif key not in _IGNORED:
            known = ", ".join((*_WHOLE, *_REAL, *_IGNORED))
            line.fail(f"{line.words[0]!r} is unknown: the keys are {known}")
    return head, tiers


def _need(section: _Section, key: str, source: str, where: str) -> float:
    if key not in section:
        raise ModelError(f"{source}: {where}: {key} is missing")
    return section[key].value


def _groups(line: TextLine, field: str, whole: float, part: float) -> int:
    if whole % part:
        line.fail(f"{field} is {whole:g}: groups of {part:g} do not fill it")
    return int(whole // part)


def parse(data: bytes, source: str, name: str) -> Network:
    """Returns the network of a .topo file.  ModelError names file, line and key."""
    head, tiers = _sections(data, source)
    nodes = _need(head, "nodes", source, "the head")
    if len(tiers) != _need(head, "tiers", source, "the head"):
        head["tiers"].line.fail(f"Tiers is {head['tiers'].value:g}: the file has {len(tiers)}")
    pod = head["podsize"].value if "podsize" in head else nodes
    leaf = _need(tiers[0], "radix_down", source, "Tier 0")
    pod_line = head["podsize" if "podsize" in head else "nodes"].line
    groups = [int(leaf), _groups(pod_line, "Podsize", pod, leaf)]
    if len(tiers) > 2:
        groups.append(_groups(head["nodes"].line, "Nodes", nodes, pod))
    elif pod != nodes:
        pod_line.fail(f"Podsize is {pod:g}: with two tiers it is Nodes, {nodes:g}")
    levels: list[NetworkLevel] = []
    taper, latency = 1.0, 0.0
    for index, tier in enumerate(tiers):
        where = f"Tier {index}"
        speed = _need(tier, "downlink_speed_gbps", source, where)
        if not speed:
            tier["downlink_speed_gbps"].line.fail("Downlink_speed_Gbps is 0: no data would pass")
        if index:
            taper *= _over(tiers[index - 1], tier, source, where)
        hop = tier["switch_latency_ns"].value if "switch_latency_ns" in tier else 0.0
        # A path passes a switch of each tier below twice, and one of this tier.
        mean = (2 * latency + hop) / (2 * index + 1)
        latency += hop
        profile = bare(f"htsim tier {index}", speed * GBPS, mean, source)
        link = cable(_need(tier, "downlink_latency_ns", source, where), source)
        levels.append(
            NetworkLevel(
                where, groups[index], profile, 2 * index + 1, link, taper, stacked=index > 0
            )
        )
    return Network(name, tuple(levels))


def _over(below: _Section, tier: _Section, source: str, where: str) -> float:
    """Returns the rate of a switch's uplinks over that of its downlinks."""
    bundle = tier["bundle"].value if "bundle" in tier else 1.0
    up = _need(tier, "downlink_speed_gbps", source, where) * bundle
    down_bundle = below["bundle"].value if "bundle" in below else 1.0
    down = _need(below, "downlink_speed_gbps", source, where) * down_bundle
    radix_down = _need(below, "radix_down", source, where)
    if "radix_up" in below:
        radix_up = below["radix_up"].value
    else:
        over = below["oversubscribed"].value if "oversubscribed" in below else 1.0
        return 1.0 / over if over else 1.0
    return radix_up * up / (radix_down * down)
