# SPDX-License-Identifier: BSD-3-Clause
"""CXL.cache: channels and opcodes of messages, and the states that a GO grants.

The protocol's rules (nupa/cxl/cache/states.py) and the packets of captures (nupa.packet) derive
from these tables.  Sections are those of CXL 3.1.
"""

from __future__ import annotations

from enum import IntEnum


class CacheChannel(IntEnum):
    """3.2.3: the channels of CXL.cache."""

    D2H_REQ = 1
    D2H_RSP = 2
    D2H_DATA = 3
    H2D_REQ = 4
    H2D_RSP = 5
    H2D_DATA = 6


class D2HReqOpcode(IntEnum):
    """3.2.4.3.1 to .15: requests of a device."""

    RdCurr = 1
    RdOwn = 2
    RdShared = 3
    RdAny = 4
    RdOwnNoData = 5
    ItoMWr = 6
    WrCur = 7
    CLFlush = 8
    CleanEvict = 9
    DirtyEvict = 10
    CleanEvictNoData = 11
    WOWrInv = 12
    WOWrInvF = 13
    WrInv = 14
    CacheFlushed = 16


class D2HRspOpcode(IntEnum):
    """3.2.4.3.19 to .25: a device's responses to snoops."""

    RspSHitSE = 1
    RspIHitI = 4
    RspIHitSE = 5
    RspVHitV = 6
    RspSFwdM = 7
    RspIFwdM = 15
    RspVFwdV = 22


class H2DReqOpcode(IntEnum):
    """3.2.4.3.16 to .18: snoops of the host."""

    SnpData = 1
    SnpInv = 2
    SnpCur = 3


class H2DRspOpcode(IntEnum):
    """3.2.4.3.9: the host's responses to requests."""

    WritePull = 1
    GO = 4
    GO_WritePull = 5
    ExtCmp = 6
    GO_WritePull_Drop = 8
    Fast_GO = 12
    Fast_GO_WritePull = 13
    GO_ERR_WritePull = 15


class Grant(IntEnum):
    """3.2.3.5: the state that a GO grants, in its RspData."""

    S = 1
    E = 2
    I = 3  # noqa: E741 - its name
    ERR = 4
    M = 6
