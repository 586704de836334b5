# SPDX-License-Identifier: BSD-3-Clause
"""Queue pairs: state, and posting."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from nupa._engine import ffi, lib
from nupa.verbs import enums as e
from nupa.verbs.addr import AH, GID
from nupa.verbs.base import PyverbsCM, PyverbsValue, closed
from nupa.verbs.base.errors import PyverbsRDMAError, PyverbsUserError, check, refuse
from nupa.verbs.base.fields import Attribute, ReadOnly, WhileOpen, table
from nupa.verbs.device import Context
from nupa.verbs.device.event import AsyncEvent
from nupa.verbs.pd import PD
from nupa.verbs.post import post_many, post_one
from nupa.verbs.qp_attr import ECE, STATES, TYPES, QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from nupa.verbs.qp_masks import MASKS
from nupa.verbs.utils import qp_state_to_str, qp_type_to_str
from nupa.verbs.wr import SGE, RecvWR, SendWR
from nupa.verbs.xrcd import XRCD

if TYPE_CHECKING:
    from nupa.verbs.batch import RecvBatch, SendBatch
    from nupa.verbs.mw import MW, MWBind, MWBindInfo
    from nupa.verbs.raw.wq import RwqIndTable

__all__ = ["ECE", "QP", "DataBuffer", "QPAttr", "QPCap", "QPEx", "QPInitAttr", "QPInitAttrEx"]

_post_send = lib.nupa_post_send
_post_recv = lib.nupa_post_recv

_ATOMIC_BYTES = 8
_NAMES = {e.IBV_QPS_INIT: "init", e.IBV_QPS_RTR: "RTR", e.IBV_QPS_RTS: "RTS"}


class QP(PyverbsCM):
    """A queue pair: QP(pd, QPInitAttr) or QP(context, QPInitAttrEx).

    *qp_attr* brings it as far as it suffices: UD to RTS, others to INIT.
    PyverbsRDMAError: the device refuses; PyverbsUserError: the arguments do not match.
    """

    _rank = PyverbsCM.RANK_QP

    def __init__(
        self,
        creator: PD | Context,
        init_attr: QPInitAttr | QPInitAttrEx,
        qp_attr: QPAttr | None = None,
    ) -> None:
        self._events: WeakSet[AsyncEvent] = WeakSet()
        self._groups: list[tuple[GID, int]] = []
        self.pd: PD | None
        self.xrcd: XRCD | None = None
        if isinstance(creator, PD) and isinstance(init_attr, QPInitAttr):
            c = lib.nupa_create_qp(creator._c or closed(creator), init_attr._c)
            self.pd = creator
            context = creator.ctx
        elif isinstance(creator, Context) and isinstance(init_attr, QPInitAttrEx):
            c = lib.nupa_create_qp_ex(creator._c or closed(creator), init_attr._c)
            self.pd = init_attr.pd
            self.xrcd = init_attr.xrcd
            context = creator
        else:
            raise PyverbsUserError(
                "A QP is made from a PD and QPInitAttr, or from a Context and QPInitAttrEx; got "
                f"{type(creator).__name__} and {type(init_attr).__name__}"
            )
        if not c:
            refuse(f"Failed to create QP of type {qp_type_to_str(init_attr.qp_type)}")
        self._c = c
        self.context: Context | None = context
        self.scq = init_attr.send_cq
        self.rcq = init_attr.recv_cq
        self.srq = init_attr.srq
        self.qp_context = init_attr.qp_context
        for parent in (self.context, self.pd, self.xrcd, self.scq, self.rcq, self.srq):
            if parent is not None:
                parent._adopt(self)
        if context is not None:
            context._register(self)
        if qp_attr is not None:
            if c.qp_type == e.IBV_QPT_UD:
                self.to_rts(qp_attr)
            else:
                self.to_init(qp_attr)

    def _destroy(self, c: Any) -> int:
        for event in self._events:
            event.ack()
        for gid, lid in self._groups:
            lib.nupa_detach_mcast(c, gid._c, lid)
        return int(lib.nupa_destroy_qp(c))

    def _forget(self) -> None:
        self.pd = self.context = self.scq = self.rcq = self.srq = self.xrcd = None
        self._groups = []

    def _hold(self, event: AsyncEvent) -> None:
        self._events.add(event)

    def to_init(self, qp_attr: QPAttr) -> None:
        """Brings it from RESET to INIT: *qp_attr* has port, P_Key, and access flags or Q_Key."""
        self._to(e.IBV_QPS_INIT, qp_attr)

    def to_rtr(self, qp_attr: QPAttr) -> None:
        """Brings it to RTR, through INIT if needed; *qp_attr* names the peer."""
        if self.qp_state != e.IBV_QPS_INIT:
            self.to_init(qp_attr)
        self._to(e.IBV_QPS_RTR, qp_attr)

    def to_rts(self, qp_attr: QPAttr) -> None:
        """Brings it to RTS, through INIT and RTR if needed."""
        if self.qp_state != e.IBV_QPS_RTR:
            self.to_rtr(qp_attr)
        self._to(e.IBV_QPS_RTS, qp_attr)

    def _to(self, state: int, qp_attr: QPAttr) -> None:
        c = self._c or closed(self)
        masks = MASKS.get(c.qp_type)
        if masks is None:
            raise PyverbsUserError(
                f"No transitions are known for a QP of type {qp_type_to_str(c.qp_type)}: "
                "use modify()"
            )
        qp_attr.qp_state = state
        rc = lib.nupa_modify_qp(c, qp_attr._c, masks[state] | e.IBV_QP_STATE)
        check(rc, f"Failed to modify QP state to {_NAMES[state]} from {qp_state_to_str(c.state)}")

    def query(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """Returns the QP's attributes; more than *attr_mask* asks for may be filled."""
        attr, init_attr = QPAttr(), QPInitAttr()
        rc = lib.nupa_query_qp(self._c or closed(self), attr._c, attr_mask, init_attr._c)
        check(rc, "Failed to query QP")
        init_attr.send_cq, init_attr.recv_cq, init_attr.srq = self.scq, self.rcq, self.srq
        init_attr.qp_context = self.qp_context
        return attr, init_attr

    def modify(self, qp_attr: QPAttr, comp_mask: int) -> None:
        """Changes the attributes in *comp_mask* (ibv_qp_attr_mask)."""
        rc = lib.nupa_modify_qp(self._c or closed(self), qp_attr._c, comp_mask)
        check(rc, "Failed to modify QP")

    def attach_mcast(self, gid: GID, lid: int = 0) -> None:
        """Joins the group *gid*, whose messages this UD QP then receives (man 3 ibv_attach_mcast).

        lid: the group's, on InfiniBand.  It lasts until detach_mcast() or close().
        """
        rc = lib.nupa_attach_mcast(self._c or closed(self), gid._c, lid)
        check(rc, f"Failed to attach QP to multicast group {gid.gid}")
        self._groups.append((gid, lid))

    def detach_mcast(self, gid: GID, lid: int = 0) -> None:
        """Leaves the group.  PyverbsRDMAError, EINVAL: the QP is not in it with that *lid*."""
        rc = lib.nupa_detach_mcast(self._c or closed(self), gid._c, lid)
        check(rc, f"Failed to detach QP from multicast group {gid.gid}")
        self._groups = [(g, m) for g, m in self._groups if (g.raw, m) != (gid.raw, lid)]

    def post_send(self, wr: SendWR | Sequence[SendWR], bad_wr: SendWR | None = None) -> None:
        """Posts one work request (and its next_wr), or a sequence of them in one call.

        PostError: one was refused; `posted` says how many were accepted, *bad_wr* becomes a copy of
        the refused one.
        """
        if isinstance(wr, SendWR):
            post_one(_post_send, self._c or closed(self), wr, bad_wr, "post send")
        else:
            post_many(lib.nupa_batch_post_send, self._c or closed(self), wr, "post send")

    def post_recv(self, wr: RecvWR | Sequence[RecvWR], bad_wr: RecvWR | None = None) -> None:
        """Posts one receive (and its next_wr), or a sequence of them in one call."""
        if isinstance(wr, RecvWR):
            post_one(_post_recv, self._c or closed(self), wr, bad_wr, "post recv")
        else:
            post_many(lib.nupa_batch_post_recv, self._c or closed(self), wr, "post recv")

    def bind_mw(self, mw: MW, mw_bind: MWBind) -> None:
        """Posts a bind of a type 1 window, which has a new rkey from now on.

        The bind is done when its completion succeeds (IBV_WC_MW_BIND_ERR if it fails).
        """
        c = self._c or closed(self)
        check(lib.nupa_bind_mw(c, mw._c or closed(mw), mw_bind._c), "Failed to bind MW")

    def batch(self, n: int, template: SendWR | None = None, num_sge: int = 1) -> SendBatch:
        """Makes *n* work requests, to be posted in one call as often as wanted.

        They begin as copies of *template*, or empty with *num_sge* SGEs each; `wr` and `sge` of the
        result are NumPy structured arrays over them.
        """
        from nupa.verbs.batch import SendBatch

        return SendBatch(self, n, template, num_sge)

    def recv_batch(self, n: int, template: RecvWR | None = None, num_sge: int = 1) -> RecvBatch:
        """Makes *n* receives, likewise."""
        from nupa.verbs.batch import RecvBatch

        return RecvBatch(self, n, template, num_sge)

    def query_data_in_order(self, op: int, flags: int = 0) -> int:
        """Tells whether the bytes of a message arrive in order: 0, not guaranteed."""
        return int(lib.nupa_query_qp_data_in_order(self._c or closed(self), int(op), int(flags)))

    def query_ece(self) -> ECE:
        """Returns the extensions of this device: none."""
        ece = ECE()
        check(lib.nupa_query_ece(self._c or closed(self), ece._c), "Failed to query ECE")
        return ece

    def set_ece(self, ece: ECE) -> None:
        """Asks for extensions; puts the accepted ones, none, into *ece*."""
        check(lib.nupa_set_ece(self._c or closed(self), ece._c), "Failed to set ECE")

    qp_num = WhileOpen("qp_num")
    qp_type = ReadOnly("qp_type", TYPES)
    qp_state = ReadOnly("state", STATES)

    def __str__(self) -> str:
        return table(
            {
                "QP type": qp_type_to_str(self.qp_type),
                "  number": self.qp_num,
                "  state": qp_state_to_str(self.qp_state),
            }
        )

    def __repr__(self) -> str:
        if self._c is None:
            return f"<{type(self).__name__}, closed>"
        kind, state = qp_type_to_str(self.qp_type), qp_state_to_str(self.qp_state)
        return f"<{type(self).__name__} {self.qp_num:#x} {kind}, {state}>"


