# SPDX-License-Identifier: BSD-3-Clause
"""The root complex of a host: host bridges, and the routing of requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import RLock

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.function import Function, RegisterPlace, find_function, find_place
from nupa.cxl.function.hdm import DecoderSet
from nupa.cxl.function.port import Port
from nupa.cxl.link.bdf import Bdf
from nupa.cxl.registers import component
from nupa.cxl.registers import component_tables as tables
from nupa.cxl.registers.component import ComponentRegisters


class HostBridge:
    """A host bridge: root ports on bus *bus*; component registers at *base*, as in ACPI (CXL 3.1
    9.18.1.2).

    *uid* names it in the targets of a fixed memory window (CXL 3.1 9.18.1.3)."""

    def __init__(self, uid: int, bus: int, base: int, *, ports: int, decoders: int = 4) -> None:
        self.uid = uid
        self.bus = bus
        self.base = base
        self.component = ComponentRegisters(
            [
                tables.hdm(decoders),
                tables.extended_security(ports),
                tables.snoop_filter(0, 0),
            ]
        )
        self.decoders = DecoderSet(self.component["hdm"])
        self.below: dict[int, Function] = {}


class RootComplex:
    """The host bridges of one host.  Reads without a completer return all ones, and such writes are
    lost (PCIe 6.0 2.3.2).

    *lock* is held during each request; a fabric manager in another thread has the same one."""

    def __init__(
        self, *bridges: HostBridge, lock: AbstractContextManager[object] | None = None
    ) -> None:
        self.bridges = bridges
        self.lock = lock or RLock()

    def config_read(self, bdf: Bdf, offset: int, size: int) -> int:
        """Reads configuration space.  AccessError: *size* and *offset* are not possible there."""
        with self.lock:
            function = self.function(bdf)
            return function.config.read(offset, size) if function else (1 << 8 * size) - 1

    def config_write(self, bdf: Bdf, offset: int, size: int, value: int) -> None:
        """Writes configuration space.  AccessError as above."""
        with self.lock:
            function = self.function(bdf)
            if function:
                function.config.write(offset, size, value)

    def listen(self, bdf: Bdf, handler: Callable[[int, int], None]) -> None:
        """Has *handler*(address, data) take the interrupts of the function at *bdf*, instead of
        any other handler; those of a slot have no data.  A function without interrupts sends
        none."""
        with self.lock:
            function = self.function(bdf)
            if isinstance(function, Type3):
                function.msix.wire = handler
            elif isinstance(function, Port):
                function.interrupts[:] = [lambda _port: handler(0, 0)]

    def function(self, bdf: Bdf) -> Function | None:
        for bridge in self.bridges:
            found = find_function(bridge.below, bridge.bus, bdf.bus, bdf.devfn)
            if found:
                return found
        return None

    def read(self, address: int, size: int) -> int:
        """Reads registers behind BARs, or of host bridges.  AccessError: not a size that they
        take."""
        with self.lock:
            place = self.place(address)
            return place.space.read(place.offset, size) if place else (1 << 8 * size) - 1

    def write(self, address: int, size: int, value: int) -> None:
        """Writes registers.  AccessError as above."""
        with self.lock:
            place = self.place(address)
            if place:
                place.space.write(place.offset, size, value)

    def place(self, address: int) -> RegisterPlace | None:
        """Returns the byte at *address*; None: nothing decodes it."""
        for bridge in self.bridges:
            if bridge.base <= address < bridge.base + component.BYTES:
                return RegisterPlace(bridge.component, address - bridge.base)
            found = find_place(bridge.below, address)
            if found:
                return found
        return None
