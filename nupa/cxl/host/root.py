# SPDX-License-Identifier: BSD-3-Clause
"""What a host has of its own: host bridges, and the bus that its requests begin on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import RLock

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.function import Function, Place, find_function, find_place
from nupa.cxl.function.hdm import DecoderSet
from nupa.cxl.function.port import Port
from nupa.cxl.link.bdf import Bdf
from nupa.cxl.registers import component
from nupa.cxl.registers import component_tables as tables
from nupa.cxl.registers.component import ComponentRegisters


class HostBridge:
    """Root ports on bus *bus*; component registers at *base*, as ACPI says (CXL 3.1 9.18.1.2).

    *uid* names it in the targets of a window of the host's memory (CXL 3.1 9.18.1.3)."""

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
    """Host bridges of one host.  Requests that nobody answers read as all ones, and writes of them
    are lost (PCIe 6.0 2.3.2).

    *lock* is held during each of them: a fabric manager in another thread has the same one."""

    def __init__(
        self, *bridges: HostBridge, lock: AbstractContextManager[object] | None = None
    ) -> None:
        self.bridges = bridges
        self.lock = lock or RLock()

    def config_read(self, bdf: Bdf, offset: int, size: int) -> int:
        """AccessError: *size* and *offset* are not of configuration space."""
        with self.lock:
            function = self.function(bdf)
            return function.config.read(offset, size) if function else (1 << 8 * size) - 1

    def config_write(self, bdf: Bdf, offset: int, size: int, value: int) -> None:
        """AccessError as above."""
        with self.lock:
            function = self.function(bdf)
            if function:
                function.config.write(offset, size, value)

    def listen(self, bdf: Bdf, handler: Callable[[int, int], None]) -> None:
        """Have *handler*(address, data) get the interrupts that the function at *bdf* sends, and
        nobody else; a slot's have no data.  One without interrupts sends none."""
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
        """Registers behind BARs and of host bridges.  AccessError: not a size that they take."""
        with self.lock:
            place = self.place(address)
            return place.space.read(place.offset, size) if place else (1 << 8 * size) - 1

    def write(self, address: int, size: int, value: int) -> None:
        """AccessError as above."""
        with self.lock:
            place = self.place(address)
            if place:
                place.space.write(place.offset, size, value)

    def place(self, address: int) -> Place | None:
        """What is at *address*; None if it is nothing's."""
        for bridge in self.bridges:
            if bridge.base <= address < bridge.base + component.BYTES:
                return Place(bridge.component, address - bridge.base)
            found = find_place(bridge.below, address)
            if found:
                return found
        return None
