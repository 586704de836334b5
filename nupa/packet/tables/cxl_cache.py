# SPDX-License-Identifier: BSD-3-Clause
"""CXL.cache messages, as tables.  Sections are those of the CXL specification 3.1.  No scapy.

The fields are the specification's, each message with all that its 68B, 256B and PBR flits have; in
which order they lie is ours.  The header has the states of both caches, which no message has.
"""

from __future__ import annotations

from enum import IntEnum

from nupa.cxl.cache.tables import CacheChannel as CacheChannel
from nupa.cxl.cache.tables import D2HReqOpcode, D2HRspOpcode, Grant, H2DReqOpcode, H2DRspOpcode
from nupa.packet.tables.cxl_mem import FLITS
from nupa.packet.tables.layout import Field, Layout, reserved

CHANNELS: dict[int, str] = {
    CacheChannel.D2H_REQ: "D2H Req",
    CacheChannel.D2H_RSP: "D2H Rsp",
    CacheChannel.D2H_DATA: "D2H Data",
    CacheChannel.H2D_REQ: "H2D Req",
    CacheChannel.H2D_RSP: "H2D Rsp",
    CacheChannel.H2D_DATA: "H2D Data",
}
DATA_CHANNELS = (CacheChannel.D2H_DATA, CacheChannel.H2D_DATA)


def _names(opcodes: type[IntEnum]) -> dict[int, str]:
    return {int(opcode): opcode.name for opcode in opcodes}


D2H_REQ_OPCODES = _names(D2HReqOpcode)
D2H_RSP_OPCODES = _names(D2HRspOpcode)
H2D_REQ_OPCODES = _names(H2DReqOpcode)
H2D_RSP_OPCODES = _names(H2DRspOpcode)
OPCODES: dict[int, dict[int, str]] = {
    CacheChannel.D2H_REQ: D2H_REQ_OPCODES,
    CacheChannel.D2H_RSP: D2H_RSP_OPCODES,
    CacheChannel.D2H_DATA: {},
    CacheChannel.H2D_REQ: H2D_REQ_OPCODES,
    CacheChannel.H2D_RSP: H2D_RSP_OPCODES,
    CacheChannel.H2D_DATA: {},
}
# 3.2.3.5: RspData of a GO is the state that is granted; RSP_PRE is the place where the line was
GRANTS = {
    int(Grant.S): "Shared",
    int(Grant.E): "Exclusive",
    int(Grant.I): "Invalid",
    int(Grant.ERR): "Error",
    int(Grant.M): "Modified",
}
RSP_PRES = {0: "miss, local memory", 1: "hit", 2: "miss, remote memory"}

LINES = {1: "message", 2: "head"}
ROLES = {1: "writer", 2: "reader"}
STATES = {0: "I", 1: "S", 2: "E", 3: "M"}

CXL_CACHE = Layout(
    "CxlCache",
    "nupa.cache",
    "CXL.cache",
    "CXL 3.1, 3.2.3",
    Field("channel", 8, "Channel", CHANNELS, default=CacheChannel.D2H_REQ),
    Field("flit", 8, "Kind of flit that it belongs to", FLITS, default=1),
    Field("line", 8, "Use of the line in its ring", LINES, default=1),
    Field("role", 8, "Access of the host at this port to the line", ROLES, default=1),
    Field("before", 4, "State of this host's cache before", STATES),
    Field("after", 4, "State of this host's cache after", STATES),
    Field("peer_before", 4, "State of the other cache before", STATES),
    Field("peer_after", 4, "State of the other cache after", STATES),
    Field("peer", 16, "Host that the other cache belongs to, by its index"),
    Field("at", 64, "The line, by its place in the segment", hex=True),
)

