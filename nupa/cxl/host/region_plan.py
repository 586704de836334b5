# SPDX-License-Identifier: BSD-3-Clause
"""The programming of a region: the values of each set of decoders on the way to its devices.

CXL 3.1 8.2.4.20, 9.18.1.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nupa.cxl.function.interleave import CODE_OF_WAYS, GRANULARITIES, Interleave
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.memory import CxlMemdev, CxlRegion, Decoders, RegionError
from nupa.cxl.host.root import RootComplex
from nupa.cxl.registers.component_tables import STEP_BITS

_LOW = 0xFFFFFFFF
STEP = 1 << STEP_BITS
COMMIT, COMMITTED, ERROR, HOST_ONLY = 1 << 9, 1 << 10, 1 << 11, 1 << 12


class Programmed(NamedTuple):
    """The values for a set of decoders.

    *targets*: of a bridge or switch.  *dpa*: of a device, unless its memory follows that of the
    decoder before."""

    decoders: Decoders
    interleave: Interleave
    targets: Sequence[int] = ()
    dpa: int | None = None


def plan(
    devices: Sequence[CxlMemdev], window: FixedWindow, granularity: int, dpa: int | None = None
) -> list[Programmed]:
    """Plans a region, from the bridges down to the devices.  RegionError: no programming makes such
    a region."""
    ways, above = len(devices), window.interleave.ways
    if len(set(devices)) < ways or ways not in CODE_OF_WAYS or ways % above:
        raise RegionError(
            f"{ways} devices below a window of {above} ways: name each once, in turns"
        )
    for position, each in enumerate(devices):
        if window.targets[position % above] != each.uid:
            raise RegionError(f"{each.name} is at position {position}, the turn of another bridge")
    found: list[Programmed] = []
    reached = dict.fromkeys(devices, above)
    for level in range(max(len(each.route) for each in devices)):
        parts: dict[Decoders, list[int]] = {}
        for position, each in enumerate(devices):
            if level < len(each.route):
                parts.setdefault(each.route[level][0], []).append(position)
        for decoders, positions in parts.items():
            ports = {at: devices[at].route[level][1] for at in positions}
            done = reached[devices[positions[0]]]
            targets = _targets(decoders, ports, done)
            step = granularity * done
            if len(targets) == 1 and step not in GRANULARITIES:
                step = granularity  # one target: the value is only for readers of the register
            found.append(Programmed(decoders, _interleave(len(targets), step), targets))
            for at in positions:
                reached[devices[at]] = done * len(targets)
    for each in devices:
        if reached[each] != ways:
            raise RegionError(f"{each.name} has 1 turn in {reached[each]}, not in {ways}")
        found.append(Programmed(each.decoders, _interleave(ways, granularity), dpa=dpa))
    return found


def place(
    planned: Sequence[Programmed], window: FixedWindow, size: int, regions: Sequence[CxlRegion]
) -> int:
    """Returns a base in *window*: beside the other regions, in the order of its decoders
    (8.2.4.20.12).  RegionError: there is no room."""
    here = sorted((each.base, each.end) for each in regions if each.window is window)
    below, above = window.base, window.end
    for each in planned:
        slot = each.decoders.free()
        for number, other in enumerate(each.decoders.regions):
            if other and other.window is window:
                if number < slot:
                    below = max(below, other.end)
                else:
                    above = min(above, other.base)
    for base in sorted({window.base, below, *(end for _, end in here)}):
        apart = all(base >= last or base + size <= first for first, last in here)
        if below <= base and base + size <= above and apart:
            return base
    raise RegionError(
        f"{size:#x} bytes: a multiple of 256 MiB for each device is needed, and the window ends at "
        f"{window.end:#x}"
    )


def commit(root: RootComplex, region: CxlRegion, what: Programmed) -> None:
    """Commits a decoder.  RegionError: the component refuses; it is not committed."""
    decoders = what.decoders
    slot = decoders.free()
    at = decoders.base + 0x10 + 0x20 * slot
    below = [other for other in decoders.regions[:slot] if other and other.dynamic]
    if below and what.dpa is None and not what.targets:  # of a device
        raise RegionError(
            f"{decoders.name}: decoder {slot - 1} has dynamic capacity, which is behind its own "
            f"memory: destroy that region first"
        )
    listed = int.from_bytes(bytes(what.targets), "little") if what.dpa is None else _skip(what)
    for offset, value in ((0, region.base), (8, region.size), (0x14, listed)):
        root.write(at + offset, 4, value & _LOW)
        root.write(at + offset + 4, 4, value >> 32)
    interleave = what.interleave
    control = interleave.shift - 8 | CODE_OF_WAYS[interleave.ways] << 4 | HOST_ONLY
    root.write(at + 0x10, 4, control | COMMIT)
    answer = root.read(at + 0x10, 4)
    if answer & ERROR or not answer & COMMITTED:
        root.write(at + 0x10, 4, control)
        raise RegionError(
            f"{decoders.name}: decoder {slot} is not committed with {region.size:#x} bytes "
            f"at {region.base:#x}, {interleave.ways} ways of {interleave.granularity_bytes}"
        )
    decoders.regions[slot] = region
    region.committed.append((decoders, slot))


def decommit(root: RootComplex, region: CxlRegion) -> None:
    """Decommits all decoders of a region, except those of devices that were removed."""
    for decoders, slot in reversed(region.committed):
        decoders.regions[slot] = None
        at = decoders.base + 0x10 + 0x20 * slot
        root.write(at + 0x10, 4, root.read(at + 0x10, 4) & ~COMMIT & _LOW)
        for offset in (0, 4, 8, 12):
            root.write(at + offset, 4, 0)
    region.committed.clear()


def _skip(what: Programmed) -> int:
    """Returns the DPA skip (8.2.4.20.9): from the end of the decoder before to the memory of the
    region."""
    slot, end = what.decoders.free(), 0
    for other in what.decoders.regions[:slot]:
        if other and other.dynamic:
            end = other.dynamic.dpa + other.size
        elif other:
            end += other.size // len(other.devices)
    if what.dpa is None or what.dpa < end:
        raise RegionError(f"{what.decoders.name}: memory at {what.dpa or 0:#x} is below {end:#x}")
    return what.dpa - end


def _interleave(ways: int, granularity: int) -> Interleave:
    try:
        return Interleave(ways, granularity)
    except ValueError as error:
        raise RegionError(str(error)) from None


def _targets(decoders: Decoders, ports: dict[int, int], above: int) -> list[int]:
    """Returns the port of each way, of *ports* at these positions; ways change every *above*."""
    ways = len(set(ports.values()))
    targets: dict[int, int] = {}
    for position, port in ports.items():
        turn = position // above % ways
        if targets.setdefault(turn, port) != port:
            raise RegionError(
                f"{decoders.name}: position {position} has the turn of port {targets[turn]}, and "
                f"is behind port {port}"
            )
    return [targets[turn] for turn in sorted(targets)]
