# SPDX-License-Identifier: BSD-3-Clause
"""Connection management: an identifier stands for an address, a connection and its QP."""

from __future__ import annotations

import errno
import struct
from typing import Any
from weakref import WeakValueDictionary

from nupa._engine import ffi, lib
from nupa.verbs.addr import AH
from nupa.verbs.base import PyverbsCM, closed, expect
from nupa.verbs.base.errors import PyverbsUserError, check, refuse
from nupa.verbs.cm_enums import RDMA_PS_TCP, RDMA_PS_UDP
from nupa.verbs.cmid.addr import AddrInfo, JoinMCAttrEx
from nupa.verbs.cmid.event import CMEvent, CMEventChannel, ConnParam, UDParam
from nupa.verbs.completion.wc import WC, wc_of
from nupa.verbs.device import _DEVICE_NAME, Context
from nupa.verbs.device.event import wait_readable
from nupa.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_QPT_RC,
    IBV_QPT_UD,
    IBV_SEND_SIGNALED,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
)
from nupa.verbs.mr import MR
from nupa.verbs.pd import PD
from nupa.verbs.post import post_one
from nupa.verbs.qp_attr import ECE, QPAttr, QPInitAttr
from nupa.verbs.wr import SGE, RecvWR, SendWR

__all__ = ["CMID", "AddrInfo", "CMEvent", "CMEventChannel", "ConnParam", "JoinMCAttrEx", "UDParam"]

_UD_QKEY = 0x01234567  # RDMA_UDP_QKEY


class _TheirContext(Context):
    """The context of an id; rdma_cm closes it."""

    def __init__(self, c: Any) -> None:
        self.name = _DEVICE_NAME
        self._by_address = WeakValueDictionary()
        self._c = c

    def _destroy(self, c: Any) -> int:  # noqa: ARG002
        return 0


class _TheirPD(PD):
    """The protection domain of an id; rdma_cm frees it."""

    def __init__(self, context: Context, c: Any) -> None:
        self._c = c
        self.ctx = context
        context._adopt(self)

    def _destroy(self, c: Any) -> int:  # noqa: ARG002
        return 0


