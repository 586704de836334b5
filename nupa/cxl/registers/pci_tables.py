# SPDX-License-Identifier: BSD-3-Clause
"""Headers of PCI functions and their base address registers, as rows.

Sections are those of the PCI Express Base Specification 6.0.  Capabilities are in pcie_tables.py
and ext_tables.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nupa.cxl.registers.block import HWINIT, RO, RW, RW1C, BitField, RegisterAttribute

HEADER_BYTES = 0x40
#: Base class, sub-class, programming interface: PCI Code and ID Assignment, 1.5 and 1.6.
CLASS_BRIDGE = 0x060400
CLASS_CXL_MEMORY = 0x050210
CLASS_ACCELERATOR = 0x120000

_TYPE_0, _TYPE_1 = 0, 1


class Bar(NamedTuple):
    """A memory BAR: *size_bytes* is a power of two; *wide*: 64 bits."""

    number: int
    size_bytes: int
    wide: bool = True
    prefetchable: bool = False

    @property
    def shift(self) -> int:
        """The number of address bits that software does not write."""
        return self.size_bytes.bit_length() - 1

    def rows(self) -> Iterator[BitField]:
        """Yields the rows of the BAR (7.5.1.2.1): the bits below its size are not there, so all
        ones read back as its mask."""
        if self.size_bytes < 16 or self.size_bytes & (self.size_bytes - 1):
            raise ValueError(f"BAR {self.number}: {self.size_bytes} bytes are not a power of two")
        name, at, cite = f"bar{self.number}", 0x10 + 4 * self.number, "7.5.1.2.1"
        yield BitField(f"{name}.io", at, "0", RO, 0, cite)
        yield BitField(f"{name}.type", at, "2:1", RO, 2 if self.wide else 0, cite)
        yield BitField(f"{name}.prefetchable", at, "3", RO, int(self.prefetchable), cite)
        yield BitField(f"{name}.base", at, f"{63 if self.wide else 31}:{self.shift}", RW, 0, cite)


def bits(
    register: str,
    offset: int,
    access: RegisterAttribute,
    section: str,
    names: Iterable[str],
    first: int = 0,
    reset: int = 0,
) -> Iterator[BitField]:
    """Yields one-bit fields `register.name` from bit *first* up; "" is a reserved bit.  *reset* is
    that of the whole register."""
    for bit, name in enumerate(names, first):
        if name:
            yield BitField(
                f"{register}.{name}", offset, str(bit), access, reset >> bit & 1, section
            )


#: 7.5.1.1.3
_COMMAND = (
    BitField("command.io_space", 0x04, "0", RW, 0, "7.5.1.1.3"),
    BitField("command.memory_space", 0x04, "1", RW, 0, "7.5.1.1.3"),
    BitField("command.bus_master", 0x04, "2", RW, 0, "7.5.1.1.3"),
    BitField("command.parity_error_response", 0x04, "6", RW, 0, "7.5.1.1.3"),
    BitField("command.serr_enable", 0x04, "8", RW, 0, "7.5.1.1.3"),
    BitField("command.interrupt_disable", 0x04, "10", RW, 0, "7.5.1.1.3"),
)

#: 7.5.1.1.4, and 7.5.1.3.7 for the secondary side of a bridge: bits 8 and 11 to 15.
_ERRORS = (
    "master_data_parity_error",
    "",
    "",
    "signaled_target_abort",
    "received_target_abort",
    "received_master_abort",
    "signaled_system_error",
    "detected_parity_error",
)


def _common(
    vendor_id: int, device_id: int, class_code: int, layout: int, revision: int
) -> tuple[BitField, ...]:
    """Returns the common part of both kinds of header (7.5.1.1)."""
    return (
        BitField("vendor_id", 0x00, "15:0", HWINIT, vendor_id, "7.5.1.1.1"),
        BitField("device_id", 0x02, "15:0", HWINIT, device_id, "7.5.1.1.2"),
        *_COMMAND,
        BitField("status.immediate_readiness", 0x06, "0", RO, 0, "7.5.1.1.4"),
        BitField("status.interrupt", 0x06, "3", RO, 0, "7.5.1.1.4"),
        BitField("status.capabilities_list", 0x06, "4", RO, 1, "7.5.1.1.4"),
        *bits("status", 0x06, RW1C, "7.5.1.1.4", _ERRORS, first=8),
        BitField("revision_id", 0x08, "7:0", HWINIT, revision, "7.5.1.1.5"),
        BitField("class_code", 0x09, "23:0", RO, class_code, "7.5.1.1.6"),
        BitField("cache_line_size", 0x0C, "7:0", RW, 0, "7.5.1.1.7"),
        BitField("latency_timer", 0x0D, "7:0", RO, 0, "7.5.1.1.8"),
        BitField("header_type.layout", 0x0E, "6:0", RO, layout, "7.5.1.1.9"),
        BitField("header_type.multi_function", 0x0E, "7", HWINIT, 0, "7.5.1.1.9"),
        BitField("bist", 0x0F, "7:0", RO, 0, "7.5.1.1.10"),
        BitField("capabilities_pointer", 0x34, "7:0", HWINIT, 0, "7.5.1.1.11"),
        BitField("interrupt_line", 0x3C, "7:0", RW, 0, "7.5.1.1.12"),
        BitField("interrupt_pin", 0x3D, "7:0", RO, 0, "7.5.1.1.13"),
    )


def type0(
    vendor_id: int,
    device_id: int,
    class_code: int,
    bars: Iterable[Bar] = (),
    *,
    revision: int = 0,
    subsystem: tuple[int, int] = (0, 0),
) -> tuple[BitField, ...]:
    """Returns the header of an endpoint (7.5.1.2); *subsystem* is its vendor id and its id."""
    return (
        *_common(vendor_id, device_id, class_code, _TYPE_0, revision),
        *(row for bar in bars for row in bar.rows()),
        BitField("cardbus_cis_pointer", 0x28, "31:0", RO, 0, "7.5.1.2.2"),
        BitField("subsystem_vendor_id", 0x2C, "15:0", HWINIT, subsystem[0], "7.5.1.2.3"),
        BitField("subsystem_id", 0x2E, "15:0", HWINIT, subsystem[1], "7.5.1.2.3"),
        BitField("expansion_rom", 0x30, "31:0", RO, 0, "7.5.1.2.4"),
        BitField("min_gnt", 0x3E, "7:0", RO, 0, "7.5.1.2.5"),
        BitField("max_lat", 0x3F, "7:0", RO, 0, "7.5.1.2.5"),
    )


def type1(
    vendor_id: int, device_id: int, bars: Iterable[Bar] = (), *, revision: int = 0
) -> tuple[BitField, ...]:
    """Returns the header of a bridge (7.5.1.3), without an I/O window."""
    return (
        *_common(vendor_id, device_id, CLASS_BRIDGE, _TYPE_1, revision),
        *(row for bar in bars for row in bar.rows()),
        BitField("primary_bus", 0x18, "7:0", RW, 0, "7.5.1.3.2"),
        BitField("secondary_bus", 0x19, "7:0", RW, 0, "7.5.1.3.3"),
        BitField("subordinate_bus", 0x1A, "7:0", RW, 0, "7.5.1.3.4"),
        BitField("secondary_latency_timer", 0x1B, "7:0", RO, 0, "7.5.1.3.5"),
        # No I/O behind this bridge: base and limit are read only and 0 (7.5.1.3.6).
        BitField("io_base", 0x1C, "7:0", RO, 0, "7.5.1.3.6"),
        BitField("io_limit", 0x1D, "7:0", RO, 0, "7.5.1.3.6"),
        *bits("secondary_status", 0x1E, RW1C, "7.5.1.3.7", _ERRORS, first=8),
        BitField("memory_base", 0x20, "15:4", RW, 0, "7.5.1.3.8"),
        BitField("memory_limit", 0x22, "15:4", RW, 0, "7.5.1.3.8"),
        BitField("prefetchable_base.is_64_bit", 0x24, "3:0", RO, 1, "7.5.1.3.9"),
        BitField("prefetchable_base", 0x24, "15:4", RW, 0, "7.5.1.3.9"),
        BitField("prefetchable_limit.is_64_bit", 0x26, "3:0", RO, 1, "7.5.1.3.9"),
        BitField("prefetchable_limit", 0x26, "15:4", RW, 0, "7.5.1.3.9"),
        BitField("prefetchable_base_upper", 0x28, "31:0", RW, 0, "7.5.1.3.10"),
        BitField("prefetchable_limit_upper", 0x2C, "31:0", RW, 0, "7.5.1.3.10"),
        BitField("io_base_upper", 0x30, "15:0", RO, 0, "7.5.1.3.11"),
        BitField("io_limit_upper", 0x32, "15:0", RO, 0, "7.5.1.3.11"),
        BitField("expansion_rom", 0x38, "31:0", RO, 0, "7.5.1.3.12"),
        BitField("bridge_control.parity_error_response", 0x3E, "0", RW, 0, "7.5.1.3.13"),
        BitField("bridge_control.serr_enable", 0x3E, "1", RW, 0, "7.5.1.3.13"),
        BitField("bridge_control.vga_enable", 0x3E, "3", RO, 0, "7.5.1.3.13"),
        BitField("bridge_control.secondary_bus_reset", 0x3E, "6", RW, 0, "7.5.1.3.13"),
    )
