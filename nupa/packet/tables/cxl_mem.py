# SPDX-License-Identifier: BSD-3-Clause
"""Layouts of CXL.mem messages.  Sections are those of the CXL specification 3.1.

Each message has all fields of its 68B, 256B and PBR flits.  Their order and their places on whole
bytes are NUPA's: flits are not packed here.
"""

from __future__ import annotations

from nupa.cxl.link.mem_tables import BIRSP_OPCODES as BIRSP_OPCODES
from nupa.cxl.link.mem_tables import BISNP_OPCODES as BISNP_OPCODES
from nupa.cxl.link.mem_tables import CHANNELS as CHANNELS
from nupa.cxl.link.mem_tables import DRS_OPCODES as DRS_OPCODES
from nupa.cxl.link.mem_tables import LOADS as LOADS
from nupa.cxl.link.mem_tables import META_EMS as META_EMS
from nupa.cxl.link.mem_tables import META_FIELDS as META_FIELDS
from nupa.cxl.link.mem_tables import META_NO_OP as META_NO_OP
from nupa.cxl.link.mem_tables import META_VALUES as META_VALUES
from nupa.cxl.link.mem_tables import NDR_OPCODES as NDR_OPCODES
from nupa.cxl.link.mem_tables import PARTIAL_WRITES as PARTIAL_WRITES
from nupa.cxl.link.mem_tables import REQ_OPCODES as REQ_OPCODES
from nupa.cxl.link.mem_tables import RWD_OPCODES as RWD_OPCODES
from nupa.cxl.link.mem_tables import SNOOPS as SNOOPS
from nupa.cxl.link.mem_tables import MemChannel as MemChannel
from nupa.packet.tables.layout import Field, Layout, reserved

LINE_BYTES = 64  # CXL 3.1, 3.3: the unit of a CXL.mem access
FLITS = {0: "68B", 1: "256B", 2: "PBR"}

CXL_MEM = Layout(
    "CxlMem",
    "nupa.cxl",
    "CXL.mem",
    "CXL 3.1, 3.3.2",
    Field("channel", 8, "Channel", CHANNELS, default=MemChannel.M2S_REQ),
    Field("flit", 8, "Kind of flit that it belongs to", FLITS, default=1),
)


def _opcode(names: dict[int, str], last: Field) -> tuple[Field, ...]:
    """Returns the first byte of a message.  NDR and DRS opcodes have 3 bits on a link, here 4."""
    return (
        Field("valid", 1, "Valid", default=1, abbrev="nupa.cxl.valid"),
        Field("opcode", 4, "Opcode", names),
        last,
    )


_SNOOP = Field("snp_type", 3, "Snoop type", SNOOPS, abbrev="nupa.cxl.snp_type")
_META = (
    Field(
        "meta_field", 2, "Meta field", META_FIELDS, default=META_NO_OP, abbrev="nupa.cxl.meta_field"
    ),
    Field("meta_value", 2, "Meta value", META_VALUES, abbrev="nupa.cxl.meta_value"),
)
_TC = Field("tc", 2, "Traffic class", abbrev="nupa.cxl.tc")
_LOAD = Field("dev_load", 2, "Device load", LOADS, abbrev="nupa.cxl.dev_load")
_POISON = Field("poison", 1, "Data is poisoned", abbrev="nupa.cxl.media.poison")
_TRAILER = Field("trp", 1, "A trailer follows the data", abbrev="nupa.cxl.trp")
_TAG = Field("tag", 16, "Tag", hex=True, abbrev="nupa.cxl.tag")
_LD_ID = Field("ld_id", 4, "Logical device (68B, 256B)", abbrev="nupa.cxl.ld_id")
_SPID = Field("spid", 12, "Source PBR ID (PBR)", hex=True, abbrev="nupa.cxl.spid")
_DPID = Field("dpid", 12, "Destination PBR ID (PBR)", hex=True, abbrev="nupa.cxl.dpid")
_CKID = Field("ckid", 13, "Context key ID (256B, PBR)", hex=True, abbrev="nupa.cxl.ckid")
_ADDRESS = Field(
    "address", 64, "Address; bits 51:6, in 68B Req also 5", hex=True, abbrev="nupa.cxl.address"
)
_BI_ID = Field("bi_id", 12, "BI-ID of the device (68B, 256B)", hex=True, abbrev="nupa.cxl.bi_id")
_BI_TAG = Field("bi_tag", 12, "BI tag", hex=True, abbrev="nupa.cxl.bi_tag")
_TARGET = (
    _TAG,
    _LD_ID,
    _SPID,
    _DPID,
    reserved("reserved2", 4),
    _CKID,
    reserved("reserved3", 3),
    _ADDRESS,
)

