# SPDX-License-Identifier: BSD-3-Clause
"""Loads: the bytes that a phase puts on each class of equal links of a network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nupa.model.engine.message import returned_bytes, wire_bytes
from nupa.model.network.energy import BITS, own_links
from nupa.model.network.network import Network
from nupa.model.work.phase import Phase


class LinkClass(NamedTuple):
    """Equal links of a level.  *way*: out of or into an endpoint; up or down between switches."""

    level: int
    way: str


class Load(NamedTuple):
    """*links* that carry *bytes* each, headers included, of *capacity* bytes/s each."""

    links: float
    bytes: float
    capacity: float


def class_name(network: Network, key: LinkClass) -> str:
    """Returns how answers name the class: "leaf out", "core up"."""
    return f"{network.levels[key.level].name} {key.way}"


def capacity(network: Network, key: LinkClass) -> tuple[float, float]:
    """Returns how many links of the class there are, and the bytes/s of each.

    The links of a group's switches to the level above count as one.
    """
    base = network.levels[network.base(key.level)]
    if key.way in ("out", "in"):
        return network.endpoints, base.port_bytes_per_s
    below = network.group_size(key.level - 1) if key.level else 1
    taper = network.levels[key.level].taper
    return network.endpoints / below, below * base.port_bytes_per_s * taper


def loads(network: Network, phase: Phase) -> dict[LinkClass, Load]:
    """Returns the load of all steps of a phase by class.

    Each rank sends to *peers* over the phase's level.  An all-to-all with all ranks stays within a
    group where it can.  Switches reduce before they send on, so higher tiers carry less.
    """
    base = network.base(phase.level)
    profile = network.levels[phase.level].profile
    message = wire_bytes(profile, phase.bytes, phase.operation) * phase.wire
    if phase.directions > 1:
        message += returned_bytes(profile, phase.bytes, phase.operation)
    sent = message * phase.peers * phase.steps
    found: dict[LinkClass, Load] = {}
    single = phase.pattern == "one"
    # The tiers of an in-network operation have a phase each: the first one passes the ports.
    between = phase.pattern == "in-network" and phase.level > base
    for way in () if between else ("out", "in"):
        links, rate = capacity(network, LinkClass(base, way))
        found[LinkClass(base, way)] = Load(phase.directions if single else links, sent, rate)
    for tier in range(phase.level if between else base, phase.level + 1):
        stacked = tier > base
        if not stacked and network.levels[tier].taper >= 1:
            continue
        crossing = _crossing(network, phase, tier)
        for way in ("up", "down"):
            links, rate = capacity(network, LinkClass(tier, way))
            found[LinkClass(tier, way)] = Load(
                phase.directions if single else links, sent * crossing, rate
            )
    return found


def _crossing(network: Network, phase: Phase, tier: int) -> float:
    """Returns how many messages leave a group of the level below *tier*, for each of a rank."""
    base = network.base(phase.level)
    below = network.group_size(tier - 1) if tier else 1
    node = network.group_size(base - 1) if base else 1
    whole = network.group_size(phase.level)
    if phase.pattern == "one":
        return 1.0
    if phase.pattern == "in-network":
        return float(node)
    if phase.pattern == "all-to-all" and phase.peers >= whole - 1 > 0:
        return below * (whole - below) / (whole - 1)
    return float(below)


def totals(all_loads: Iterable[dict[LinkClass, Load]], ring: bool = False) -> dict[LinkClass, Load]:
    """Returns the sum by class.

    *ring*: each rank has one neighbour, at one of the levels: its ports carry the most of them.
    """
    total: dict[LinkClass, Load] = {}
    for found in all_loads:
        for key, load in found.items():
            old = total.get(key)
            if old:
                both = max if ring and key.way in ("out", "in") else _sum
                # One pair's links lie among those of all ranks.
                links = max(old.links, load.links)
                load = Load(links, both(old.bytes, load.bytes), load.capacity)
            total[key] = load
    return total


def _sum(a: float, b: float) -> float:
    return a + b


def energy_pj(network: Network, found: dict[LinkClass, Load]) -> float:
    """Returns the energy of all bits: of the media, switches and adapters that they pass."""
    total = 0.0
    for key, load in found.items():
        level = network.levels[key.level]
        outward = key.way in ("out", "up")
        if key.way in ("up", "down") and not level.stacked:
            continue
        links = own_links(network, key.level)
        links = links - links // 2 if outward else links // 2
        profile = level.profile
        if level.stacked:
            switches, adapters = links, 0
        else:
            switches, adapters = (0 if outward else level.switches), 1
        per_bit = (
            links * level.link.energy_pj_per_bit
            + switches * profile.get("switch_energy")
            + adapters * profile.get("adapter_energy")
        )
        total += load.links * load.bytes * BITS * per_bit
    return total
