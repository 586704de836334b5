# SPDX-License-Identifier: BSD-3-Clause
"""The PCI Express capability (device, link, slot, root) and MSI-X, as rows.

Sections are those of the PCI Express Base Specification 6.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from nupa.cxl.registers.block import HWINIT, RO, RW, RW1C, RWS, WO, BitField, rows_once
from nupa.cxl.registers.pci_tables import bits

PCIE_ID, PCIE_BYTES = 0x10, 0x3C
MSIX_ID, MSIX_BYTES = 0x11, 0x0C


class PortType(IntEnum):
    """Device/Port Type (7.5.3.2)."""

    ENDPOINT = 0
    ROOT = 4
    UPSTREAM = 5
    DOWNSTREAM = 6

    @property
    def has_slot(self) -> bool:
        return self in (PortType.ROOT, PortType.DOWNSTREAM)


class PcieLink(NamedTuple):
    """A link; *speed* counts from 1, 2.5 GT/s, to 6, 64 GT/s (7.5.3.6); *width* is in lanes."""

    speed: int = 6
    width: int = 16


def capability(number: int, section: str) -> tuple[BitField, ...]:
    """Returns the header of a capability (7.5.3.1); ConfigSpace sets *next*."""
    return (
        BitField("capability_id", 0x00, "7:0", RO, number, section),
        BitField("next", 0x01, "7:0", HWINIT, 0, section),
    )


def pcie(
    port_type: PortType, *, port: int = 0, slot: int = 0, link: PcieLink | None = None
) -> Iterator[BitField]:
    """Yields the rows of the PCI Express capability (7.5.3), version 2.  Ports with a slot, number
    *slot*, have slot registers; others reserve them."""
    yield from capability(PCIE_ID, "7.5.3.1")
    yield BitField("capabilities.version", 0x02, "3:0", RO, 2, "7.5.3.2")
    yield BitField("capabilities.port_type", 0x02, "7:4", RO, port_type, "7.5.3.2")
    yield BitField(
        "capabilities.slot_implemented", 0x02, "8", HWINIT, port_type.has_slot, "7.5.3.2"
    )
    yield BitField("capabilities.interrupt_message", 0x02, "13:9", RO, 0, "7.5.3.2")
    yield from _device(port_type)
    yield from _link(port_type, port, link or PcieLink())
    if port_type.has_slot:
        yield from _slot(slot)
    if port_type is PortType.ROOT:
        yield from _root()


@rows_once
def _device(port_type: PortType) -> Iterator[BitField]:
    endpoint = port_type is PortType.ENDPOINT
    yield BitField("device.max_payload_supported", 0x04, "2:0", RO, 1, "7.5.3.3")
    yield BitField("device.extended_tag_supported", 0x04, "5", RO, 1, "7.5.3.3")
    yield BitField("device.role_based_errors", 0x04, "15", RO, 1, "7.5.3.3")
    yield BitField("device.function_level_reset", 0x04, "28", RO, int(endpoint), "7.5.3.3")
    errors = ("correctable", "non_fatal", "fatal", "unsupported_request")
    reporting = [f"{name}_reporting" for name in errors]
    yield from bits("device_control", 0x08, RW, "7.5.3.4", reporting)
    yield BitField("device_control.relaxed_ordering", 0x08, "4", RW, 1, "7.5.3.4")
    yield BitField("device_control.max_payload", 0x08, "7:5", RW, 0, "7.5.3.4")
    yield BitField("device_control.extended_tag", 0x08, "8", RW, 1, "7.5.3.4")
    yield BitField("device_control.no_snoop", 0x08, "11", RW, 1, "7.5.3.4")
    yield BitField("device_control.max_read_request", 0x08, "14:12", RW, 2, "7.5.3.4")
    if endpoint:
        yield BitField("device_control.initiate_reset", 0x08, "15", WO, 0, "7.5.3.4")
    yield from bits("device_status", 0x0A, RW1C, "7.5.3.5", [f"{name}_error" for name in errors])
    yield BitField("device_status.transactions_pending", 0x0A, "5", RO, 0, "7.5.3.5")
    yield BitField(
        "device_2.ari_forwarding_supported", 0x24, "5", RO, port_type.has_slot, "7.5.3.15"
    )
    yield BitField("device_2.extended_fmt", 0x24, "20", RO, 1, "7.5.3.15")
    yield BitField("device_control_2.completion_timeout", 0x28, "3:0", RW, 0, "7.5.3.16")
    yield BitField("device_control_2.completion_timeout_disable", 0x28, "4", RW, 0, "7.5.3.16")
    if port_type.has_slot:
        yield BitField("device_control_2.ari_forwarding", 0x28, "5", RW, 0, "7.5.3.16")


@rows_once
def _link(port_type: PortType, port: int, link: PcieLink) -> Iterator[BitField]:
    reports = int(port_type.has_slot)
    yield BitField("link.max_speed", 0x0C, "3:0", RO, link.speed, "7.5.3.6")
    yield BitField("link.max_width", 0x0C, "9:4", RO, link.width, "7.5.3.6")
    yield BitField("link.surprise_down_reporting", 0x0C, "19", RO, reports, "7.5.3.6")
    yield BitField("link.active_reporting", 0x0C, "20", RO, reports, "7.5.3.6")
    yield BitField("link.bandwidth_notification", 0x0C, "21", RO, reports, "7.5.3.6")
    yield BitField("link.aspm_optionality", 0x0C, "22", HWINIT, 1, "7.5.3.6")
    yield BitField("link.port", 0x0C, "31:24", HWINIT, port, "7.5.3.6")
    yield BitField("link_control.aspm", 0x10, "1:0", RW, 0, "7.5.3.7")
    if port_type.has_slot:
        yield BitField("link_control.disable", 0x10, "4", RW, 0, "7.5.3.7")
        yield BitField("link_control.retrain", 0x10, "5", WO, 0, "7.5.3.7")
        yield BitField("link_control.bandwidth_interrupt", 0x10, "10", RW, 0, "7.5.3.7")
        yield BitField("link_control.autonomous_interrupt", 0x10, "11", RW, 0, "7.5.3.7")
    yield BitField("link_control.common_clock", 0x10, "6", RW, 0, "7.5.3.7")
    yield BitField("link_control.extended_synch", 0x10, "7", RW, 0, "7.5.3.7")
    yield BitField("link_status.speed", 0x12, "3:0", RO, link.speed, "7.5.3.8")
    yield BitField("link_status.width", 0x12, "9:4", RO, link.width, "7.5.3.8")
    if port_type.has_slot:
        yield BitField("link_status.training", 0x12, "11", RO, 0, "7.5.3.8")
        yield BitField("link_status.active", 0x12, "13", RO, 0, "7.5.3.8")
        yield BitField("link_status.bandwidth_management", 0x12, "14", RW1C, 0, "7.5.3.8")
        yield BitField("link_status.autonomous_bandwidth", 0x12, "15", RW1C, 0, "7.5.3.8")
    yield BitField("link_2.speeds", 0x2C, "7:1", RO, (1 << link.speed) - 1, "7.5.3.18")
    yield BitField("link_control_2.target_speed", 0x30, "3:0", RWS, link.speed, "7.5.3.19")


#: A slot with hot plug (6.7).  Hot-Plug Surprise is 0 (CXL 3.1 9.9): surprise removal is an error
#: of the link, which isolation handles (CXL 3.1 12.3).
_SLOT = (
    BitField("slot.attention_button", 0x14, "0", HWINIT, 1, "7.5.3.9"),
    BitField("slot.power_controller", 0x14, "1", HWINIT, 1, "7.5.3.9"),
    BitField("slot.mrl_sensor", 0x14, "2", HWINIT, 0, "7.5.3.9"),
    BitField("slot.attention_indicator", 0x14, "3", HWINIT, 1, "7.5.3.9"),
    BitField("slot.power_indicator", 0x14, "4", HWINIT, 1, "7.5.3.9"),
    BitField("slot.hot_plug_surprise", 0x14, "5", HWINIT, 0, "7.5.3.9"),
    BitField("slot.hot_plug_capable", 0x14, "6", HWINIT, 1, "7.5.3.9"),
    BitField("slot.power_limit", 0x14, "14:7", HWINIT, 0, "7.5.3.9"),
    BitField("slot.power_scale", 0x14, "16:15", HWINIT, 0, "7.5.3.9"),
    BitField("slot.interlock", 0x14, "17", HWINIT, 0, "7.5.3.9"),
    BitField("slot.no_command_completed", 0x14, "18", HWINIT, 0, "7.5.3.9"),
    BitField("slot_control.attention_indicator", 0x18, "7:6", RW, 3, "7.5.3.10"),
    BitField("slot_control.power_indicator", 0x18, "9:8", RW, 3, "7.5.3.10"),
    BitField("slot_control.power_off", 0x18, "10", RW, 0, "7.5.3.10"),
    BitField("slot_control.link_state_enable", 0x18, "12", RW, 0, "7.5.3.10"),
    BitField("slot_status.presence", 0x1A, "6", RO, 0, "7.5.3.11"),
    BitField("slot_status.link_state_changed", 0x1A, "8", RW1C, 0, "7.5.3.11"),
)
_SLOT_EVENTS = (
    "attention_button",
    "power_fault",
    "mrl_changed",
    "presence_changed",
    "command_completed",
)


@rows_once
def _slot(slot: int) -> Iterator[BitField]:
    yield from _SLOT
    yield BitField("slot.number", 0x14, "31:19", HWINIT, slot, "7.5.3.9")
    enables = [f"{name}_enable" for name in _SLOT_EVENTS] + ["interrupt_enable"]
    yield from bits("slot_control", 0x18, RW, "7.5.3.10", enables)
    yield from bits("slot_status", 0x1A, RW1C, "7.5.3.11", _SLOT_EVENTS)


def _root() -> Iterator[BitField]:
    names = ("correctable_serr", "non_fatal_serr", "fatal_serr", "pme_interrupt", "rrs_visible")
    yield from bits("root_control", 0x1C, RW, "7.5.3.12", names)
    yield BitField("root.rrs_visibility", 0x1E, "0", RO, 1, "7.5.3.13")
    yield BitField("root_status.pme_requester", 0x20, "15:0", RO, 0, "7.5.3.14")
    yield BitField("root_status.pme", 0x20, "16", RW1C, 0, "7.5.3.14")
    yield BitField("root_status.pme_pending", 0x20, "17", RO, 0, "7.5.3.14")


def msix(vectors: int, bar: int, table_at: int, pending_at: int) -> tuple[BitField, ...]:
    """Returns the rows of MSI-X (7.7.2) with *vectors*; table and pending bits lie in BAR *bar*, at
    multiples of 8."""
    return (
        *capability(MSIX_ID, "7.7.2.1"),
        BitField("control.table_size", 0x02, "10:0", RO, vectors - 1, "7.7.2.2"),
        BitField("control.function_mask", 0x02, "14", RW, 0, "7.7.2.2"),
        BitField("control.enable", 0x02, "15", RW, 0, "7.7.2.2"),
        BitField("table.bir", 0x04, "2:0", RO, bar, "7.7.2.3"),
        BitField("table.offset", 0x04, "31:3", RO, table_at >> 3, "7.7.2.3"),
        BitField("pending.bir", 0x08, "2:0", RO, bar, "7.7.2.4"),
        BitField("pending.offset", 0x08, "31:3", RO, pending_at >> 3, "7.7.2.4"),
    )


def msix_table(vectors: int) -> Iterator[BitField]:
    """Yields the rows of the MSI-X table in the BAR (7.7.2.5 to 7.7.2.8): entries of 16 bytes."""
    for i in range(vectors):
        yield BitField(f"vector{i}.address", 16 * i, "63:2", RW, 0, "7.7.2.5")
        yield BitField(f"vector{i}.data", 16 * i + 8, "31:0", RW, 0, "7.7.2.7")
        yield BitField(f"vector{i}.mask", 16 * i + 12, "0", RW, 1, "7.7.2.8")


def msix_pending(vectors: int) -> Iterator[BitField]:
    """Yields the rows of the pending bits (7.7.2.9): a bit for each vector."""
    for i in range(vectors):
        yield BitField(f"vector{i}", 0, str(i), RO, 0, "7.7.2.9")