M2S_REQ = Layout(
    "M2SReq",
    "nupa.cxl.req",
    "M2S Req",
    "CXL 3.1, 3.3.5",
    *_opcode(REQ_OPCODES, _SNOOP),
    *_META,
    _TC,
    reserved("reserved1", 2),
    *_TARGET,
)
M2S_RWD = Layout(
    "M2SRwD",
    "nupa.cxl.rwd",
    "M2S RwD",
    "CXL 3.1, 3.3.6",
    *_opcode(RWD_OPCODES, _SNOOP),
    *_META,
    _TC,
    _POISON,
    _TRAILER,
    *_TARGET,
)
M2S_BIRSP = Layout(
    "M2SBIRsp",
    "nupa.cxl.birsp",
    "M2S BIRsp",
    "CXL 3.1, 3.3.7",
    *_opcode(BIRSP_OPCODES, reserved("reserved1", 3)),
    Field("low_addr", 2, "Address[7:6], of a Blk response's line"),
    reserved("reserved2", 6),
    _BI_ID,
    reserved("reserved3", 4),
    _BI_TAG,
    reserved("reserved4", 4),
    _DPID,
    reserved("reserved5", 4),
)
S2M_BISNP = Layout(
    "S2MBISnp",
    "nupa.cxl.bisnp",
    "S2M BISnp",
    "CXL 3.1, 3.3.8",
    *_opcode(BISNP_OPCODES, reserved("reserved1", 3)),
    reserved("reserved2", 8),
    _BI_ID,
    reserved("reserved3", 4),
    _BI_TAG,
    reserved("reserved4", 4),
    _SPID,
    reserved("reserved5", 4),
    _DPID,
    reserved("reserved6", 4),
    _ADDRESS,
)
S2M_NDR = Layout(
    "S2MNDR",
    "nupa.cxl.ndr",
    "S2M NDR",
    "CXL 3.1, 3.3.9",
    *_opcode(NDR_OPCODES, reserved("reserved1", 3)),
    *_META,
    _LOAD,
    reserved("reserved2", 2),
    _TAG,
    _LD_ID,
    _DPID,
)
S2M_DRS = Layout(
    "S2MDRS",
    "nupa.cxl.drs",
    "S2M DRS",
    "CXL 3.1, 3.3.10",
    *_opcode(DRS_OPCODES, reserved("reserved1", 3)),
    *_META,
    _LOAD,
    _POISON,
    _TRAILER,
    _TAG,
    _LD_ID,
    _DPID,
)

MESSAGES = {
    MemChannel.M2S_REQ: M2S_REQ,
    MemChannel.M2S_RWD: M2S_RWD,
    MemChannel.M2S_BIRSP: M2S_BIRSP,
    MemChannel.S2M_BISNP: S2M_BISNP,
    MemChannel.S2M_NDR: S2M_NDR,
    MemChannel.S2M_DRS: S2M_DRS,
}
OPCODES: dict[MemChannel, dict[int, str]] = {
    MemChannel.M2S_REQ: REQ_OPCODES,
    MemChannel.M2S_RWD: RWD_OPCODES,
    MemChannel.M2S_BIRSP: BIRSP_OPCODES,
    MemChannel.S2M_BISNP: BISNP_OPCODES,
    MemChannel.S2M_NDR: NDR_OPCODES,
    MemChannel.S2M_DRS: DRS_OPCODES,
}
LAYOUTS = (CXL_MEM, *MESSAGES.values())
