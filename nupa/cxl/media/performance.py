# SPDX-License-Identifier: BSD-3-Clause
"""Latencies and bandwidths of links and memory, in picoseconds and MB/s, and their tables for
software.

The latencies of a switch and of the media are parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from nupa.cxl.media.cdat import (
    UPSTREAM_PORT,
    Cdat,
    DataType,
    Dsemts,
    Dslbis,
    Dsmas,
    Dsmscis,
    Flags,
    Sslbis,
    SslbisEntry,
    scaled,
)
from nupa.topology.topology import SPEEDS_MTPS, LinkConfig

#: CXL 3.1 4.2: flits of 68 bytes, of which 64 are slots, in 128b/130b symbols.
_FLIT_68 = (68, 64)
_SYMBOLS = (130, 128)
#: 4.3: flits of 256 bytes, of which 240 are slots, at 64 GT/s.
_FLIT_256 = (256, 240)
#: From the flit at one port to the flit at another.
SWITCH_PS = 40_000
#: EFI_MEMORY_SP: memory for a special purpose.
_SPECIAL_PURPOSE = 1


def bandwidth_mbps(link: LinkConfig) -> int:
    """Returns 10^6 bytes a second of slots, in each direction."""
    raw = link.width_lanes * link.speed_mtps
    if link.speed_mtps >= SPEEDS_MTPS["gen6"]:
        return raw * _FLIT_256[1] // (8 * _FLIT_256[0])
    return raw * _SYMBOLS[1] * _FLIT_68[1] // (8 * _SYMBOLS[0] * _FLIT_68[0])


def latency_ps(link: LinkConfig) -> int:
    """Returns the time of a flit on its wires, from its first bit to its last."""
    flit = _FLIT_256[0] if link.speed_mtps >= SPEEDS_MTPS["gen6"] else _FLIT_68[0]
    return -(-flit * 8 * 1_000_000 // (link.width_lanes * link.speed_mtps))


@dataclass(frozen=True, slots=True)
class MediaSpeed:
    """The speed of memory behind a device's controller."""

    read_ps: int = 100_000
    write_ps: int = 120_000
    read_mbps: int = 38_400  # a channel of DDR5-4800
    write_mbps: int = 38_400


@dataclass(frozen=True, slots=True)
class Range:
    """Memory of one kind; *cache_bytes* are those of a cache in front of it."""

    dpa: int
    size: int
    flags: Flags = Flags.NONE
    cache_bytes: int = 0
    speed: MediaSpeed = MediaSpeed()
    handle: int | None = None  # its place in the list


def device_cdat(ranges: Iterable[Range], link: LinkConfig) -> Cdat:
    """Makes the table of a device behind *link*, which limits its bandwidth."""
    items: list[Dsmas | Dslbis | Dsmscis | Dsemts] = []
    for place, part in enumerate(ranges):
        handle = place if part.handle is None else part.handle
        speed, wires, most = part.speed, latency_ps(link), bandwidth_mbps(link)
        items.append(Dsmas(handle, part.flags, part.dpa, part.size))
        for data, value in (
            (DataType.READ_LATENCY, speed.read_ps + wires),
            (DataType.WRITE_LATENCY, speed.write_ps + wires),
            (DataType.READ_BANDWIDTH, min(speed.read_mbps, most)),
            (DataType.WRITE_BANDWIDTH, min(speed.write_mbps, most)),
        ):
            base, (entry,) = scaled([value], up=data <= DataType.WRITE_LATENCY)
            items.append(Dslbis(handle, 0, data, base, (entry, 0, 0)))
        if part.cache_bytes:
            items.append(Dsmscis(handle, part.cache_bytes, _CACHE))
        items.append(Dsemts(handle, _SPECIAL_PURPOSE, 0, part.size))
    return Cdat(items)


#: Memory side cache attributes: one level in all, this is level 1, direct mapped, write back, lines
#: of 64 bytes (ACPI 6.5 5.2.28.5).
_CACHE = 1 | 1 << 4 | 1 << 8 | 1 << 12 | 64 << 16


def switch_cdat(
    upstream: LinkConfig,
    downstream: Mapping[int, LinkConfig],
    switch_ps: int = SWITCH_PS,
    trunks: Mapping[int, Sequence[LinkConfig]] | None = None,
) -> Cdat:
    """Makes the table of a switch, by the link of each downstream port.  It has the paths from the
    upstream port to each, and between each two.  *trunks*: links to further switches on the way to
    a port.  ValueError: no downstream port."""
    if not downstream:
        raise ValueError("a switch has a downstream port")
    on = {port: tuple((trunks or {}).get(port, ())) for port in downstream}
    ends = [(UPSTREAM_PORT, x, (upstream, *on[x], link)) for x, link in downstream.items()]
    for (x, one), (y, other) in combinations(downstream.items(), 2):
        ends.append((x, y, (one, *on[x], *on[y], other)))
    latencies = [switch_ps * (len(links) - 1) + sum(map(latency_ps, links)) for _, _, links in ends]
    bandwidths = [min(map(bandwidth_mbps, links)) for _, _, links in ends]
    tables = []
    for data, values in (
        (DataType.ACCESS_LATENCY, latencies),
        (DataType.ACCESS_BANDWIDTH, bandwidths),
    ):
        base, entries = scaled(values, up=data is DataType.ACCESS_LATENCY)
        pairs = (SslbisEntry(x, y, entry) for (x, y, _), entry in zip(ends, entries, strict=True))
        tables.append(Sslbis(data, base, tuple(pairs)))
    return Cdat(tables)
