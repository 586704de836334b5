# SPDX-License-Identifier: BSD-3-Clause
"""A bus walk by raw configuration accesses, as firmware and Linux do it: buses, BARs, windows.

It shares only `config_read` and `config_write` with nupa.cxl, so it is an independent witness.
"""

from __future__ import annotations

from collections.abc import Iterator

from nupa.cxl.host.root import RootComplex
from nupa.cxl.link.bdf import Bdf

MIB = 1 << 20
ONES = 0xFFFFFFFF
_WINDOW_STEP = MIB


class Walk:
    """Numbers buses from *bus* on, and gives out addresses from *base* on."""

    def __init__(self, root: RootComplex, bus: int, base: int) -> None:
        self.root = root
        self.base = base
        self.found: list[Bdf] = []
        self.bars: dict[Bdf, dict[int, tuple[int, int]]] = {}
        self._next_bus = bus + 1
        self._scan(bus)

    def _scan(self, bus: int) -> None:
        for device in range(32):
            bdf = Bdf(bus, device)
            if self.root.config_read(bdf, 0, 4) in (ONES, 0):
                continue
            self.found.append(bdf)
            self._place_bars(bdf)
            if self.root.config_read(bdf, 0x0E, 1) & 0x7F == 1:
                self._scan_below(bdf)
            self.root.config_write(bdf, 4, 2, 0x6)

    def _scan_below(self, bdf: Bdf) -> None:
        bus, start = self._next_bus, self._rounded(_WINDOW_STEP)
        self._next_bus += 1
        self.root.config_write(bdf, 0x18, 4, 0xFF << 16 | bus << 8 | bdf.bus)
        self._scan(bus)
        self.root.config_write(bdf, 0x1A, 1, self._next_bus - 1)
        end = self._rounded(_WINDOW_STEP)
        window = (end - _WINDOW_STEP) & 0xFFF00000 | start >> 16 if end > start else 0x0000FFF0
        self.root.config_write(bdf, 0x20, 4, window)
        self.root.config_write(bdf, 0x24, 4, 0x0000FFF0)

    def _rounded(self, step: int) -> int:
        self.base = -(-self.base // step) * step
        return self.base

    def _place_bars(self, bdf: Bdf) -> None:
        self.bars[bdf] = {}
        for number, at, size, wide in self._sizes(bdf):
            address = self._rounded(size)
            self.base += size
            self.root.config_write(bdf, at, 4, address & ONES)
            if wide:
                self.root.config_write(bdf, at + 4, 4, address >> 32)
            self.bars[bdf][number] = (address, size)

    def _sizes(self, bdf: Bdf) -> Iterator[tuple[int, int, int, bool]]:
        """Yield number, offset, size and width of each BAR that is there (PCIe 6.0 7.5.1.2.1)."""
        number, last = 0, 1 if self.root.config_read(bdf, 0x0E, 1) & 0x7F == 1 else 5
        while number <= last:
            at = 0x10 + 4 * number
            wide = self.root.config_read(bdf, at, 4) & 6 == 4
            mask = self._all_ones(bdf, at) & ~0xF | (
                self._all_ones(bdf, at + 4) << 32 if wide else 0
            )
            if mask:
                yield number, at, mask & -mask, wide
            number += 2 if wide else 1

    def _all_ones(self, bdf: Bdf, at: int) -> int:
        self.root.config_write(bdf, at, 4, ONES)
        return self.root.config_read(bdf, at, 4)
