# SPDX-License-Identifier: BSD-3-Clause
"""CXL.mem messages that are routed by PIDs, in PBR flits: CXL 3.1 3.3.5 to 3.3.10, 4.3.3.

Knows the fields that they have more than others; never routes (nupa/cxl/switch/pbr.py).  *tc* and
*ld_id* are 0: PBR flits have no LD-ID, and here no traffic class.
"""

from __future__ import annotations

from struct import Struct

from nupa.cxl.link import mem_tables as tables
from nupa.cxl.link.messages import (
    CMP,
    MEM_DATA,
    MEM_RD,
    MEM_WR,
    Kinds,
    M2SReq,
    M2SRwD,
    S2MDrs,
    S2MNdr,
    learn,
)


class PbrReq(M2SReq):
    """A request in a PBR flit: from the edge port *spid* to *dpid*."""

    __slots__ = ("dpid", "spid")
    fields = (*M2SReq.fields, "spid", "dpid")
    row = Struct("<Q72xHxBBBBBB3xHH")

    def __init__(
        self,
        address: int,
        tag: int = 0,
        opcode: int = MEM_RD,
        snp_type: int = 0,
        meta_field: int = tables.META_NO_OP,
        meta_value: int = 0,
        tc: int = 0,
        ld_id: int = 0,
        spid: int = 0,
        dpid: int = 0,
    ) -> None:
        super().__init__(address, tag, opcode, snp_type, meta_field, meta_value, tc, ld_id)
        self.spid = spid
        self.dpid = dpid


class PbrRwD(M2SRwD):
    """As PbrReq."""

    __slots__ = ("dpid", "spid")
    fields = (*M2SRwD.fields, "spid", "dpid")
    row = Struct("<Q64sQHxBBBBBBB2xHH")

    def __init__(
        self,
        address: int,
        data: bytes,
        byte_enables: int = 0,
        tag: int = 0,
        opcode: int = MEM_WR,
        snp_type: int = 0,
        meta_field: int = tables.META_NO_OP,
        meta_value: int = 0,
        tc: int = 0,
        ld_id: int = 0,
        poison: int = 0,
        spid: int = 0,
        dpid: int = 0,
    ) -> None:
        super().__init__(
            address,
            data,
            byte_enables,
            tag,
            opcode,
            snp_type,
            meta_field,
            meta_value,
            tc,
            ld_id,
            poison,
        )
        self.spid = spid
        self.dpid = dpid


class PbrNdr(S2MNdr):
    """An answer to the edge port *dpid*."""

    __slots__ = ("dpid",)
    fields = (*S2MNdr.fields, "dpid")
    row = Struct("<80xHxBxBBxBxB3xH")

    def __init__(
        self,
        tag: int,
        opcode: int = CMP,
        meta_field: int = tables.META_NO_OP,
        meta_value: int = 0,
        ld_id: int = 0,
        dev_load: int = 0,
        dpid: int = 0,
    ) -> None:
        super().__init__(tag, opcode, meta_field, meta_value, ld_id, dev_load)
        self.dpid = dpid


class PbrDrs(S2MDrs):
    """As PbrNdr."""

    __slots__ = ("dpid",)
    fields = (*S2MDrs.fields, "dpid")
    row = Struct("<8x64s8xHxBxBBxBBB3xH")

    def __init__(
        self,
        data: bytes,
        tag: int,
        opcode: int = MEM_DATA,
        meta_field: int = tables.META_NO_OP,
        meta_value: int = 0,
        ld_id: int = 0,
        poison: int = 0,
        dev_load: int = 0,
        dpid: int = 0,
    ) -> None:
        super().__init__(data, tag, opcode, meta_field, meta_value, ld_id, poison, dev_load)
        self.dpid = dpid


PBR_KINDS: Kinds = learn(PbrReq, PbrRwD, PbrNdr, PbrDrs)