class CMID(PyverbsCM):
    """An identifier of connection management, of a kind that *creator* decides.

    AddrInfo: synchronous, each call waits for its result; it has a QP if *qp_init_attr* is given.
    CMEventChannel: asynchronous, each operation ends with an event there.
    CMEvent, of a connection request, with the *listen_id* that received it: the new connection.

    pd: for its QP and memory; None: rdma_cm's own.  context: the device, if it is not that of
    `nupa run` (nupa's own).  PyverbsRDMAError: rdma_cm refuses, with its errno.
    """

    _rank = PyverbsCM.RANK_QP
    event_channel: CMEventChannel | None

    def __init__(
        self,
        creator: AddrInfo | CMEventChannel | CMEvent | None = None,
        qp_init_attr: QPInitAttr | None = None,
        pd: PD | None = None,
        port_space: int = RDMA_PS_TCP,
        listen_id: CMID | None = None,
        *,
        context: Context | None = None,
    ) -> None:
        self.event_channel = None
        self._context: Context | None = context
        self._pd: PD | None = pd
        created = ffi.new("struct rdma_cm_id **")
        if creator is None:
            return
        elif isinstance(creator, AddrInfo):
            given = ffi.NULL if pd is None else pd._c or closed(pd)
            init = ffi.NULL if qp_init_attr is None else _copy(qp_init_attr)
            rc = lib.rdma_create_ep(created, creator._addr(), given, init)
        elif isinstance(creator, CMEventChannel):
            self.event_channel = creator
            rc = _create_id(creator, created, int(port_space), context)
        elif isinstance(creator, CMEvent):
            if listen_id is None:
                raise PyverbsUserError("A CMID of a connection request takes its listen_id too")
            self.event_channel = listen_id.event_channel
            created[0], rc = creator._event().id, 0
        else:
            raise PyverbsUserError(f"Cannot create CM ID from {type(creator)}")
        if rc:
            refuse("Failed to create CM ID")
        self._c = created[0]
        for parent in (self.event_channel, pd, context):
            if parent is not None:
                parent._adopt(self)

    def _destroy(self, c: Any) -> int:
        if self.event_channel is not None:
            self.event_channel._acknowledge(c)
        lib.rdma_destroy_ep(c)  # its QP and SRQ, too
        return 0

    def _forget(self) -> None:
        self._pd = self._context = None

    def _id(self) -> Any:
        return self._c or closed(self)

    @property
    def dev_name(self) -> str:
        return self.context.name or ""

    @property
    def port_num(self) -> int:
        return int(self._id().port_num)

    @property
    def context(self) -> Context:
        """The context of the device that its address led to; PyverbsUserError before that."""
        if self._context is None:
            if not self._id().verbs:
                raise PyverbsUserError("This CMID has no device yet: bind it or resolve an address")
            self._context = _TheirContext(self._id().verbs)
            self._adopt(self._context)
        return self._context

    @property
    def pd(self) -> PD:
        """The PD that was given, or rdma_cm's own."""
        if self._pd is None:
            if not self._id().pd:
                raise PyverbsUserError("This CMID has no PD yet: bind it or resolve an address")
            self._pd = _TheirPD(self.context, self._id().pd)
            self._adopt(self._pd)
        return self._pd

    @property
    def qpn(self) -> int | None:
        """The QP; None: there is none."""
        qp = self._id().qp
        return int(qp.qp_num) if qp else None

    # --- connecting ---------------------------------------------------------------------

    def bind_addr(self, lai: AddrInfo) -> None:
        """Binds to the source address of *lai*."""
        if lib.rdma_bind_addr(self._id(), expect(lai, AddrInfo, "lai")._addr().ai_src_addr):
            refuse("Failed to bind address")

    def resolve_addr(self, rai: AddrInfo, timeout_ms: int = 2000) -> None:
        """Resolves the path to the destination of *rai*, and binds to its device."""
        found = expect(rai, AddrInfo, "rai")._addr()
        if lib.rdma_resolve_addr(self._id(), found.ai_src_addr, found.ai_dst_addr, timeout_ms):
            refuse("Failed to resolve address")

    def resolve_route(self, timeout_ms: int = 2000) -> None:
        check(lib.rdma_resolve_route(self._id(), timeout_ms), "Failed to resolve route")

    def listen(self, backlog: int = 0) -> None:
        """Listens for requests, of which *backlog* may wait; 0: as many as possible."""
        check(lib.rdma_listen(self._id(), backlog), "Failed to listen")

    def get_request(self) -> CMID:
        """Waits for a connection request and returns the CMID of the connection (synchronous)."""
        created = ffi.new("struct rdma_cm_id **")
        if lib.rdma_get_request(self._id(), created):
            refuse("Failed to get request, no connection request received")
        child = CMID(pd=self._pd if not isinstance(self._pd, _TheirPD) else None)
        child._c = created[0]
        return child

    def connect(self, param: ConnParam | None = None) -> None:
        """Connects (asynchronous): ESTABLISHED comes; without rdma_cm's QP, CONNECT_RESPONSE."""
        check(lib.rdma_connect(self._id(), _of(param)), "Failed to connect")

    def accept(self, param: ConnParam | None = None) -> None:
        check(lib.rdma_accept(self._id(), _of(param)), "Failed to accept connection")

    def establish(self) -> None:
        """Completes a connection with a QP that is not rdma_cm's, when that QP is ready."""
        check(lib.rdma_establish(self._id()), "Failed to complete an active connection request")

    def reject(self, private_data: bytes | None = None) -> None:
        data = private_data or b""
        if lib.rdma_reject(self._id(), data or ffi.NULL, len(data)):
            refuse("Failed to reject connection")

    def disconnect(self) -> None:
        check(lib.rdma_disconnect(self._id()), "Failed to disconnect")

    def join_multicast(
        self,
        addr: AddrInfo | None = None,
        mc_attr: JoinMCAttrEx | None = None,
        context: object = None,  # noqa: ARG002  # of C
    ) -> None:
        """Joins the group at *addr*, or of *mc_attr*; MULTICAST_JOIN comes."""
        if mc_attr is not None:
            rc = lib.rdma_join_multicast_ex(self._id(), mc_attr._c, ffi.NULL)
        elif addr is not None:
            rc = lib.rdma_join_multicast(self._id(), addr._addr().ai_src_addr, ffi.NULL)
        else:
            raise PyverbsUserError("Joining a group takes its addr or an mc_attr")
        if rc:
            refuse("Failed to join multicast")

    def leave_multicast(self, addr: AddrInfo) -> None:
        if lib.rdma_leave_multicast(self._id(), addr._addr().ai_src_addr):
            refuse("Failed to leave multicast")

    def set_option(self, level: int, optname: int, optval: int, optlen: int) -> None:
        """Sets an option of *optlen* bytes, 1, 2, 4 or 8 (rdma_set_option(3))."""
        value = struct.pack({1: "=B", 2: "=H", 4: "=I", 8: "=Q"}[optlen], optval)
        if lib.rdma_set_option(self._id(), level, optname, ffi.from_buffer(value), optlen):
            refuse("Failed to set option")

    def set_local_ece(self, ece: ECE) -> None:
        """Sets the extensions of this end's QP, which the peer is told."""
        check(lib.rdma_set_local_ece(self._id(), ece._c), "Failed to set local ECE")

    def get_remote_ece(self) -> ECE:
        """Returns the extensions of the peer's QP."""
        ece = ECE()
        check(lib.rdma_get_remote_ece(self._id(), ece._c), "Failed to get remote ECE")
        return ece

    # --- its QP, its memory -------------------------------------------------------------

    def create_qp(self, qp_init: QPInitAttr) -> None:
        """Makes a QP whose states rdma_cm changes; missing CQs are made, too."""
        pd = ffi.NULL if self._pd is None else self._pd._c or closed(self._pd)
        init = _copy(expect(qp_init, QPInitAttr, "qp_init"))
        check(lib.rdma_create_qp(self._id(), pd, init), "Failed to create QP")

    def query_qp(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        attr, init = QPAttr(), QPInitAttr()
        check(lib.nupa_query_qp(self._qp(), attr._c, int(attr_mask), init._c), "Failed to query QP")
        return attr, init

    def init_qp_attr(self, qp_state: int) -> tuple[QPAttr, int]:
        """Returns the attributes, and their mask, that bring a QP of the program to *qp_state*."""
        attr = QPAttr()
        attr.qp_state = qp_state
        mask = ffi.new("int *")
        if lib.rdma_init_qp_attr(self._id(), attr._c, mask):
            refuse("Failed to initialize QP attributes")
        return attr, int(mask[0])

    def reg_msgs(self, size: int) -> MR:
        """Registers memory to send from and receive into."""
        return MR(self.pd, size, IBV_ACCESS_LOCAL_WRITE)

    def reg_read(self, size: int = 0) -> MR:
        """Registers memory that the peer may read."""
        return MR(self.pd, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)

    def reg_write(self, size: int = 0) -> MR:
        """Registers memory that the peer may write."""
        return MR(self.pd, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

    def _qp(self) -> Any:
        qp = self._id().qp
        if not qp:
            raise PyverbsUserError("This CMID has no QP: create_qp() makes one")
        return qp

    def _post(self, wr: SendWR) -> None:
        post_one(lib.nupa_post_send, self._qp(), wr, None, "post send")

    def post_recv(self, mr: MR, length: int | None = None) -> None:
        """Receives into the first *length* bytes of *mr*, None: all."""
        sge = SGE(mr.buf, mr.length if length is None else length, mr.lkey)
        post_one(lib.nupa_post_recv, self._qp(), RecvWR(sg=[sge]), None, "post recv")

    def post_send(self, mr: MR, flags: int = IBV_SEND_SIGNALED, length: int | None = None) -> None:
        sge = SGE(mr.buf, mr.length if length is None else length, mr.lkey)
        self._post(SendWR(opcode=IBV_WR_SEND, sg=[sge], send_flags=flags))

    def post_read(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """Reads *length* bytes of the peer's memory into *mr*."""
        wr = SendWR(opcode=IBV_WR_RDMA_READ, sg=[SGE(mr.buf, length, mr.lkey)], send_flags=flags)
        wr.set_wr_rdma(rkey, remote_addr)
        self._post(wr)

    def post_write(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """Writes the first *length* bytes of *mr* to the peer's memory."""
        wr = SendWR(opcode=IBV_WR_RDMA_WRITE, sg=[SGE(mr.buf, length, mr.lkey)], send_flags=flags)
        wr.set_wr_rdma(rkey, remote_addr)
        self._post(wr)

    def post_ud_send(
        self,
        mr: MR,
        ah: AH,
        rqpn: int = 0,
        flags: int = IBV_SEND_SIGNALED,
        length: int | None = None,
    ) -> None:
        """Sends the first *length* bytes of *mr* to QP *rqpn* at *ah*."""
        sge = SGE(mr.buf, mr.length if length is None else length, mr.lkey)
        wr = SendWR(opcode=IBV_WR_SEND, sg=[sge], send_flags=flags)
        wr.set_wr_ud(ah, rqpn, _UD_QKEY)
        self._post(wr)

    def get_recv_comp(self, timeout: float | None = None) -> WC:
        """Waits for a completion of a receive.  TimeoutError after *timeout* seconds."""
        c = self._id()
        return _wait(c.recv_cq, c.recv_cq_channel, timeout)

    def get_send_comp(self, timeout: float | None = None) -> WC:
        """Waits for a completion of a send.  TimeoutError after *timeout* seconds."""
        c = self._id()
        return _wait(c.send_cq, c.send_cq_channel, timeout)


def _create_id(
    channel: CMEventChannel, created: Any, port_space: int, context: Context | None
) -> int:
    c = channel._c or closed(channel)
    if context is None:
        return int(lib.rdma_create_id(c, created, ffi.NULL, port_space))
    qp_type = IBV_QPT_UD if port_space == RDMA_PS_UDP else IBV_QPT_RC
    verbs = context._c or closed(context)
    return int(lib.rdma_create_id_on(verbs, c, created, ffi.NULL, port_space, qp_type))


def _copy(qp_init: QPInitAttr) -> Any:
    """Copies *qp_init* for C, which sets CQs of one id; the caller's may serve many."""
    return ffi.new("struct ibv_qp_init_attr *", qp_init._c[0])


def _of(param: ConnParam | None) -> Any:
    return ffi.NULL if param is None else param._c


def _wait(cq: Any, channel: Any, timeout: float | None) -> WC:
    """Returns the next completion of *cq*, as rdma_get_recv_comp(3) waits for it."""
    wcs = ffi.new("struct ibv_wc[]", 1)
    found, context = ffi.new("struct ibv_cq **"), ffi.new("void **")
    while True:
        n = lib.nupa_poll_cq(cq, 1, wcs)
        if n == 0:
            check(lib.nupa_req_notify_cq(cq, 0), "Request notify CQ failed")
            n = lib.nupa_poll_cq(cq, 1, wcs)
        if n > 0:
            return wc_of(wcs, 0)
        if n < 0:
            refuse("Failed to poll CQ", -n if n < -1 else n)
        wait_readable(channel.fd, timeout, "completion")
        if lib.nupa_get_cq_event(channel, found, context) == 0:
            lib.nupa_ack_cq_events(found[0], 1)
        elif ffi.errno not in (errno.EINTR, errno.EAGAIN):
            refuse("Failed to get CQ event")
