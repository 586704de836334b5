# SPDX-License-Identifier: BSD-3-Clause
"""Layouts of PCI Express transaction layer packets (TLPs), outside Flit mode.

Sections are those of the PCI Express Base Specification 6.0.
"""

from __future__ import annotations

from nupa.packet.tables.layout import Field, Layout, reserved

# 2.2.1.1, table 2-3.  Without and with data, and whether the address has 32 or 64 bits.
FMT = {0: "3 DW, no data", 1: "4 DW, no data", 2: "3 DW, data", 3: "4 DW, data", 4: "prefix"}

# 2.2.1.1, table 2-3: (fmt, type).  Msg has its routing in the lower 3 bits of the type.
TYPES = {
    (0, 0x00): "MRd32",
    (1, 0x00): "MRd64",
    (0, 0x01): "MRdLk32",
    (1, 0x01): "MRdLk64",
    (2, 0x00): "MWr32",
    (3, 0x00): "MWr64",
    (0, 0x02): "IORd",
    (2, 0x02): "IOWr",
    (0, 0x04): "CfgRd0",
    (2, 0x04): "CfgWr0",
    (0, 0x05): "CfgRd1",
    (2, 0x05): "CfgWr1",
    (2, 0x1B): "DMWr32",
    (3, 0x1B): "DMWr64",
    (0, 0x0A): "Cpl",
    (2, 0x0A): "CplD",
    (0, 0x0B): "CplLk",
    (2, 0x0B): "CplDLk",
    (2, 0x0C): "FetchAdd32",
    (3, 0x0C): "FetchAdd64",
    (2, 0x0D): "Swap32",
    (3, 0x0D): "Swap64",
    (2, 0x0E): "CAS32",
    (3, 0x0E): "CAS64",
    **{(1, 0x10 | routing): "Msg" for routing in range(8)},
    **{(3, 0x10 | routing): "MsgD" for routing in range(8)},
}

# 2.2.8, table 2-20
ROUTING = {
    0: "to root complex",
    1: "by address",
    2: "by ID",
    3: "broadcast from root complex",
    4: "local",
    5: "gathered to root complex",
}

# 2.2.9.1, table 2-39
STATUS = {
    0: "Successful Completion (SC)",
    1: "Unsupported Request (UR)",
    2: "Request Retry Status (RRS)",
    4: "Completer Abort (CA)",
}

# 2.2.8.1 to 2.2.8.10, and 10.2 (address translation services)
MESSAGES = {
    0x00: "Unlock",
    0x01: "Invalidate Request",
    0x02: "Invalidate Completion",
    0x04: "Page Request",
    0x05: "PRG Response",
    0x10: "LTR",
    0x12: "OBFF",
    0x14: "PM_Active_State_Nak",
    0x18: "PM_PME",
    0x19: "PME_Turn_Off",
    0x1B: "PME_TO_Ack",
    0x20: "Assert_INTA",
    0x21: "Assert_INTB",
    0x22: "Assert_INTC",
    0x23: "Assert_INTD",
    0x24: "Deassert_INTA",
    0x25: "Deassert_INTB",
    0x26: "Deassert_INTC",
    0x27: "Deassert_INTD",
    0x30: "ERR_COR",
    0x31: "ERR_NONFATAL",
    0x33: "ERR_FATAL",
    0x50: "Set_Slot_Power_Limit",
    0x52: "PTM Request",
    0x53: "PTM Response",
    0x7E: "Vendor_Defined Type 0",
    0x7F: "Vendor_Defined Type 1",
}

# 2.2.5.2, table 2-13 (TH = 1)
HINTS = {0: "bi-directional", 1: "requester", 2: "target", 3: "target with priority"}
# 2.2.6.5 and 10.2.3
ADDRESS_TYPES = {0: "untranslated", 1: "translation request", 2: "translated"}

# 2.2.1: the first DW of every TLP
TLP = Layout(
    "TLP",
    "nupa.tlp",
    "PCIe TLP",
    "PCIe 6.0, 2.2.1",
    Field("fmt", 3, "Fmt", FMT),
    Field("type", 5, "Type", hex=True),
    Field("t9", 1, "Tag, bit 9"),
    Field("tc", 3, "Traffic class"),
    Field("t8", 1, "Tag, bit 8"),
    Field("attr2", 1, "Attr[2], ID-based ordering"),
    Field("ln", 1, "Lightweight notification (before PCIe 6.0)"),
    Field("th", 1, "TLP hints"),
    Field("td", 1, "A digest (ECRC) ends the TLP"),
    Field("ep", 1, "Data is poisoned"),
    Field("attr", 2, "Attr[1:0], relaxed ordering and no snoop", hex=True),
    Field("at", 2, "Address type", ADDRESS_TYPES),
    Field("length", 10, "Length in DW; 0: 1024"),
)

_REQUESTER = Field("requester", 16, "Requester ID", hex=True, abbrev="nupa.tlp.requester")
_TAG = Field("tag", 8, "Tag, bits 7:0", abbrev="nupa.tlp.tag")
_ENABLES = (
    Field("last_be", 4, "Last DW byte enables", hex=True),
    Field("first_be", 4, "First DW byte enables", hex=True),
)
_HINT = Field("ph", 2, "Processing hint (TH)", HINTS)

# 2.2.7: memory requests, and atomics, whose byte enables are reserved
MEM32 = Layout(
    "Mem32",
    "nupa.tlp.mem",
    "Memory request, 32-bit address",
    "PCIe 6.0, 2.2.7",
    _REQUESTER,
    _TAG,
    *_ENABLES,
    Field("address", 30, "Address", hex=True, shift=2),
    _HINT,
)
MEM64 = Layout(
    "Mem64",
    "nupa.tlp.mem",
    "Memory request, 64-bit address",
    "PCIe 6.0, 2.2.7",
    _REQUESTER,
    _TAG,
    *_ENABLES,
    Field("address", 62, "Address", hex=True, shift=2),
    _HINT,
)

# 2.2.9
COMPLETION = Layout(
    "Cpl",
    "nupa.tlp.cpl",
    "Completion",
    "PCIe 6.0, 2.2.9",
    Field("completer", 16, "Completer ID", hex=True),
    Field("status", 3, "Status", STATUS),
    Field("bcm", 1, "Byte count modified (PCI-X bridges only)"),
    Field("byte_count", 12, "Remaining bytes, with these; 0: 4096"),
    _REQUESTER,
    _TAG,
    reserved("reserved", 1),
    Field("lower_address", 7, "Lower address of the first byte", hex=True),
)

# 2.2.8: bytes 8 to 15 belong to the message; by ID and vendor-defined messages have these
MESSAGE = Layout(
    "Msg",
    "nupa.tlp.msg",
    "Message",
    "PCIe 6.0, 2.2.8",
    _REQUESTER,
    _TAG,
    Field("code", 8, "Message code", MESSAGES, hex=True),
    Field("target", 16, "Target ID (routed by ID)", hex=True),
    Field("vendor", 16, "Vendor ID (vendor-defined)", hex=True),
    Field("specific", 32, "Specific to the message", hex=True),
)

LAYOUTS = (TLP, MEM32, MEM64, COMPLETION, MESSAGE)
