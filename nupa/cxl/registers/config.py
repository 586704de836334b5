# SPDX-License-Identifier: BSD-3-Clause
"""Configuration space of one function: a header, and a chain of capabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from nupa.cxl.registers.block import CONFIG_BYTES, BitField, Registers
from nupa.cxl.registers.pci_tables import HEADER_BYTES
from nupa.cxl.registers.space import Space

BYTES = 4096  # PCIe 6.0 7.2.2
_EXTENDED_AT = 0x100

#: read(offset, size) of one function's configuration space.
Read = Callable[[int, int], int]


class ConfigSpace(Space):
    """4 KiB of configuration space.

    Capabilities lie at the given offset, or after the last one.  Software finds them in the order
    in which they were added (PCIe 6.0 7.5.1.1.11, 7.6.3).

    The first extended capability is at 0x100; ValueError otherwise."""

    def __init__(self, header: Iterable[BitField]) -> None:
        super().__init__(BYTES, CONFIG_BYTES)
        self.add("header", 0, Registers(header, HEADER_BYTES))
        self._last = self._last_extended = ""

    @property
    def header(self) -> Registers:
        return self["header"]

    def add_capability(
        self, name: str, rows: Iterable[BitField], size: int, at: int | None = None
    ) -> Registers:
        """Adds a capability below 0x100; its rows have `next` in their second byte."""
        if at is None:
            at = self._after(self._last or "header")
        if at + size > _EXTENDED_AT:
            raise ValueError(f"{name}: {at:#x} to {at + size:#x} are not below {_EXTENDED_AT:#x}")
        block = Registers(rows, -(-size // 4) * 4)
        self.add(name, at, block)
        if self._last:
            self[self._last].preset("next", at)
        else:
            self.header.preset("capabilities_pointer", at)
        self._last = name
        return block

    def add_extended(
        self, name: str, rows: Iterable[BitField], size: int, at: int | None = None
    ) -> Registers:
        """Adds an extended capability; its rows have `next` as in `ext_tables.extended`."""
        last = self._last_extended
        if at is None:
            at = self._after(last) if last else _EXTENDED_AT
        if at < _EXTENDED_AT or (not last and at != _EXTENDED_AT):
            raise ValueError(f"{name}: extended capabilities begin at {_EXTENDED_AT:#x}")
        block = Registers(rows, -(-size // 4) * 4)
        self.add(name, at, block)
        if last:
            self[last].preset("next", at)
        self._last_extended = name
        return block

    def _after(self, name: str) -> int:
        return self.offset_of(name) + self[name].size


def walk(read: Read) -> Iterator[tuple[int, int]]:
    """Yields (offset, id) of each capability, by the pointers alone, as software does; no offset
    twice."""
    seen: set[int] = set()
    at = read(0x34, 1) & ~3
    while at >= HEADER_BYTES and at not in seen:
        seen.add(at)
        yield at, read(at, 1)
        at = read(at + 1, 1) & ~3


def walk_extended(read: Read) -> Iterator[tuple[int, int]]:
    """Yields (offset, id) of each extended capability; none if the header at 0x100 is 0 or all
    ones."""
    seen: set[int] = set()
    at = _EXTENDED_AT
    while at >= _EXTENDED_AT and at not in seen:
        seen.add(at)
        header = read(at, 4)
        if header in (0, 0xFFFFFFFF):
            return
        yield at, header & 0xFFFF
        at = header >> 20 & ~3
