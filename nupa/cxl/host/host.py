# SPDX-License-Identifier: BSD-3-Clause
"""A host that uses CXL memory as Linux does.  It walks its buses, makes regions by programming
decoders from the top down, reads and writes through them, and follows hot plug."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.cci import CommandError
from nupa.cxl.host.bus import Bus, memory_of
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.driver import Driver
from nupa.cxl.host.enumerate import FoundFunction, Walk, find_hdm
from nupa.cxl.host.hotplug import Slot
from nupa.cxl.host.memory import CxlMemdev, CxlRegion, Decoders, RegionError
from nupa.cxl.host.region_plan import COMMITTED, HOST_ONLY, STEP, commit, decommit, place, plan
from nupa.cxl.host.root import RootComplex
from nupa.cxl.host.window import HostWindow, map_addresses
from nupa.cxl.registers import dvsec_tables
from nupa.cxl.registers.component_tables import DECODER_COUNTS
from nupa.cxl.registers.pcie_tables import PortType
from nupa.memory.window import Coherence, OnLoss

__all__ = ["CxlMemdev", "CxlRegion", "Decoders", "Host", "RegionError"]

_BARS_AT = 0xC000_0000
_LOW = 0xFFFFFFFF
_MEM_CAPABLE, _MEM_ENABLE, _VIRAL_ENABLE, _HDM_ENABLE = 1 << 2, 1 << 2, 1 << 14, 1 << 1


class Host(Closing):
    """A host with the tree below *root*, enumerated; a context manager.

    `devices` have memory.  *windows* are the host's fixed memory windows (CXL 3.1 9.18.1.3).
    *memory* and *raises* are as for `Bus`.

    Hot plug and offers of dynamic capacity are handled at once, in the thread that causes them;
    *changed* is called after each."""

    def __init__(
        self,
        root: RootComplex,
        windows: Sequence[FixedWindow],
        *,
        memory: Callable[[Type3], Any] = memory_of,
        raises: bool = True,
        bars_at: int = _BARS_AT,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.root = root
        self.windows = tuple(windows)
        self.functions: list[FoundFunction] = []
        self.devices: list[CxlMemdev] = []
        self.regions: list[CxlRegion] = []
        self._decoders: dict[int, Decoders] = {}
        self._changed = changed
        self._slots: list[Slot] = []
        self._walk, bridges = Walk(root, bars_at), sorted(root.bridges, key=lambda each: each.bus)
        with root.lock:
            for i, bridge in enumerate(bridges):
                last = bridges[i + 1].bus - 1 if i + 1 < len(bridges) else 0xFF
                top = self._decoders_at(f"bridge {bridge.uid}", find_hdm(root, bridge.base))
                for each in self._walk.bridge(bridge.bus, last):
                    self._meet(each, bridge.uid, top)
            self.bus = Bus(root, windows, memory=memory, raises=raises)
            for slot in self._slots:
                slot.begin()

    def close(self) -> None:
        """Stops following hot plug, and closes the bus; decoders stay programmed."""
        with self.root.lock:
            for slot in self._slots:
                slot.end()
            self._changed = lambda: None
            self.bus.close()

    # Enumeration

    def _meet(self, function: FoundFunction, uid: int, top: Decoders | None) -> None:
        self.functions.append(function)
        own = self._decoders_at(str(function.bdf), function.hdm)
        at = self._memory_at(function)
        if at is not None and own and top:
            self._probe(function, uid, own, top, at)
        if function.kind in (PortType.ROOT, PortType.DOWNSTREAM):
            meet = partial(self._plugged, function, uid, top)
            self._slots.append(Slot(self.root, function, meet, partial(self._unplugged, function)))
        for each in function.below:
            self._meet(each, uid, top)

    def _probe(
        self, function: FoundFunction, uid: int, own: Decoders, top: Decoders, dvsec: int
    ) -> None:
        """Adds a device that has memory, or may get some."""
        driver = None
        with suppress(CommandError):  # registers alone are enough for memory (CXL 3.1 8.1.3.8)
            driver = Driver(self.root, function, lambda: self._changed())
        capacity = self._capacity(function, dvsec)
        if capacity or (driver and driver.regions):
            self._enable(function, own, dvsec)
            route = self._route(function, top)
            self.devices.append(CxlMemdev(function, uid, capacity, own, route, driver))

    def _route(self, function: FoundFunction, top: Decoders) -> list[tuple[Decoders, int]]:
        """Returns the decoders on the way, each with the port number that it targets."""
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
                if self.root.read(control, 4) & COMMITTED:
                    raise LocalError(f"{name}: decoders are committed already: reset it first")
                self.root.write(control, 4, HOST_ONLY)
        return self._decoders[base]

    def _memory_at(self, function: FoundFunction) -> int | None:
        """Returns the offset of the DVSEC for CXL devices (CXL 3.1 8.1.3), if it says
        Mem_Capable."""
        read = partial(self.root.config_read, function.bdf)
        at = next((each.offset for each in dvsec_tables.find(read) if each.number == 0), None)
        return at if at is not None and read(at + 0x0A, 2) & _MEM_CAPABLE else None

    def _capacity(self, function: FoundFunction, dvsec: int) -> int:
        """Returns the capacity by range 1 (CXL 3.1 8.1.3.8.1, 8.1.3.8.2)."""
        read = partial(self.root.config_read, function.bdf)
        return read(dvsec + 0x18, 4) << 32 | read(dvsec + 0x1C, 4) & ~(STEP - 1) & _LOW

    def _enable(self, function: FoundFunction, decoders: Decoders, dvsec: int) -> None:
        """Enables memory, viral and the decoders (CXL 3.1 8.1.3.2, 8.2.4.20.2; 12.4)."""
        control = self.root.config_read(function.bdf, dvsec + 0x0C, 2)
        control |= _MEM_ENABLE | _VIRAL_ENABLE
        self.root.config_write(function.bdf, dvsec + 0x0C, 2, control)
        self.root.write(decoders.base + 4, 4, _HDM_ENABLE)

    # Hot plug

    def _plugged(self, port: FoundFunction, uid: int, top: Decoders | None) -> None:
        self._walk.slot(port)
        before = len(self._slots)
        for each in port.below:
            self._meet(each, uid, top)
        for slot in self._slots[before:]:
            slot.begin()
        self._changed()

    def _unplugged(self, port: FoundFunction) -> None:
        """Forgets the functions below *port*; their regions are lost, and requests to them fail."""
        gone, port.below = [*_all(port.below)], []
        for function in gone:
            self.functions.remove(function)
        self._slots = [slot for slot in self._slots if slot.port not in gone]
        decoders = {self._decoders.pop(each.hdm) for each in gone if each.hdm in self._decoders}
        self.devices = [each for each in self.devices if each.function not in gone]
        for region in self.regions:
            if any(each.function in gone for each in region.devices):
                region.lost = True
                region.committed = [each for each in region.committed if each[0] not in decoders]
        self._changed()

    # Regions

    def create_region(
        self,
        devices: Iterable[CxlMemdev],
        *,
        size: int = 0,
        granularity: int = 256,
        window: FixedWindow | None = None,
    ) -> CxlRegion:
        """Makes a region of *size* bytes (0: all capacity that is left) of *devices*, interleaved
        in their order.  A window with more than one way sets the granularity.  Lost regions are
        destroyed first.

        RegionError: no programming of the decoders on the way makes such a region; nothing is
        committed."""
        ordered = tuple(devices)
        with self.root.lock:
            self._forget_lost()
            window = window or self._window_of(ordered)
            if window.interleave.ways > 1:
                granularity = window.interleave.granularity_bytes
            ways = len(ordered)
            planned = plan(ordered, window, granularity)
            size = size or ways * min(each.capacity - each.used for each in ordered)
            if size <= 0 or size % (ways * STEP):
                raise RegionError(f"{size:#x} bytes: take a multiple of {ways} times 256 MiB")
            base = place(planned, window, size, self.regions)
            if any(each.used + size // ways > each.capacity for each in ordered):
                raise RegionError(f"{size:#x} bytes of {ways} devices: one of them has less left")
            region = CxlRegion(self.bus, window, base, size, ordered, granularity)
            return self._program(region, planned)

    def create_dynamic_region(self, device: CxlMemdev, index: int = 0) -> CxlRegion:
        """Makes a region of all addresses of a device's dynamic capacity region *index*; its
        extents can be accessed.  RegionError: no such region, or as above."""
        with self.root.lock:
            self._forget_lost()
            listed = device.driver.regions if device.driver else []
            if not 0 <= index < len(listed):
                raise RegionError(f"{device.name} has no dynamic capacity region {index}")
            dynamic, window = listed[index], self._window_of([device])
            planned = plan([device], window, 256, dynamic.dpa)
            base = place(planned, window, dynamic.size, self.regions)
            region = CxlRegion(self.bus, window, base, dynamic.size, (device,), 256, dynamic)
            return self._program(region, planned)

    def _program(self, region: CxlRegion, planned: Sequence[Any]) -> CxlRegion:
        try:
            for what in planned:
                commit(self.root, region, what)
        except RegionError:
            decommit(self.root, region)
            raise
        self.regions.append(region)
        return region

    def destroy_region(self, region: CxlRegion) -> None:
        """Destroys a region.  RegionError: it is neither lost nor the last one that was made (CXL
        3.1 8.2.4.20.12)."""
        with self.root.lock:
            if region not in self.regions or not (region.lost or self.regions[-1] is region):
                raise RegionError("the region is not the last one: destroy later ones first")
            self.regions.remove(region)
            decommit(self.root, region)

    def map(
        self,
        region: CxlRegion,
        offset: int = 0,
        size: int | None = None,
        *,
        coherence: Coherence = "hardware",
        on_loss: OnLoss = "ones",
    ) -> HostWindow:
        """Maps *size* bytes at *offset* of a region (None: to its end) for plain loads and stores:
        whole turns of its devices.  All of the mapped memory is backed.  Errors as by
        `nupa.cxl.host.window.map_addresses`."""
        size = region.size - offset if size is None else size
        if offset < 0 or size <= 0 or offset + size > region.size:
            raise LocalError(f"{size} bytes at {offset:#x}: the region has {region.size:#x}")
        with self.root.lock:
            return map_addresses(
                self.bus, region.base + offset, size, coherence=coherence, on_loss=on_loss
            )

    def _forget_lost(self) -> None:
        for region in [each for each in self.regions if each.lost]:
            self.destroy_region(region)

    def _window_of(self, devices: Sequence[CxlMemdev]) -> FixedWindow:
        uids = {each.uid for each in devices}
        for window in self.windows:
            if set(window.targets) == uids:
                return window
        raise RegionError(f"no window of the host's memory has exactly the bridges {sorted(uids)}")


def _all(functions: Iterable[FoundFunction]) -> Iterator[FoundFunction]:
    for each in functions:
        yield each
        yield from _all(each.below)
