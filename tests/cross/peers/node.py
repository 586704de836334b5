# SPDX-License-Identifier: BSD-3-Clause
"""The verbs objects of a peer process: each public method is a command that peer.py sends."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nupa.fabric import Fabric
from nupa.verbs import (
    AH,
    CQ,
    GID,
    MR,
    PD,
    QP,
    SGE,
    Address,
    AHAttr,
    CompChannel,
    Context,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    address,
    connect_to,
)
from nupa.verbs import enums as e
from nupa.verbs.mr import DmaBufMR

ALL_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
OPCODES = {
    "send": e.IBV_WR_SEND,
    "send_imm": e.IBV_WR_SEND_WITH_IMM,
    "send_inv": e.IBV_WR_SEND_WITH_INV,
    "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "cas": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "faa": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
TYPES = {"rc": e.IBV_QPT_RC, "uc": e.IBV_QPT_UC, "ud": e.IBV_QPT_UD}
QKEY = 0x1234567
GRH_BYTES = 40
WAIT_S = 10.0  # a deadline, far beyond what anything here takes


@dataclass(frozen=True)
class Region:
    """A region of some peer: its index there, and what a work request says of it."""

    index: int
    addr: int
    rkey: int
    length: int


@dataclass(frozen=True)
class Done:
    """A completion; status and opcode without their IBV_WC_."""

    wr_id: int
    status: str
    opcode: str
    byte_len: int
    imm: int
    qp_num: int


def pattern(seed: int, length: int) -> bytes:
    """Returns *length* bytes that follow from *seed*."""
    return random.Random(seed).randbytes(length)


class Verbs:
    """State of one peer process.  *note* tells the test something before the command has ended;
    *stopped* says whether the test wants the command to end."""

    def __init__(self, note: Callable[[object], None], stopped: Callable[[], bool]) -> None:
        self._note = note
        self._stopped = stopped
        self._fabrics: list[Fabric] = []
        self._contexts: list[Context] = []
        self._pds: list[PD] = []
        self._channels: list[CompChannel] = []
        self._cqs: list[CQ] = []
        self._qps: list[QP] = []
        self._mrs: list[MR] = []
        self._ahs: list[AH] = []

    # --- the fabric ---------------------------------------------------------------------------

    def make_fabric(self, name: str, hosts: int = 2, **segment: int) -> str:
        """Returns a named fabric, *segment*: sizes other than the defaults; its path."""
        from nupa.topology.topology import SegmentConfig, star

        topology = star(hosts)
        topology.segment = SegmentConfig(**segment)
        with Fabric.create(name, topology) as fabric:
            return fabric.path

    def open_fabric(self, name: str) -> str:
        with Fabric.open(name) as fabric:
            return fabric.path

    def attach(
        self, fabric: str = "cross", host: int | str | None = None, mover: str | None = None
    ) -> int:
        """Attaches to a host; the slot.  Makes a PD, too."""
        self._fabrics.append(Fabric.open(fabric))
        self._contexts.append(Context(fabric=self._fabrics[-1], host=host, mover=mover))
        self._pds.append(PD(self._contexts[-1]))
        return self._contexts[-1].slot

    def make_pd(self) -> int:
        self._pds.append(PD(self._contexts[-1]))
        return len(self._pds) - 1

    def leave(self) -> None:
        """Closes everything, in an orderly way."""
        for context in self._contexts:
            context.close()
        for fabric in self._fabrics:
            fabric.close()
        self.__init__(self._note, self._stopped)  # type: ignore[misc]

    def port_state(self) -> str:
        return str(e.ibv_port_state(self._contexts[-1].query_port(1).state).name)

    def event(self, timeout: float = WAIT_S) -> str:
        """Returns the next asynchronous event, without IBV_EVENT_."""
        with self._contexts[-1].get_async_event(timeout) as event:
            return event.event_type.name.removeprefix("IBV_EVENT_")

    def no_event(self) -> bool:
        with contextlib.suppress(TimeoutError):
            self.event(0)
            return False
        return True

    # --- memory -------------------------------------------------------------------------------

    def register(
        self,
        length: int,
        access: int = ALL_ACCESS,
        pd: int = -1,
        pool: bool = False,
        dmabuf: bool = False,
    ) -> Region:
        memory: Any = self._fabrics[-1].alloc(length) if pool else length
        mr = (DmaBufMR if dmabuf else MR)(self._pds[pd], memory, access)
        self._mrs.append(mr)
        return Region(len(self._mrs) - 1, mr.buf, mr.rkey, mr.length)

    def register_part(self, region: int, offset: int, length: int, access: int) -> Region:
        """Returns a second region over a part of another one's memory."""
        mr = MR(self._pds[-1], length, access, address=self._mrs[region].buf + offset)
        self._mrs.append(mr)
        return Region(len(self._mrs) - 1, mr.buf, mr.rkey, mr.length)

    def deregister(self, region: int) -> None:
        self._mrs[region].close()

    def forget_regions(self) -> None:
        """Starts to number regions from 0 again."""
        for mr in self._mrs:
            mr.close()
        self._mrs.clear()

    def load(self, region: int = 0, offset: int = 0, length: int | None = None) -> bytes:
        return self._mrs[region].read(length, offset)

    def store(self, data: bytes, region: int = 0, offset: int = 0) -> None:
        self._mrs[region].write(data, offset=offset)

    # --- queue pairs --------------------------------------------------------------------------

    def make_qp(
        self,
        qp_type: str = "rc",
        *,
        depth: int = 128,
        inline: int = 0,
        pd: int = -1,
        cqe: int = 1024,
        sges: int = 4,
    ) -> Address:
        """Returns a QP with a CQ of its own, in RESET (UD: in RTS)."""
        self._channels.append(CompChannel(self._contexts[-1]))
        cq = CQ(self._contexts[-1], cqe, None, self._channels[-1])
        init = QPInitAttr(
            qp_type=TYPES[qp_type],
            scq=cq,
            rcq=cq,
            cap=QPCap(depth, depth, sges, sges, inline),
            sq_sig_all=0,
        )
        attr = QPAttr()
        attr.qkey = QKEY
        self._cqs.append(cq)
        self._qps.append(QP(self._pds[pd], init, attr if qp_type == "ud" else None))
        return address(self._qps[-1])

    def connect(self, peer: Address, qp: int = -1, **options: int) -> None:
        connect_to(self._qps[qp], peer, **options)

    def to_rtr(self, peer: Address, qp: int = -1) -> None:
        """Brings the QP as far as RTR only, through INIT."""
        self._qps[qp].to_rtr(_rtr(peer))

    def destroy_qp(self, qp: int = -1) -> None:
        self._qps[qp].close()

    def state(self, qp: int = -1) -> str:
        attr, _ = self._qps[qp].query(e.IBV_QP_STATE)
        return str(e.ibv_qp_state(attr.qp_state).name.removeprefix("IBV_QPS_"))

    def make_ah(self, peer: Address) -> None:
        route = GlobalRoute(dgid=GID(peer.gid), sgid_index=0, hop_limit=64)
        attr = AHAttr(dlid=peer.lid, is_global=1, port_num=1, gr=route)
        self._ahs.append(AH(self._pds[-1], attr=attr))

    # --- work ---------------------------------------------------------------------------------

    def recv(
        self,
        region: int = 0,
        offset: int = 0,
        length: int | None = None,
        *,
        wr_id: int = 0,
        qp: int = -1,
    ) -> None:
        self._qps[qp].post_recv(RecvWR(wr_id, 1, [self._mrs[region].sge(offset, length)]))

    def post(
        self,
        op: str,
        region: int = 0,
        offset: int = 0,
        length: int | None = None,
        *,
        to: Region | None = None,
        at: int = 0,
        rkey: int | None = None,
        operands: tuple[int, int] = (0, 0),
        imm: int = 0,
        wr_id: int = 0,
        flags: int = e.IBV_SEND_SIGNALED,
        pieces: int = 1,
        qp: int = -1,
        peer: Address | None = None,
    ) -> None:
        """Posts one request: *length* bytes at *offset* of the region, in *pieces* SGEs; remotely
        *at* bytes into *to*, with *rkey* if not its own."""
        mr = self._mrs[region]
        length = mr.length - offset if length is None else length
        sges = _pieces(mr, offset, length, pieces)
        wr = SendWR(wr_id, OPCODES[op], len(sges), imm, sges, flags)
        if to is not None:
            key = to.rkey if rkey is None else rkey
            if op in ("cas", "faa"):
                wr.set_wr_atomic(key, to.addr + at, *operands)
            elif op != "send_inv":
                wr.set_wr_rdma(key, to.addr + at)
        if op == "send_inv":
            wr.invalidate_rkey = rkey or 0
        if peer is not None:
            wr.set_wr_ud(self._ahs[-1], peer.qp_num, QKEY)
        self._qps[qp].post_send(wr)

    def wait(self, count: int = 1, qp: int = -1, timeout: float = WAIT_S) -> list[Done]:
        """Returns the next *count* completions of the QP's CQ."""
        return [_done(wc) for wc in self._cqs[qp].wait(count, timeout)]

    def wait_asleep(self, count: int = 1) -> list[Done]:
        """Returns the same by events of the last QP's CQ, without polls in between."""
        cq, channel = self._cqs[-1], self._channels[-1]
        found: list[Done] = []
        while len(found) < count:
            cq.req_notify()
            found += self.poll()
            if len(found) < count:
                channel.get_cq_event(cq, WAIT_S)
        return found

    def poll(self, qp: int = -1) -> list[Done]:
        """Takes the completions that are there."""
        return [_done(wc) for wc in self._cqs[qp].poll(64)[1]]


def _rtr(peer: Address) -> QPAttr:
    attr = QPAttr(port_num=1, path_mtu=e.IBV_MTU_4096)
    attr.qp_access_flags = ALL_ACCESS
    attr.dest_qp_num = peer.qp_num
    attr.rq_psn = peer.psn
    attr.min_rnr_timer = 12
    attr.max_dest_rd_atomic = 16
    route = GlobalRoute(dgid=GID(peer.gid), sgid_index=0, hop_limit=64)
    attr.ah_attr = AHAttr(dlid=peer.lid, is_global=1, port_num=1, gr=route)
    return attr


def _pieces(mr: MR, offset: int, length: int, pieces: int) -> list[SGE]:
    step = length // pieces
    cuts = [offset + i * step for i in range(pieces)] + [offset + length]
    return [mr.sge(start, end - start) for start, end in pairwise(cuts)]


def _done(wc: Any) -> Done:
    return Done(
        wc.wr_id,
        e.ibv_wc_status(wc.status).name.removeprefix("IBV_WC_"),
        e.ibv_wc_opcode(wc.opcode).name.removeprefix("IBV_WC_"),
        wc.byte_len,
        wc.imm_data,
        wc.qp_num,
    )
