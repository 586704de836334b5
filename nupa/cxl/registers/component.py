# SPDX-License-Identifier: BSD-3-Clause
"""A block of component registers: 64 KiB, with a list of capabilities in the second 4 KiB.

CXL 3.1 8.2.3, 8.2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from nupa.cxl.registers.block import COMPONENT_BYTES, RO, BitField, Registers
from nupa.cxl.registers.component_tables import Capability
from nupa.cxl.registers.space import Space

BYTES = 0x10000
CACHEMEM_AT, CACHEMEM_BYTES = 0x1000, 0x1000
_ALIGNED = 8  # of each structure: some have registers of 64 bits
_HEADER_ID, _HEADER_VERSION, _CACHEMEM_VERSION = 1, 1, 1

#: read(offset, size) in a block of component registers.
Read = Callable[[int, int], int]


class FoundCapability(NamedTuple):
    """A capability in the list; its offset is from the start of the block."""

    number: int
    version: int
    offset: int


class ComponentRegisters(Space):
    """The block of component registers; capabilities are its blocks, by name:
    `component["hdm"]`."""

    def __init__(self, capabilities: Iterable[Capability]) -> None:
        super().__init__(BYTES, COMPONENT_BYTES)
        listed = tuple(capabilities)
        header = [
            BitField("capability_id", 0, "15:0", RO, _HEADER_ID, "8.2.4.1"),
            BitField("version", 0, "19:16", RO, _HEADER_VERSION, "8.2.4.1"),
            BitField("cachemem_version", 0, "23:20", RO, _CACHEMEM_VERSION, "8.2.4.1"),
            BitField("array_size", 0, "31:24", RO, len(listed), "8.2.4.1"),
        ]
        places = []
        end = 4 + 4 * len(listed)
        for index, capability in enumerate(listed, 1):
            start = -(-end // _ALIGNED) * _ALIGNED
            name, at = capability.name, 4 * index
            cite = f"8.2.4.{capability.number}"  # 8.2.4.2 to 8.2.4.16 are in their order
            header += (
                BitField(f"{name}.capability_id", at, "15:0", RO, capability.number, cite),
                BitField(f"{name}.version", at, "19:16", RO, capability.version, cite),
                BitField(f"{name}.pointer", at, "31:20", RO, start, cite),
            )
            places.append((capability, start))
            end = start + capability.bytes
        self.add("capabilities", CACHEMEM_AT, Registers(header, 4 + 4 * len(listed)))
        for capability, start in places:
            if start + capability.bytes > CACHEMEM_BYTES:
                raise ValueError(f"{capability.name}: no room in {CACHEMEM_BYTES} bytes")
            self.add(
                capability.name, CACHEMEM_AT + start, Registers(capability.rows, capability.bytes)
            )


def find_capabilities(read: Read) -> list[FoundCapability]:
    """Reads the array behind the header, as software does; empty if there is no such header."""
    header = read(CACHEMEM_AT, 4)
    if header & 0xFFFF != _HEADER_ID:
        return []
    found = []
    for index in range(1, (header >> 24) + 1):
        entry = read(CACHEMEM_AT + 4 * index, 4)
        if entry & 0xFFFF:  # an empty entry is ignored (8.2.4)
            found.append(
                FoundCapability(entry & 0xFFFF, entry >> 16 & 0xF, CACHEMEM_AT + (entry >> 20))
            )
    return found
