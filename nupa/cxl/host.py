# SPDX-License-Identifier: BSD-3-Clause
"""A host that uses CXL memory as Linux does: it walks its buses, makes regions of devices by
programming decoders from the top down, and reads and writes through them.

Knows only registers and its map of windows; never the model behind them, nor what is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any

from nupa.cxl import dvsec_tables
from nupa.cxl.bus import Bus, memory_of
from nupa.cxl.component_tables import DECODER_COUNTS, STEP_BITS
from nupa.cxl.decode import Window
from nupa.cxl.endpoint import Type3
from nupa.cxl.enumerate import Found, Walk, find_hdm
from nupa.cxl.interleave import CODE_OF_WAYS, Interleave
from nupa.cxl.root import RootComplex
from nupa.fabric.errors import LocalError

_BARS_AT = 0xC000_0000
_LOW = 0xFFFFFFFF
_STEP = 1 << STEP_BITS
_COMMIT, _COMMITTED, _ERROR, _HOST_ONLY = 1 << 9, 1 << 10, 1 << 11, 1 << 12
_MEM_CAPABLE, _MEM_ENABLE, _HDM_ENABLE = 1 << 2, 1 << 2, 1 << 1


class RegionError(LocalError):
    """A region that cannot be: nothing has changed."""


@dataclass(eq=False, slots=True)
class Decoders:
    """The HDM decoders of a host bridge, switch or device, at *base* of the host's memory; `used`
    are committed, the first ones."""

    name: str
    base: int
    count: int
    used: int = 0


@dataclass(eq=False, slots=True)
class MemoryDevice:
    """A device with CXL memory: `capacity` bytes of it, of which `used` belong to regions; *route*
    has the decoders on the way, each with the port number that leads on to the device."""

    function: Found
    uid: int  # of its host bridge
    capacity: int
    decoders: Decoders
    route: list[tuple[Decoders, int]]
    used: int = 0

    @property
    def name(self) -> str:
        return str(self.function.bdf)


@dataclass(eq=False, slots=True)
class Region:
    """*size* bytes at *base*, of *devices* in turn."""

    host: Host
    window: Window
    base: int
    size: int
    devices: tuple[MemoryDevice, ...]
    committed: list[Decoders] = field(default_factory=list)

    def read(self, offset: int, size: int) -> bytes:
        """MemoryAccessError as by `Bus.read`; LocalError: it is not inside."""
        self._check(offset, size)
        return self.host.bus.read(self.base + offset, size)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """As `read`."""
        self._check(offset, memoryview(data).nbytes)
        self.host.bus.write(self.base + offset, data)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise LocalError(f"{size} bytes at {offset:#x}: the region has {self.size:#x}")


class Host:
    """What is below *root*, enumerated: `devices` have memory; *windows* are its firmware's
    (CXL 3.1 9.18.1.3).  *memory* and *raises* as for `Bus`.  A context manager."""

    def __init__(
        self,
        root: RootComplex,
        windows: Sequence[Window],
        *,
        memory: Callable[[Type3], Any] = memory_of,
        raises: bool = True,
        bars_at: int = _BARS_AT,
    ) -> None:
        self.root = root
        self.windows = tuple(windows)
        self.functions: list[Found] = []
        self.devices: list[MemoryDevice] = []
        self.regions: list[Region] = []
        self._decoders: dict[int, Decoders] = {}
        walk, bridges = Walk(root, bars_at), sorted(root.bridges, key=lambda each: each.bus)
        for i, bridge in enumerate(bridges):
            last = bridges[i + 1].bus - 1 if i + 1 < len(bridges) else 0xFF
            top = self._decoders_at(f"bridge {bridge.uid}", find_hdm(root, bridge.base))
            for each in walk.bridge(bridge.bus, last):
                self._meet(each, bridge.uid, top)
        self.bus = Bus(root, windows, memory=memory, raises=raises)

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bus.close()

    # What there is

    def _meet(self, function: Found, uid: int, top: Decoders | None) -> None:
        self.functions.append(function)
        own = self._decoders_at(str(function.bdf), function.hdm)
        capacity = self._capacity(function)
        if capacity and own and top:
            self._enable(function, own)
            route = self._route(function, top)
            self.devices.append(MemoryDevice(function, uid, capacity, own, route))
        for each in function.below:
            self._meet(each, uid, top)

    def _route(self, function: Found, top: Decoders) -> list[tuple[Decoders, int]]:
        """The path has a port below each component with decoders: the one that it aims at."""
        route, decoders = [], top
        for port in function.path[:-1]:
            own = self._decoders_at(str(port.bdf), port.hdm)
            if own:
                decoders = own
            else:
                route.append((decoders, port.number))
        return route

    def _decoders_at(self, name: str, base: int | None) -> Decoders | None:
        if base is None:
            return None
        if base not in self._decoders:
            count = DECODER_COUNTS[self.root.read(base, 4) & 0xF]
            self._decoders[base] = Decoders(name, base, count)
            for control in range(base + 0x20, base + 0x20 + 0x20 * count, 0x20):
                if self.root.read(control, 4) & _COMMITTED:
                    raise LocalError(f"{name}: decoders are committed already: reset it first")
                self.root.write(control, 4, _HOST_ONLY)
        return self._decoders[base]

    def _dvsec(self, function: Found) -> int | None:
        read = partial(self.root.config_read, function.bdf)
        return next((each.offset for each in dvsec_tables.find(read) if each.number == 0), None)

    def _capacity(self, function: Found) -> int:
        """Of range 1 (CXL 3.1 8.1.3.8.1 and .2): 0 if it has none, or is no CXL.mem device."""
        at = self._dvsec(function)
        if at is None:
            return 0
        read = partial(self.root.config_read, function.bdf)
        if not read(at + 0x0A, 2) & _MEM_CAPABLE:
            return 0
        return read(at + 0x18, 4) << 32 | read(at + 0x1C, 4) & ~(_STEP - 1) & _LOW

    def _enable(self, function: Found, decoders: Decoders) -> None:
        """CXL 3.1 8.1.3.2 and 8.2.4.20.2."""
        at = self._dvsec(function) or 0
        control = self.root.config_read(function.bdf, at + 0x0C, 2)
        self.root.config_write(function.bdf, at + 0x0C, 2, control | _MEM_ENABLE)
        self.root.write(decoders.base + 4, 4, _HDM_ENABLE)

    # Regions

    def create_region(
        self,
        devices: Iterable[MemoryDevice],
        *,
        size: int = 0,
        granularity: int = 256,
        window: Window | None = None,
    ) -> Region:
        """*size* bytes (0: all that each of them has left) of *devices* in turn, by the order of
        their addresses.  A window with more ways than one sets the granularity.

        RegionError: devices, order, size or granularity that no programming of the decoders on the
        way can make a region of; nothing is committed then."""
        ordered = tuple(devices)
        window = window or self._window_of(ordered)
        if window.interleave.ways > 1:
            granularity = window.interleave.granularity_bytes
        plan = self._plan(ordered, window, granularity)
        ways = len(ordered)
        size = size or ways * min(each.capacity - each.used for each in ordered)
        base = max(
            (each.base + each.size for each in self.regions if each.window is window),
            default=window.base,
        )
        if size <= 0 or size % (ways * _STEP) or base + size > window.end:
            raise RegionError(
                f"{size:#x} bytes at {base:#x}: a multiple of {ways} times 256 MiB is needed, and "
                f"the window ends at {window.end:#x}"
            )
        if any(each.used + size // ways > each.capacity for each in ordered):
            raise RegionError(f"{size:#x} bytes of {ways} devices: one of them has less left")
        region = Region(self, window, base, size, ordered)
        try:
            for decoders, interleave, targets in plan:
                self._commit(decoders, base, size, interleave, targets)
                region.committed.append(decoders)
        except RegionError:
            self._decommit(region)
            raise
        for each in ordered:
            each.used += size // ways
        self.regions.append(region)
        return region

    def destroy_region(self, region: Region) -> None:
        """The last one that was made goes first (CXL 3.1 8.2.4.20.12).  RegionError: it is not."""
        if not self.regions or self.regions[-1] is not region:
            raise RegionError("regions are destroyed from the last one on")
        self._decommit(region)
        for each in region.devices:
            each.used -= region.size // len(region.devices)
        self.regions.pop()

    def _window_of(self, devices: Sequence[MemoryDevice]) -> Window:
        uids = {each.uid for each in devices}
        for window in self.windows:
            if set(window.targets) == uids:
                return window
        raise RegionError(f"no window of the host's memory has exactly the bridges {sorted(uids)}")

    def _plan(
        self, devices: Sequence[MemoryDevice], window: Window, granularity: int
    ) -> list[tuple[Decoders, Interleave, list[int]]]:
        """What each set of decoders is to be, from the bridges down to the devices."""
        ways, above = len(devices), window.interleave.ways
        if len(set(devices)) < ways or ways not in CODE_OF_WAYS or ways % above:
            raise RegionError(f"{ways} devices below a window of {above} ways: each once, in turns")
        for position, each in enumerate(devices):
            if window.targets[position % above] != each.uid:
                raise RegionError(f"{each.name} is at {position}, whose turn is another bridge's")
        plan: list[tuple[Decoders, Interleave, list[int]]] = []
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
                step = granularity * done if len(targets) > 1 else granularity
                plan.append((decoders, _interleave(len(targets), step), targets))
                for at in positions:
                    reached[devices[at]] = done * len(targets)
        for each in devices:
            if reached[each] != ways:
                raise RegionError(f"{each.name} has a turn in {reached[each]}, not in {ways}")
            plan.append((each.decoders, _interleave(ways, granularity), []))
        return plan

    # Decoders

    def _commit(
        self,
        decoders: Decoders,
        base: int,
        size: int,
        interleave: Interleave,
        targets: Sequence[int],
    ) -> None:
        if decoders.used == decoders.count:
            raise RegionError(f"{decoders.name}: all {decoders.count} decoders are in use")
        at = decoders.base + 0x10 + 0x20 * decoders.used
        listed = int.from_bytes(bytes(targets), "little")
        write = self.root.write
        for offset, value in ((0, base), (8, size), (0x14, listed)):
            write(at + offset, 4, value & _LOW)
            write(at + offset + 4, 4, value >> 32)
        control = interleave.shift - 8 | CODE_OF_WAYS[interleave.ways] << 4 | _HOST_ONLY
        write(at + 0x10, 4, control | _COMMIT)
        answer = self.root.read(at + 0x10, 4)
        if answer & _ERROR or not answer & _COMMITTED:
            write(at + 0x10, 4, control)
            raise RegionError(
                f"{decoders.name}: decoder {decoders.used} is not committed with {size:#x} bytes "
                f"at {base:#x}, {interleave.ways} ways of {interleave.granularity_bytes}"
            )
        decoders.used += 1

    def _decommit(self, region: Region) -> None:
        for decoders in reversed(region.committed):
            decoders.used -= 1
            at = decoders.base + 0x10 + 0x20 * decoders.used
            self.root.write(at + 0x10, 4, self.root.read(at + 0x10, 4) & ~_COMMIT)
            for offset in (0, 4, 8, 12):
                self.root.write(at + offset, 4, 0)
        region.committed.clear()


def _interleave(ways: int, granularity: int) -> Interleave:
    try:
        return Interleave(ways, granularity)
    except ValueError as error:
        raise RegionError(str(error)) from None


def _targets(decoders: Decoders, ports: dict[int, int], above: int) -> list[int]:
    """The port of each turn, of the *ports* of these positions; turns change every *above*."""
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
