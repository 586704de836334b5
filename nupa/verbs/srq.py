# SPDX-License-Identifier: BSD-3-Clause
"""Shared receive queues: receives for several QPs."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, PyverbsObject, PyverbsValue, closed, expect
from nupa.verbs.base.errors import PyverbsRDMAError, PyverbsUserError, check, refuse
from nupa.verbs.base.fields import Attribute, Field, ReadOnly, link, pointer_of
from nupa.verbs.cq import CQ, CQEX
from nupa.verbs.device import Context
from nupa.verbs.device.event import AsyncEvent
from nupa.verbs.enums import IBV_OPS_SIGNALED, IBV_WR_TAG_ADD, ibv_ops_wr_opcode
from nupa.verbs.pd import PD
from nupa.verbs.post import post_many, post_one
from nupa.verbs.wr import SGE, RecvWR, sg_array
from nupa.verbs.xrcd import XRCD

if TYPE_CHECKING:
    from nupa.verbs.batch import RecvBatch


__all__ = ["SRQ", "OpsWr", "SrqAttr", "SrqInitAttr", "SrqInitAttrEx"]


class SrqAttr(PyverbsObject):
    """The size of an SRQ, and the limit: with fewer receives left it raises its limit event."""

    def __init__(self, max_wr: int = 100, max_sge: int = 1, srq_limit: int = 0) -> None:
        self._c = ffi.new("struct ibv_srq_attr *", (max_wr, max_sge, srq_limit))

    max_wr = Field("max_wr")
    max_sge = Field("max_sge")
    srq_limit = Field("srq_limit")


class SrqInitAttr(PyverbsObject):
    """Attributes of SRQ(pd, ...)."""

    def __init__(self, attr: SrqAttr | None = None) -> None:
        self._c = ffi.new("struct ibv_srq_init_attr *")
        if attr is not None:
            self._c.attr = attr._c[0]

    max_wr = ReadOnly("attr.max_wr")
    max_sge = ReadOnly("attr.max_sge")
    srq_limit = ReadOnly("attr.srq_limit")


def cq_pointer(cq: CQ | CQEX) -> Any:
    if not isinstance(cq, CQ | CQEX):
        raise PyverbsUserError(f"Expected CQ/CQEX, got {type(cq)}")
    return cq._cq_of(pointer_of(cq))


class SrqInitAttrEx(PyverbsObject):
    """Attributes of SRQ(context, ...); comp_mask says which of the fields are set."""

    def __init__(self, max_wr: int = 100, max_sge: int = 1, srq_limit: int = 0) -> None:
        self._c = ffi.new("struct ibv_srq_init_attr_ex *")
        self._c.attr = ffi.new("struct ibv_srq_attr *", (max_wr, max_sge, srq_limit))[0]

    max_wr = ReadOnly("attr.max_wr")
    max_sge = ReadOnly("attr.max_sge")
    srq_limit = ReadOnly("attr.srq_limit")
    comp_mask = Field("comp_mask")
    srq_type = Field("srq_type")
    pd: Attribute[PD | None, PD | None] = link("pd")
    xrcd: Attribute[XRCD | None, XRCD | None] = link("xrcd")
    cq: Attribute[CQ | CQEX | None, CQ | CQEX | None] = link("cq", cq_pointer)
    #: for tag matching, which the device lacks
    max_num_tags = Field("tm_cap.max_num_tags")
    max_ops = Field("tm_cap.max_ops")


class OpsWr(PyverbsValue):
    """A request to the list of tags of a tag matching SRQ (ibv_ops_wr)."""

    def __init__(
        self,
        wr_id: int = 0,
        opcode: int = IBV_WR_TAG_ADD,
        flags: int = IBV_OPS_SIGNALED,
        next_wr: OpsWr | None = None,
        unexpected_cnt: int = 0,
        recv_wr_id: int = 0,
        num_sge: int | None = None,
        tag: int = 0,
        mask: int = 0,
        sg_list: Sequence[SGE] | None = None,
    ) -> None:
        self._c = ffi.new("struct ibv_ops_wr *")
        self.wr_id = wr_id
        self.opcode = opcode
        self.flags = flags
        self.unexpected_cnt = unexpected_cnt
        self.recv_wr_id = recv_wr_id
        self.tag = tag
        self.mask = mask
        self.next_wr = next_wr
        self._sges, n = sg_array(sg_list, 0 if sg_list is None else num_sge or 0)
        self._c.tm.add.num_sge = n if num_sge is None else num_sge
        if sg_list is not None:
            self._c.tm.add.sg_list = self._sges

    wr_id = Field("wr_id")
    opcode = Field("opcode", dict(ibv_ops_wr_opcode._value2member_map_))
    flags = Field("flags")
    unexpected_cnt = Field("tm.unexpected_cnt")
    handle = Field("tm.handle")
    recv_wr_id = Field("tm.add.recv_wr_id")
    tag = Field("tm.add.tag")
    mask = Field("tm.add.mask")
    next_wr: Attribute[OpsWr | None, OpsWr | None] = link("next")


class SRQ(PyverbsCM):
    """A shared receive queue: SRQ(pd, SrqInitAttr) or SRQ(context, SrqInitAttrEx).

    Closing it closes the QPs that use it.
    """

    _rank = PyverbsCM.RANK_SRQ

    def __init__(self, creator: PD | Context, attr: SrqInitAttr | SrqInitAttrEx) -> None:
        self._events: WeakSet[AsyncEvent] = WeakSet()
        self.pd: PD | None
        self.cq: CQ | CQEX | None = None
        self.xrcd: XRCD | None = None
        if isinstance(creator, PD) and isinstance(attr, SrqInitAttr):
            c = lib.nupa_create_srq(creator._c or closed(creator), attr._c)
            self.pd = creator
            context = creator.ctx
        elif isinstance(creator, Context) and isinstance(attr, SrqInitAttrEx):
            c = lib.nupa_create_srq_ex(creator._c or closed(creator), attr._c)
            self.pd = attr.pd
            self.cq = attr.cq
            self.xrcd = attr.xrcd
            context = creator
        else:
            raise PyverbsUserError(
                "Srq needs a PD and SrqInitAttr, or a Context and SrqInitAttrEx, for creation; "
                f"got {type(creator).__name__} and {type(attr).__name__}"
            )
        if not c:
            refuse(f"Failed to create SRQ of {attr.max_wr} WRs with {attr.max_sge} SGEs")
        self._c = c
        for parent in (self.pd, self.cq, self.xrcd, context):
            if parent is not None:
                parent._adopt(self)
        if context is not None:
            context._register(self)

    def _destroy(self, c: Any) -> int:
        for event in self._events:
            event.ack()
        return int(lib.nupa_destroy_srq(c))

    def _forget(self) -> None:
        self.pd = self.cq = self.xrcd = None

    def _hold(self, event: AsyncEvent) -> None:
        self._events.add(event)

    def get_srq_num(self) -> int:
        """Returns the number by which XRC peers name it: SendWR.set_qp_type_xrc()."""
        number = ffi.new("uint32_t *")
        rc = lib.nupa_get_srq_num(self._c or closed(self), number)
        check(rc, "Failed to retrieve SRQ number")
        return int(number[0])

    def modify(self, attr: SrqAttr, comp_mask: int) -> None:
        """Changes the attributes in *comp_mask* (ibv_srq_attr_mask)."""
        rc = lib.nupa_modify_srq(self._c or closed(self), attr._c, comp_mask)
        check(rc, "Failed to modify SRQ")

    def query(self) -> SrqAttr:
        attr = SrqAttr()
        check(lib.nupa_query_srq(self._c or closed(self), attr._c), "Failed to query SRQ")
        return attr

    def post_recv(self, wr: RecvWR | Sequence[RecvWR], bad_wr: RecvWR | None = None) -> None:
        """Posts one receive (and its next_wr), or a sequence of them in one call."""
        c = self._c or closed(self)
        if isinstance(wr, RecvWR):
            post_one(lib.nupa_post_srq_recv, c, wr, bad_wr, "post receive to SRQ")
        else:
            post_many(lib.nupa_batch_post_srq_recv, c, wr, "post receive to SRQ")

    def post_srq_ops(self, wr: OpsWr, bad_wr: OpsWr | None = None) -> None:
        """Raises PyverbsRDMAError, EOPNOTSUPP: no SRQ matches tags.  *bad_wr* becomes *wr*."""
        expect(wr, OpsWr, "wr")
        if self._c is None:
            closed(self)
        if bad_wr is not None:
            bad_wr._c[0] = wr._c[0]
        raise PyverbsRDMAError("post SRQ ops failed.", errno.EOPNOTSUPP)

    def recv_batch(self, n: int, template: RecvWR | None = None, num_sge: int = 1) -> RecvBatch:
        """Makes *n* receives, to be posted as often as wanted; see QP.recv_batch."""
        from nupa.verbs.batch import RecvBatch

        return RecvBatch(self, n, template, num_sge)
