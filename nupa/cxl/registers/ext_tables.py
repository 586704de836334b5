# SPDX-License-Identifier: BSD-3-Clause
"""Extended capabilities: serial number, advanced error reporting, access control, DOE, as rows.

Sections are those of the PCI Express Base Specification 6.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from nupa.cxl.registers.block import (
    HWINIT,
    RO,
    ROS,
    RW,
    RW1C,
    RW1CS,
    RWS,
    WO,
    BitField,
    once,
    rows_once,
)
from nupa.cxl.registers.pci_tables import bits

AER_ID, AER_BYTES = 0x0001, 0x48
DSN_ID, DSN_BYTES = 0x0003, 0x0C
ACS_ID, ACS_BYTES = 0x000D, 0x08
DVSEC_ID = 0x0023
DOE_ID, DOE_BYTES = 0x002E, 0x18


@once
def extended(number: int, version: int, section: str) -> tuple[BitField, ...]:
    """Returns the header of an extended capability (7.6.3); ConfigSpace sets *next*."""
    return (
        BitField("capability_id", 0x00, "15:0", RO, number, section),
        BitField("version", 0x00, "19:16", RO, version, section),
        BitField("next", 0x00, "31:20", HWINIT, 0, section),
    )


def dsn(serial: int) -> tuple[BitField, ...]:
    """Returns the rows of the serial number (7.9.3): 64 bits, an EUI-64."""
    return (
        *extended(DSN_ID, 1, "7.9.3.1"),
        BitField("serial", 0x04, "63:0", RO, serial, "7.9.3.2"),
    )


_UNCORRECTABLE = {
    4: "data_link_protocol",
    5: "surprise_down",
    12: "poisoned_tlp",
    13: "flow_control_protocol",
    14: "completion_timeout",
    15: "completer_abort",
    16: "unexpected_completion",
    17: "receiver_overflow",
    18: "malformed_tlp",
    19: "ecrc",
    20: "unsupported_request",
    21: "acs_violation",
    22: "internal",
    24: "atomic_blocked",
    25: "tlp_prefix_blocked",
    26: "poisoned_tlp_blocked",
}
_MASKED = 1 << 22 | 1 << 26  # 7.8.4.3
_FATAL = 1 << 4 | 1 << 5 | 1 << 13 | 1 << 17 | 1 << 18 | 1 << 22  # 7.8.4.4
_CORRECTABLE = {
    0: "receiver",
    6: "bad_tlp",
    7: "bad_dllp",
    8: "replay_rollover",
    12: "replay_timeout",
    13: "advisory_non_fatal",
    14: "internal",
    15: "header_log_overflow",
}
_CORRECTABLE_MASKED = 1 << 13 | 1 << 14 | 1 << 15  # 7.8.4.6


@rows_once
def aer(*, root: bool = False) -> Iterator[BitField]:
    """Yields the rows of AER (7.8.4); root ports have the root error registers."""
    yield from extended(AER_ID, 2, "7.8.4.1")
    for bit, name in _UNCORRECTABLE.items():
        masked, fatal = _MASKED >> bit & 1, _FATAL >> bit & 1
        yield BitField(f"uncorrectable_status.{name}", 0x04, str(bit), RW1CS, 0, "7.8.4.2")
        yield BitField(f"uncorrectable_mask.{name}", 0x08, str(bit), RWS, masked, "7.8.4.3")
        yield BitField(f"uncorrectable_severity.{name}", 0x0C, str(bit), RWS, fatal, "7.8.4.4")
    for bit, name in _CORRECTABLE.items():
        masked = _CORRECTABLE_MASKED >> bit & 1
        yield BitField(f"correctable_status.{name}", 0x10, str(bit), RW1CS, 0, "7.8.4.5")
        yield BitField(f"correctable_mask.{name}", 0x14, str(bit), RWS, masked, "7.8.4.6")
    yield BitField("control.first_error", 0x18, "4:0", ROS, 0, "7.8.4.7")
    yield BitField("control.ecrc_generation_capable", 0x18, "5", RO, 1, "7.8.4.7")
    yield BitField("control.ecrc_generation", 0x18, "6", RWS, 0, "7.8.4.7")
    yield BitField("control.ecrc_check_capable", 0x18, "7", RO, 1, "7.8.4.7")
    yield BitField("control.ecrc_check", 0x18, "8", RWS, 0, "7.8.4.7")
    yield BitField("header_log", 0x1C, "127:0", ROS, 0, "7.8.4.8")
    yield BitField("prefix_log", 0x38, "127:0", ROS, 0, "7.8.4.12")
    if root:
        yield from bits("root_command", 0x2C, RW, "7.8.4.9", ("correctable", "non_fatal", "fatal"))
        names = (
            "correctable",
            "several_correctable",
            "uncorrectable",
            "several_uncorrectable",
            "first_fatal",
            "non_fatal",
            "fatal",
        )
        yield from bits("root_status", 0x30, RW1CS, "7.8.4.10", names)
        yield BitField("root_status.message", 0x30, "31:27", RO, 0, "7.8.4.10")
        yield BitField("source.correctable", 0x34, "15:0", ROS, 0, "7.8.4.11")
        yield BitField("source.uncorrectable", 0x34, "31:16", ROS, 0, "7.8.4.11")


_ACS = (
    "source_validation",
    "translation_blocking",
    "request_redirect",
    "completion_redirect",
    "upstream_forwarding",
    "",
    "direct_translated",
)


@rows_once
def acs() -> Iterator[BitField]:
    """Yields the rows of ACS of a downstream or root port (7.7.11): all but egress control."""
    yield from extended(ACS_ID, 1, "7.7.11.1")
    yield from bits("capability", 0x04, RO, "7.7.11.2", _ACS, reset=0x5F)
    yield from bits("control", 0x06, RW, "7.7.11.3", _ACS)


@once
def doe() -> tuple[BitField, ...]:
    """Returns the registers of a DOE mailbox (7.9.24); handlers implement it (6.30)."""
    return (
        *extended(DOE_ID, 1, "7.9.24.1"),
        BitField("capability.interrupt_supported", 0x04, "0", RO, 0, "7.9.24.2"),
        BitField("capability.interrupt_message", 0x04, "11:1", RO, 0, "7.9.24.2"),
        BitField("control.abort", 0x08, "0", WO, 0, "7.9.24.3"),
        BitField("control.interrupt_enable", 0x08, "1", RW, 0, "7.9.24.3"),
        BitField("control.go", 0x08, "31", WO, 0, "7.9.24.3"),
        BitField("status.busy", 0x0C, "0", RO, 0, "7.9.24.4"),
        BitField("status.interrupt", 0x0C, "1", RW1C, 0, "7.9.24.4"),
        BitField("status.error", 0x0C, "2", RO, 0, "7.9.24.4"),
        BitField("status.object_ready", 0x0C, "31", RO, 0, "7.9.24.4"),
        BitField("write_mailbox", 0x10, "31:0", WO, 0, "7.9.24.5"),
        # A write of any value requests the next DW (6.30.2).
        BitField("read_mailbox", 0x14, "31:0", RO, 0, "7.9.24.6"),
    )
