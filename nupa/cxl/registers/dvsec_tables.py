# SPDX-License-Identifier: BSD-3-Clause
"""CXL's designated vendor-specific extended capabilities (DVSEC), as rows.

Sections are those of the CXL Specification 3.1; DVSEC itself is PCIe 6.0 7.9.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from nupa.cxl.registers.block import HWINIT, RO, RW, RW1CS, RWL, RWO, WO, BitField, once
from nupa.cxl.registers.config import Read, walk_extended
from nupa.cxl.registers.ext_tables import DVSEC_ID, extended
from nupa.cxl.registers.pci_tables import bits

VENDOR_ID = 0x1E98  # 8.1
HEADER_BYTES = 0x0C
#: Ranges of memory are in steps of 256 MiB: 8.1.3.8.
STEP_BITS = 28


class Dvsec(NamedTuple):
    """A DVSEC: `ConfigSpace.add_extended(dvsec.name, dvsec.rows, dvsec.bytes)`."""

    name: str
    number: int
    revision: int
    bytes: int
    rows: tuple[BitField, ...]


def _dvsec(
    name: str, number: int, revision: int, size: int, rows: Iterable[BitField], section: str
) -> Dvsec:
    header = (
        *extended(DVSEC_ID, 1, section),
        BitField("vendor_id", 0x04, "15:0", RO, VENDOR_ID, section),
        BitField("revision", 0x04, "19:16", RO, revision, section),
        BitField("length", 0x04, "31:20", RO, size, section),
        BitField("id", 0x08, "15:0", RO, number, section),
    )
    return Dvsec(name, number, revision, size, (*header, *rows))


def _lockable(name: str, offset: int, where: str, section: str) -> BitField:
    return BitField(name, offset, where, RWL, 0, section, lock="lock.config_lock")


class MediaType(IntEnum):
    """Media Type (8.1.3.8.2)."""

    VOLATILE = 0
    NON_VOLATILE = 1
    CDAT = 2  # "see CDAT"


def _range(number: int, at: int, size_bytes: int, media: MediaType) -> tuple[BitField, ...]:
    """Returns the rows of a range: 16 bytes (8.1.3.8); a range of size 0 is not valid."""
    there = int(size_bytes > 0)
    steps = size_bytes >> STEP_BITS
    if steps << STEP_BITS != size_bytes:
        raise ValueError(f"{size_bytes:#x} bytes of memory are not a multiple of 256 MiB (8.1.3.8)")
    name, low, kind = f"range{number}", at + 4, int(media) * there
    cites = [f"8.1.3.8.{4 * number - 3 + i}" for i in range(4)]
    return (
        BitField(f"{name}.size_high", at, "31:0", RO, steps >> 32 - STEP_BITS, cites[0]),
        BitField(f"{name}.valid", low, "0", RO, there, cites[1]),
        BitField(f"{name}.active", low, "1", RO, there, cites[1]),
        BitField(f"{name}.media", low, "4:2", RO, kind, cites[1]),
        BitField(f"{name}.memory_class", low, "7:5", RO, kind, cites[1]),
        BitField(f"{name}.desired_interleave", low, "12:8", RO, 0, cites[1]),
        BitField(f"{name}.active_timeout", low, "15:13", HWINIT, 0, cites[1]),
        BitField(f"{name}.active_degraded", low, "16", RO, 0, cites[1]),
        BitField(f"{name}.size_low", low, f"31:{STEP_BITS}", RO, steps & 0xF, cites[1]),
        _lockable(f"{name}.base_high", at + 8, "31:0", cites[2]),
        _lockable(f"{name}.base_low", at + 12, f"31:{STEP_BITS}", cites[3]),
    )


@once
def device(memory_bytes: int, *, cache: bool = False, mld: bool = False) -> Dvsec:
    """Makes the DVSEC of a device (8.1.3) with *memory_bytes*, the kind of which is in its CDAT.
    *cache*: with CXL.cache, as of a type 2 device; *mld*: a logical device.  ValueError: not a
    multiple of 256 MiB."""
    mem = int(memory_bytes > 0)
    rows = (
        BitField("capability.cache", 0x0A, "0", RO, int(cache), "8.1.3.1"),
        BitField("capability.io", 0x0A, "1", RO, 1, "8.1.3.1"),
        BitField("capability.mem", 0x0A, "2", RO, mem, "8.1.3.1"),
        BitField("capability.hardware_init", 0x0A, "3", RO, 1, "8.1.3.1"),
        BitField("capability.ranges", 0x0A, "5:4", RO, mem, "8.1.3.1"),
        BitField("capability.writeback_invalidate", 0x0A, "6", RO, int(cache), "8.1.3.1"),
        BitField("capability.reset", 0x0A, "7", RO, 1, "8.1.3.1"),
        BitField("capability.reset_timeout", 0x0A, "10:8", RO, 0, "8.1.3.1"),
        BitField("capability.reset_clears_memory", 0x0A, "11", HWINIT, 0, "8.1.3.1"),
        BitField("capability.mld", 0x0A, "13", HWINIT, int(mld), "8.1.3.1"),
        BitField("capability.viral", 0x0A, "14", RO, 1, "8.1.3.1"),
        BitField("capability.pm_init_reporting", 0x0A, "15", HWINIT, 1, "8.1.3.1"),
        BitField("control.io_enable", 0x0C, "1", RO, 1, "8.1.3.2"),
        _lockable("control.mem_enable", 0x0C, "2", "8.1.3.2"),
        _lockable("control.viral_enable", 0x0C, "14", "8.1.3.2"),
        BitField("status.viral", 0x0E, "14", RW1CS, 0, "8.1.3.3"),
        BitField("control_2.initiate_reset", 0x10, "2", WO, 0, "8.1.3.4"),
        BitField("control_2.reset_clears_memory", 0x10, "3", RW, 0, "8.1.3.4"),
        BitField("status_2.cache_invalid", 0x12, "0", RO, 0, "8.1.3.5"),
        BitField("status_2.reset_complete", 0x12, "1", RO, 0, "8.1.3.5"),
        BitField("status_2.reset_error", 0x12, "2", RO, 0, "8.1.3.5"),
        BitField("status_2.pm_init_complete", 0x12, "15", RO, 1, "8.1.3.5"),
        # Once set, the RWL fields of these rows are read only until a reset.
        BitField("lock.config_lock", 0x14, "0", RWO, 0, "8.1.3.6"),
        BitField("capability_2.cache_size_unit", 0x16, "3:0", RO, int(cache), "8.1.3.7"),
        BitField("capability_2.no_clean_writeback", 0x16, "7", HWINIT, int(not cache), "8.1.3.7"),
        BitField("capability_2.cache_size", 0x16, "15:8", RO, int(cache), "8.1.3.7"),
        *_range(1, 0x18, memory_bytes, MediaType.CDAT),
        *_range(2, 0x28, 0, MediaType.CDAT),
        BitField("capability_3.volatile_after_cold_reset", 0x38, "0", RO, 0, "8.1.3.9"),
        BitField("capability_3.volatile_after_warm_reset", 0x38, "1", RO, 0, "8.1.3.9"),
        BitField("capability_3.volatile_after_hot_reset", 0x38, "2", RO, 0, "8.1.3.9"),
        *(_cache() if cache else ()),
    )
    return _dvsec("device", 0, 3, 0x3C, rows, "8.1.3")


def _cache() -> tuple[BitField, ...]:
    """Returns the rows of devices with CXL.cache alone."""
    return (
        _lockable("control.cache_enable", 0x0C, "0", "8.1.3.2"),
        _lockable("control.snoop_filter_coverage", 0x0C, "7:3", "8.1.3.2"),
        _lockable("control.snoop_filter_granularity", 0x0C, "10:8", "8.1.3.2"),
        _lockable("control.clean_eviction", 0x0C, "11", "8.1.3.2"),
        BitField("control_2.disable_caching", 0x10, "0", RW, 0, "8.1.3.4"),
        BitField("control_2.writeback_invalidate", 0x10, "1", WO, 0, "8.1.3.4"),
    )


def non_cxl_map(functions: Iterable[int] = ()) -> Dvsec:
    """Makes the map of functions without CXL, by device and function numbers (5 and 3 bits; 8.1.4).

    Register N has a bit for each function N of 32 devices."""
    masks = [0] * 8
    for function in functions:
        masks[function & 7] |= 1 << (function >> 3)
    rows = (
        BitField(f"map{i}", 0x0C + 4 * i, "31:0", HWINIT, mask, f"8.1.4.{i + 1}")
        for i, mask in enumerate(masks)
    )
    return _dvsec("non_cxl_map", 2, 0, 0x2C, rows, "8.1.4")


@once
def port_extensions() -> Dvsec:
    """Makes the port extensions of each kind of port (8.1.5): a second set of bus numbers and
    windows."""
    rows = (
        BitField("status.pm_init_complete", 0x0A, "0", RO, 0, "8.1.5.1"),
        BitField("status.viral", 0x0A, "14", RW1CS, 0, "8.1.5.1"),
        BitField("control.unmask_secondary_bus_reset", 0x0C, "0", RW, 0, "8.1.5.2"),
        BitField("control.unmask_link_disable", 0x0C, "1", RW, 0, "8.1.5.2"),
        BitField("control.alternate_windows", 0x0C, "2", RW, 0, "8.1.5.2"),
        BitField("control.alternate_bus_master", 0x0C, "3", RW, 0, "8.1.5.2"),
        BitField("control.viral_enable", 0x0C, "14", RW, 0, "8.1.5.2"),
        BitField("alternate.bus_base", 0x0E, "7:0", RW, 0, "8.1.5.3"),
        BitField("alternate.bus_limit", 0x0F, "7:0", RW, 0, "8.1.5.4"),
        BitField("alternate.memory_base", 0x10, "15:4", RW, 0, "8.1.5.5"),
        BitField("alternate.memory_limit", 0x12, "15:4", RW, 0, "8.1.5.6"),
        BitField("alternate.prefetchable_base", 0x14, "15:4", RW, 0, "8.1.5.7"),
        BitField("alternate.prefetchable_limit", 0x16, "15:4", RW, 0, "8.1.5.8"),
        BitField("alternate.prefetchable_base_high", 0x18, "31:0", RW, 0, "8.1.5.9"),
        BitField("alternate.prefetchable_limit_high", 0x1C, "31:0", RW, 0, "8.1.5.10"),
        BitField("rcrb.enable", 0x20, "0", RO, 0, "8.1.5.11"),
        BitField("rcrb.base", 0x20, "63:13", RO, 0, "8.1.5.11"),
    )
    return _dvsec("port_extensions", 3, 0, 0x28, rows, "8.1.5")


@once
def gpf_port() -> Dvsec:
    """Makes the global persistent flush DVSEC of a port (8.1.6): timeouts, base × 10^scale µs."""
    rows = (
        BitField(f"phase{phase}.{name}", at, where, RW, reset, section)
        for phase, at, section in ((1, 0x0C, "8.1.6.1"), (2, 0x0E, "8.1.6.2"))
        for name, where, reset in (("timeout_base", "3:0", 1), ("timeout_scale", "11:8", 0))
    )
    return _dvsec("gpf_port", 4, 0, 0x10, rows, "8.1.6")


@once
def gpf_device(*, base: int = 1, scale: int = 0, power_mw: int = 0) -> Dvsec:
    """Makes the global persistent flush DVSEC of a device (8.1.7): duration, *base* × 10^*scale*
    µs, and power."""
    rows = (
        BitField("phase2.duration_base", 0x0A, "3:0", RO, base, "8.1.7.1"),
        BitField("phase2.duration_scale", 0x0A, "11:8", RO, scale, "8.1.7.1"),
        BitField("phase2.power_mw", 0x0C, "31:0", RO, power_mw, "8.1.7.2"),
    )
    return _dvsec("gpf_device", 5, 0, 0x10, rows, "8.1.7")


_FLEX_BUS = {0: "cache", 2: "mem", 5: "flit_68", 6: "mld", 13: "flit_256", 14: "pbr"}
_FLEX_BUS_ERRORS = ("even_half", "correctable_framing", "uncorrectable_framing", "unexpected_id")


@once
def flex_bus(*names: str) -> Dvsec:
    """Makes the flex bus DVSEC of a port (8.2.1.3): the capabilities *names*, of "cache", "mem",
    "flit_68", "mld", "flit_256", "pbr"; all are negotiated.  ValueError: another name."""
    unknown = set(names) - set(_FLEX_BUS.values())
    if unknown:
        raise ValueError(f"flex bus has no {min(unknown)!r}: {', '.join(_FLEX_BUS.values())}")
    rows = [
        BitField("capability.io", 0x0A, "1", RO, 1, "8.2.1.3.1"),
        BitField("control.io", 0x0C, "1", RO, 1, "8.2.1.3.2"),
        BitField("control.sync_header_bypass", 0x0C, "3", RW, 0, "8.2.1.3.2"),
        BitField("control.drift_buffer", 0x0C, "4", RW, 0, "8.2.1.3.2"),
        BitField("control.disable_rcd_training", 0x0C, "7", RW, 0, "8.2.1.3.2"),
        BitField("status.io", 0x0E, "1", RO, 1, "8.2.1.3.3"),
        BitField("received_training_data", 0x10, "23:0", RO, 0xEF, "8.2.1.3.4"),
        BitField("capability_2.nop_hint", 0x14, "0", RO, 0, "8.2.1.3.5"),
        BitField("control_2.nop_hint", 0x18, "0", RW, 0, "8.2.1.3.6"),
        BitField("status_2.nop_hint", 0x1C, "1:0", RO, 0, "8.2.1.3.7"),
        *bits("status", 0x0E, RW1CS, "8.2.1.3.3", _FLEX_BUS_ERRORS, first=7),
    ]
    for bit, name in _FLEX_BUS.items():
        there, where = int(name in names), str(bit)
        rows += (
            BitField(f"capability.{name}", 0x0A, where, RO, there, "8.2.1.3.1"),
            BitField(f"control.{name}", 0x0C, where, RW, there, "8.2.1.3.2"),
            BitField(f"status.{name}", 0x0E, where, RO, there, "8.2.1.3.3"),
        )
    return _dvsec("flex_bus", 7, 2, 0x20, rows, "8.2.1.3")


class BlockId(IntEnum):
    """Register Block Identifier (8.1.9.1)."""

    EMPTY = 0
    COMPONENT = 1
    BAR_VIRTUALISATION = 2
    DEVICE = 3
    PERFORMANCE = 4


class Location(NamedTuple):
    """The place of a block of registers: *offset* is a multiple of 64 KiB in BAR *bar*."""

    block: BlockId
    bar: int
    offset: int = 0


def register_locator(locations: Iterable[Location]) -> Dvsec:
    """Makes the register locator (8.1.9).  ValueError: an offset is not a multiple of 64 KiB."""
    rows: list[BitField] = []
    for i, (block, bar, offset) in enumerate(locations):
        at, name = HEADER_BYTES + 8 * i, f"block{i}"
        if offset & 0xFFFF:
            raise ValueError(f"{block.name} at {offset:#x}: not a multiple of 64 KiB (8.1.9.1)")
        rows += (
            BitField(f"{name}.bar", at, "2:0", HWINIT, bar, "8.1.9.1"),
            BitField(f"{name}.identifier", at, "15:8", HWINIT, block, "8.1.9.1"),
            BitField(f"{name}.offset", at, "63:16", HWINIT, offset >> 16, "8.1.9.1"),
        )
    size = HEADER_BYTES + 8 * (len(rows) // 3)
    return _dvsec("register_locator", 8, 0, size, rows, "8.1.9")


@once
def mld(logical_devices: int) -> Dvsec:
    """Makes the MLD DVSEC of the fabric manager's logical device (8.1.10): a hot reset of each LD
    whose bit is set."""
    rows = (
        BitField("logical_devices", 0x0A, "15:0", HWINIT, logical_devices, "8.1.10.1"),
        BitField("hot_reset", 0x0C, "15:0", WO, 0, "8.1.10.2"),
    )
    return _dvsec("mld", 9, 0, 0x10, rows, "8.1.10")


class FoundDvsec(NamedTuple):
    """A CXL DVSEC that software has found in a configuration space."""

    number: int
    revision: int
    length: int
    offset: int


def find(read: Read) -> list[FoundDvsec]:
    """Finds the CXL DVSECs in the order of the chain; those of other vendors are skipped."""
    found = []
    for at, number in walk_extended(read):
        header = read(at + 4, 4)
        if number == DVSEC_ID and header & 0xFFFF == VENDOR_ID:
            found.append(FoundDvsec(read(at + 8, 2), header >> 16 & 0xF, header >> 20, at))
    return found


def locations(read: Read) -> list[Location]:
    """Returns the entries of the register locator; empty ones and unknown identifiers are
    skipped."""
    known = {int(block) for block in BlockId if block is not BlockId.EMPTY}
    listed = []
    for each in find(read):
        if each.number != 8:
            continue
        for at in range(each.offset + HEADER_BYTES, each.offset + each.length - 7, 8):
            low, high = read(at, 4), read(at + 4, 4)
            if low >> 8 & 0xFF in known:
                offset = high << 32 | low & 0xFFFF0000
                listed.append(Location(BlockId(low >> 8 & 0xFF), low & 7, offset))
    return listed
