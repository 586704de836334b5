# SPDX-License-Identifier: BSD-3-Clause
"""A bus walk as firmware and Linux do it: it numbers buses, places BARs and windows, and identifies
functions.

PCIe 6.0 7.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from nupa.base.errors import LocalError
from nupa.cxl.host.root import RootComplex
from nupa.cxl.link.bdf import Bdf
from nupa.cxl.registers import component, dvsec_tables
from nupa.cxl.registers.config import walk
from nupa.cxl.registers.pcie_tables import PCIE_ID, PortType

_ONES = 0xFFFFFFFF
_WINDOW_STEP = 1 << 20  # 7.5.1.3.8
_CLOSED = 0x0000FFF0  # a window whose limit is below its base
_BUSES = 256
_SWITCH_BUSES = 33  # the switch's own bus, and one for each of 32 ports
_HDM = 5  # CXL 3.1 8.2.4, table 8-22


@dataclass(eq=False, slots=True)
class FoundFunction:
    """A function that was found.

    *bars*: address and size by number.  *hdm*: the address of its HDM decoders, if it has any.
    Below a bridge, BARs are placed from *window* on."""

    bdf: Bdf
    parent: FoundFunction | None = field(repr=False)
    kind: PortType | None
    number: int
    bars: dict[int, tuple[int, int]]
    hdm: int | None = None
    window: int = 0
    below: list[FoundFunction] = field(default_factory=list, repr=False)

    @property
    def path(self) -> list[FoundFunction]:
        """The functions from the root port down to this one."""
        return [*(self.parent.path if self.parent else []), self]


class Walk:
    """A walk that assigns buses, and addresses from *address* on, below *end*, one host bridge
    after another.  LocalError: they do not suffice."""

    def __init__(self, root: RootComplex, address: int, end: int = 1 << 32) -> None:
        self.root = root
        self._address = address
        self._end = end
        self._bus = 0
        self._last_bus = 0

    def bridge(self, bus: int, last_bus: int = _BUSES - 1) -> list[FoundFunction]:
        """Walks the buses *bus* to *last_bus* of a host bridge, and returns its root ports."""
        self._bus, self._last_bus = bus, last_bus
        found = self._scan(bus, None)
        self._find_decoders(found)  # once all windows on the way are open
        return found

    def slot(self, port: FoundFunction) -> None:
        """Enumerates the functions that were plugged in below a port, in its window and its
        buses."""
        before = self._address, self._bus, self._last_bus
        try:
            self._address = port.window
            self._bus = bus = self.root.config_read(port.bdf, 0x19, 1)
            self._last_bus = self.root.config_read(port.bdf, 0x1A, 1)
            port.below = self._scan(bus, port)
        finally:
            self._address, self._bus, self._last_bus = before
        self._find_decoders(port.below)

    def _find_decoders(self, functions: list[FoundFunction]) -> None:
        for each in functions:
            each.hdm = find_hdm(self.root, self._block(each))
            self._find_decoders(each.below)

    def _scan(self, bus: int, parent: FoundFunction | None) -> list[FoundFunction]:
        found = []
        for device in range(32):
            bdf = Bdf(bus, device)
            read = partial(self.root.config_read, bdf)
            if read(0, 4) in (_ONES, 0):
                continue
            at = next((at for at, number in walk(read) if number == PCIE_ID), 0)
            kind = PortType(read(at + 2, 2) >> 4 & 0xF) if at else None
            number = read(at + 0x0C, 4) >> 24 if at else 0  # Link Capabilities: Port Number
            each = FoundFunction(bdf, parent, kind, number, self._place_bars(bdf))
            is_bridge = read(0x0E, 1) & 0x7F == 1
            if is_bridge:
                self._scan_below(each)
            self.root.config_write(bdf, 4, 2, 0x6)  # memory space, bus master
            found.append(each)
        return found

    def _scan_below(self, port: FoundFunction) -> None:
        write = partial(self.root.config_write, port.bdf)
        self._bus += 1
        if self._bus > self._last_bus:
            raise LocalError(f"{port.bdf}: all buses up to {self._last_bus:#x} are in use")
        bus, start = self._bus, self._rounded(_WINDOW_STEP)
        port.window = start
        write(0x18, 4, self._last_bus << 16 | bus << 8 | port.bdf.bus)
        port.below = self._scan(bus, port)
        if port.kind is PortType.DOWNSTREAM:  # leave room for hot plug
            self._address = max(self._address, start + 1)
        elif (
            port.kind is PortType.ROOT and not port.below
        ):  # room for a whole switch, once its link is up
            self._bus += min(_SWITCH_BUSES, (self._last_bus - bus) // 4)
            self._address = start + _SWITCH_BUSES * _WINDOW_STEP
        write(0x1A, 1, self._bus)
        end = self._rounded(_WINDOW_STEP)
        window = (end - _WINDOW_STEP) & 0xFFF00000 | start >> 16 if end > start else _CLOSED
        write(0x20, 4, window)
        write(0x24, 4, _CLOSED)
        write(0x28, 4, 0)
        write(0x2C, 4, 0)

    def _rounded(self, step: int) -> int:
        self._address = -(-self._address // step) * step
        if self._address > self._end:
            raise LocalError(f"BARs need more addresses than up to {self._end:#x}")
        return self._address

    def _place_bars(self, bdf: Bdf) -> dict[int, tuple[int, int]]:
        bars = {}
        for number, size, is_wide in self._sizes(bdf):
            address = self._rounded(size)
            self._address += size
            self.root.config_write(bdf, 0x10 + 4 * number, 4, address & _ONES)
            if is_wide:
                self.root.config_write(bdf, 0x14 + 4 * number, 4, address >> 32)
            bars[number] = (address, size)
        return bars

    def _sizes(self, bdf: Bdf) -> Iterator[tuple[int, int, bool]]:
        """Yields the BARs with their sizes: ones are written, and the lowest bit that stays is the
        size (7.5.1.2.1)."""
        number, count = 0, 2 if self.root.config_read(bdf, 0x0E, 1) & 0x7F == 1 else 6
        while number < count:
            is_wide = self.root.config_read(bdf, 0x10 + 4 * number, 4) & 6 == 4
            mask = self._written(bdf, number) & ~0xF
            if is_wide:
                mask |= self._written(bdf, number + 1) << 32
            if mask:
                yield number, mask & -mask, is_wide
            number += 1 + is_wide

    def _written(self, bdf: Bdf, number: int) -> int:
        self.root.config_write(bdf, 0x10 + 4 * number, 4, _ONES)
        return self.root.config_read(bdf, 0x10 + 4 * number, 4)

    def _block(self, function: FoundFunction) -> int | None:
        """Returns the address of the component registers, by the register locator (CXL 3.1
        8.1.9)."""
        for each in dvsec_tables.locations(partial(self.root.config_read, function.bdf)):
            if each.block is dvsec_tables.BlockId.COMPONENT and each.bar in function.bars:
                return function.bars[each.bar][0] + each.offset
        return None


def find_hdm(root: RootComplex, block: int | None) -> int | None:
    """Returns the address of the HDM decoders in the component registers at *block*."""
    if block is None:
        return None
    listed = component.find_capabilities(lambda at, size: root.read(block + at, size))
    return next((block + each.offset for each in listed if each.number == _HDM), None)
