# SPDX-License-Identifier: BSD-3-Clause
"""CXL.mem: channels, opcodes and other values of messages, by the CXL specification 3.1."""

from __future__ import annotations

from enum import IntEnum


class MemChannel(IntEnum):
    """3.3.2: the channels of CXL.mem."""

    M2S_REQ = 1
    M2S_RWD = 2
    M2S_BIRSP = 3
    S2M_BISNP = 4
    S2M_NDR = 5
    S2M_DRS = 6


CHANNELS: dict[int, str] = {
    MemChannel.M2S_REQ: "M2S Req",
    MemChannel.M2S_RWD: "M2S RwD",
    MemChannel.M2S_BIRSP: "M2S BIRsp",
    MemChannel.S2M_BISNP: "S2M BISnp",
    MemChannel.S2M_NDR: "S2M NDR",
    MemChannel.S2M_DRS: "S2M DRS",
}

# 3.3.5: M2S Req memory opcodes
REQ_OPCODES = {
    0: "MemInv",
    1: "MemRd",
    2: "MemRdData",
    3: "MemRdFwd",
    4: "MemWrFwd",
    5: "MemRdTEE",
    6: "MemRdDataTEE",
    8: "MemSpecRd",
    9: "MemInvNT",
    10: "MemClnEvct",
    12: "MemSpecRdTEE",
    13: "TEUpdate",
}
# 3.3.6: M2S RwD memory opcodes
RWD_OPCODES = {
    1: "MemWr",
    2: "MemWrPtl",
    4: "BIConflict",
    5: "MemRdFill",
    9: "MemWrTEE",
    10: "MemWrPtlTEE",
    13: "MemRdFillTEE",
}
PARTIAL_WRITES = (2, 10)
# 3.3.7 and 3.3.8
BIRSP_OPCODES = {
    0: "BIRspI",
    1: "BIRspS",
    2: "BIRspE",
    4: "BIRspIBlk",
    5: "BIRspSBlk",
    6: "BIRspEBlk",
}
BISNP_OPCODES = {
    0: "BISnpCur",
    1: "BISnpData",
    2: "BISnpInv",
    4: "BISnpCurBlk",
    5: "BISnpDataBlk",
    6: "BISnpInvBlk",
}
# 3.3.9 and 3.3.10
NDR_OPCODES = {0: "Cmp", 1: "Cmp-S", 2: "Cmp-E", 3: "Cmp-M", 4: "BI-ConflictAck", 5: "CmpTEE"}
DRS_OPCODES = {0: "MemData", 1: "MemData-NXM", 2: "MemDataTEE"}

# 3.3.5: meta field, meta value, snoop type
META_FIELDS = {0: "Meta0-State", 1: "Extended Meta-State", 3: "No-Op"}
META_EMS = 1
META_NO_OP = 3
META_VALUES = {0: "Invalid", 1: "Explicit No-Op", 2: "Any", 3: "Shared"}
SNOOPS = {0: "No-Op", 1: "SnpData", 2: "SnpCur", 3: "SnpInv"}
# 3.3.4: quality of service telemetry
LOADS = {0: "Light Load", 1: "Optimal Load", 2: "Moderate Overload", 3: "Severe Overload"}
