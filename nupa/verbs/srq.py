# SPDX-License-Identifier: BSD-3-Clause
"""Shared receive queues: receives for several QPs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from nupa._engine import ffi, lib
from nupa.verbs.as_pyverbs.unsupported import OpsWr
from nupa.verbs.base import PyverbsCM, PyverbsObject, closed
from nupa.verbs.base.errors import PyverbsUserError, check, refuse
from nupa.verbs.base.fields import Attribute, Field, ReadOnly, link, pointer_of
from nupa.verbs.cq import CQ, CQEX
from nupa.verbs.device import Context
from nupa.verbs.device.event import AsyncEvent
from nupa.verbs.pd import PD
from nupa.verbs.post import post_many, post_one
from nupa.verbs.wr import RecvWR
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

    def recv_batch(self, n: int, template: RecvWR | None = None, num_sge: int = 1) -> RecvBatch:
        """Makes *n* receives, to be posted as often as wanted; see QP.recv_batch."""
        from nupa.verbs.batch import RecvBatch

        return RecvBatch(self, n, template, num_sge)