_VALID = Field("valid", 1, "Valid", default=1, abbrev="nupa.cache.valid")
_CQID = Field("cqid", 12, "Command queue ID, of the requester", hex=True, abbrev="nupa.cache.cqid")
_UQID = Field("uqid", 12, "Unique queue ID, of a snoop", hex=True, abbrev="nupa.cache.uqid")
_CACHE_ID = Field("cache_id", 4, "Cache ID (256B)", abbrev="nupa.cache.cache_id")
_SPID = Field("spid", 12, "Source PBR ID (PBR)", hex=True, abbrev="nupa.cache.spid")
_DPID = Field("dpid", 12, "Destination PBR ID (PBR)", hex=True, abbrev="nupa.cache.dpid")
_ADDRESS = Field("address", 64, "Address; bits 51:6", hex=True, abbrev="nupa.cache.address")
_CHUNK = Field("chunk_valid", 1, "Upper half of the line (68B)", abbrev="nupa.cache.chunk_valid")
_POISON = Field("poison", 1, "Data is poisoned", abbrev="nupa.cache.poison")

D2H_REQ = Layout(
    "D2HReq",
    "nupa.cache.req",
    "D2H Req",
    "CXL 3.1, 3.2.3.1",
    _VALID,
    Field("opcode", 5, "Opcode", D2H_REQ_OPCODES),
    Field("nt", 1, "Non-temporal"),
    reserved("reserved1", 1),
    _CQID,
    _CACHE_ID,
    _SPID,
    _DPID,
    _ADDRESS,
)
D2H_RSP = Layout(
    "D2HRsp",
    "nupa.cache.rsp",
    "D2H Rsp",
    "CXL 3.1, 3.2.3.2",
    _VALID,
    Field("opcode", 5, "Opcode", D2H_RSP_OPCODES),
    reserved("reserved1", 2),
    _UQID,
    _DPID,
)
D2H_DATA = Layout(
    "D2HData",
    "nupa.cache.data",
    "D2H Data",
    "CXL 3.1, 3.2.3.3",
    _VALID,
    _CHUNK,
    Field("bogus", 1, "Data is bogus: the line was lost to a snoop"),
    _POISON,
    Field("bep", 1, "Byte enables are present (256B, PBR)"),
    reserved("reserved1", 3),
    _UQID,
    _DPID,
)
H2D_REQ = Layout(
    "H2DReq",
    "nupa.cache.snp",
    "H2D Req",
    "CXL 3.1, 3.2.3.4",
    _VALID,
    Field("opcode", 3, "Opcode", H2D_REQ_OPCODES),
    reserved("reserved1", 4),
    _UQID,
    _CACHE_ID,
    _SPID,
    _DPID,
    _ADDRESS,
)
H2D_RSP = Layout(
    "H2DRsp",
    "nupa.cache.go",
    "H2D Rsp",
    "CXL 3.1, 3.2.3.5",
    _VALID,
    Field("opcode", 4, "Opcode", H2D_RSP_OPCODES),
    Field("rsp_pre", 2, "Where the line was found", RSP_PRES),
    reserved("reserved1", 1),
    Field("rsp_data", 12, "GO: the state that is granted; WritePull: UQID", GRANTS),
    _CACHE_ID,
    _CQID,
    _DPID,
)
H2D_DATA = Layout(
    "H2DData",
    "nupa.cache.fill",
    "H2D Data",
    "CXL 3.1, 3.2.3.6",
    _VALID,
    _CHUNK,
    _POISON,
    Field("go_err", 1, "The access failed: the data is all ones"),
    _CACHE_ID,
    _CQID,
    _DPID,
)

MESSAGES = {
    CacheChannel.D2H_REQ: D2H_REQ,
    CacheChannel.D2H_RSP: D2H_RSP,
    CacheChannel.D2H_DATA: D2H_DATA,
    CacheChannel.H2D_REQ: H2D_REQ,
    CacheChannel.H2D_RSP: H2D_RSP,
    CacheChannel.H2D_DATA: H2D_DATA,
}
LAYOUTS = (CXL_CACHE, *MESSAGES.values())


def name_of(channel: int, opcode: int) -> str:
    """Returns the name of a message: an opcode, or `D2H Data`.

    >>> name_of(1, 2), name_of(6, 0), name_of(1, 31)
    ('RdOwn', 'H2D Data', 'D2H Req 0x1f')
    """
    head = CHANNELS.get(channel, f"channel {channel}")
    known = OPCODES.get(channel)
    if known == {}:
        return head
    return (known or {}).get(opcode, f"{head} {opcode:#04x}")