class DataBuffer(PyverbsValue):
    """*length* bytes at *addr*, to be sent inline."""

    def __init__(self, addr: int, length: int) -> None:
        self._c = ffi.new("struct ibv_data_buf *", (ffi.cast("void *", addr), length))


def _next_wr(name: str) -> Attribute[int, int]:
    """Makes a field of a QPEx, which its next request takes."""

    def write(qp: QPEx, value: int) -> None:
        setattr(qp._qp(), name, value)

    return Attribute(lambda qp: int(getattr(qp._qp(), name)), write)


class QPEx(QP):
    """A QP with one call for each field: wr_start(), wr_...(), wr_set_...(), wr_complete().

    init_attr.send_ops_flags (with its bit in comp_mask) names the operations that it will post.
    """

    def __init__(
        self,
        creator: PD | Context,
        init_attr: QPInitAttr | QPInitAttrEx,
        qp_attr: QPAttr | None = None,
    ) -> None:
        super().__init__(creator, init_attr, qp_attr)
        self._ex: Any = None
        if getattr(init_attr, "comp_mask", 0) & e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS:
            self._ex = lib.nupa_qp_to_qp_ex(self._c)
            if not self._ex:
                refuse("Failed to create extended QP")

    def _forget(self) -> None:
        super()._forget()
        self._ex = None

    @property
    def ind_table(self) -> RwqIndTable | None:
        """None: the device has no receive side scaling."""
        return None

    def _qp(self) -> Any:
        if self._ex is None:
            if self._c is None:
                closed(self)
            raise PyverbsUserError(
                "This QPEx cannot post: give send_ops_flags, and "
                "IBV_QP_INIT_ATTR_SEND_OPS_FLAGS in comp_mask, to its QPInitAttrEx"
            )
        return self._ex

    comp_mask = _next_wr("comp_mask")
    wr_id = _next_wr("wr_id")
    wr_flags = _next_wr("wr_flags")

    def wr_start(self) -> None:
        lib.ibv_wr_start(self._qp())

    def wr_complete(self) -> None:
        """Posts all requests since wr_start().  PyverbsRDMAError: none was posted."""
        rc = lib.ibv_wr_complete(self._qp())
        if rc:
            raise PyverbsRDMAError("ibv_wr_complete failed.", rc)

    def wr_abort(self) -> None:
        lib.ibv_wr_abort(self._qp())

    def wr_send(self) -> None:
        lib.ibv_wr_send(self._qp())

    def wr_send_imm(self, data: int) -> None:
        """Adds an operation with immediate *data*, in host order."""
        lib.ibv_wr_send_imm(self._qp(), socket.htonl(data))

    def wr_send_inv(self, invalidate_rkey: int) -> None:
        lib.ibv_wr_send_inv(self._qp(), invalidate_rkey)

    def wr_send_tso(self, hdr: int, hdr_sz: int, mss: int) -> None:  # noqa: ARG002
        """Raises PyverbsRDMAError, EOPNOTSUPP: there are no packets to segment."""
        self._qp()
        raise PyverbsRDMAError("Failed to send with segmentation", errno.EOPNOTSUPP)

    def wr_rdma_read(self, rkey: int, remote_addr: int) -> None:
        lib.ibv_wr_rdma_read(self._qp(), rkey, remote_addr)

    def wr_rdma_write(self, rkey: int, remote_addr: int) -> None:
        lib.ibv_wr_rdma_write(self._qp(), rkey, remote_addr)

    def wr_rdma_write_imm(self, rkey: int, remote_addr: int, data: int) -> None:
        """Adds an operation with immediate *data*, in host order."""
        lib.ibv_wr_rdma_write_imm(self._qp(), rkey, remote_addr, socket.htonl(data))

    def wr_atomic_cmp_swp(self, rkey: int, remote_addr: int, compare: int, swap: int) -> None:
        lib.ibv_wr_atomic_cmp_swp(self._qp(), rkey, remote_addr, compare, swap)

    def wr_atomic_fetch_add(self, rkey: int, remote_addr: int, add: int) -> None:
        lib.ibv_wr_atomic_fetch_add(self._qp(), rkey, remote_addr, add)

    def wr_local_inv(self, invalidate_rkey: int) -> None:
        lib.ibv_wr_local_inv(self._qp(), invalidate_rkey)

    def wr_bind_mw(self, mw: MW, rkey: int, bind_info: MWBindInfo) -> None:
        """Binds; *rkey* is the key that the window will have: inc_rkey(mw.rkey) or another tag."""
        lib.ibv_wr_bind_mw(self._qp(), mw._c or closed(mw), rkey, bind_info._c)

    def wr_atomic_write(self, rkey: int, remote_addr: int, atomic_wr: bytes) -> None:
        """Writes the 8 bytes of *atomic_wr* at once; remote_addr is a multiple of 8."""
        if len(atomic_wr) < _ATOMIC_BYTES:
            raise PyverbsUserError(f"An atomic write has 8 bytes, got {len(atomic_wr)}")
        lib.ibv_wr_atomic_write(self._qp(), rkey, remote_addr, ffi.from_buffer(atomic_wr))

    def wr_flush(self, rkey: int, remote_addr: int, length: int, ptype: int, level: int) -> None:
        """Completes when all earlier writes are in place.

        *ptype*: ibv_placement_type; *level*: ibv_selectivity_level.
        """
        lib.ibv_wr_flush(self._qp(), rkey, remote_addr, length, ptype, level)

    def wr_set_ud_addr(self, ah: AH, remote_qpn: int, remote_rkey: int) -> None:
        """Sets the destination; *remote_rkey* is the Q_Key (pyverbs' name)."""
        lib.ibv_wr_set_ud_addr(self._qp(), ah._c or closed(ah), remote_qpn, remote_rkey)

    def wr_set_xrc_srqn(self, remote_srqn: int) -> None:
        lib.ibv_wr_set_xrc_srqn(self._qp(), remote_srqn)

    def wr_set_sge(self, sge: SGE) -> None:
        lib.ibv_wr_set_sge(self._qp(), sge.lkey, sge.addr, sge.length)

    def wr_set_sge_list(self, num_sge: int, sg_list: Sequence[SGE]) -> None:
        sges = ffi.new("struct ibv_sge[]", [sge._c[0] for sge in sg_list[:num_sge]])
        lib.ibv_wr_set_sge_list(self._qp(), len(sges), sges)

    def wr_set_inline_data(self, addr: int, length: int) -> None:
        lib.ibv_wr_set_inline_data(self._qp(), ffi.cast("void *", addr), length)

    def wr_set_inline_data_list(self, num_buf: int, buf_list: Sequence[DataBuffer]) -> None:
        buffers = ffi.new("struct ibv_data_buf[]", [buf._c[0] for buf in buf_list[:num_buf]])
        lib.ibv_wr_set_inline_data_list(self._qp(), len(buffers), buffers)
