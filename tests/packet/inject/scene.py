# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts of a fabric in this process with a QP each, and an injector at one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scapy.packet import Packet

from nupa.fabric import Fabric
from nupa.packet.scapy.inject import Injector, Verdict, inject
from nupa.packet.scapy.transport import BTH, RETH, AtomicETH
from nupa.verbs import (
    CQ,
    MR,
    PD,
    QP,
    WC,
    Context,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    address,
    connect_to,
)
from nupa.verbs import enums as e

ALL_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
    | e.IBV_ACCESS_FLUSH_GLOBAL
)
WAIT_S = 10.0  # a deadline: what is awaited comes at once, or not at all
MTU_BYTES = 256
QKEY = 0x11111111
FIRST_PSN = 0xFFFFFE  # so that PSNs wrap


class End:
    """A context, PD, CQ, region of 64 KiB and QP on a host."""

    def __init__(self, fabric: Fabric, host: int, qp_type: int) -> None:
        self.ctx = Context(fabric=fabric, host=host)
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 1024)
        self.mr = MR(self.pd, 1 << 16, ALL_ACCESS)
        init = QPInitAttr(qp_type=qp_type, scq=self.cq, rcq=self.cq, cap=QPCap(64, 64, 4, 4, 64))
        attr = QPAttr()
        attr.qkey = QKEY
        self.qp = QP(self.pd, init, attr if qp_type == e.IBV_QPT_UD else None)

    def state(self) -> e.ibv_qp_state:
        return self.qp.query(e.IBV_QP_STATE)[0].qp_state

    def recv(self, wr_id: int = 1, offset: int = 0, length: int = 4096) -> None:
        self.qp.post_recv(RecvWR(wr_id, sg=[self.mr.sge(offset, length)]))

    def wait(self) -> WC:
        """Returns the next completion."""
        return self.cq.wait(1, WAIT_S)[0]

    def nothing(self) -> bool:
        """Asserts that there is no completion."""
        return not self.cq.poll(1)[1]

    def event(self) -> str:
        """Returns the next asynchronous event, without IBV_EVENT_."""
        with self.ctx.get_async_event(WAIT_S) as event:
            return event.event_type.name.removeprefix("IBV_EVENT_")


class Scene:
    """Packets are injected at `end`'s QP, on host1, in the name of `partner`, on host0."""

    def __init__(self, qp_type: int = e.IBV_QPT_RC, **path: int) -> None:
        self.fabric = Fabric(hosts=3)
        self.partner = End(self.fabric, 0, qp_type)
        self.end = End(self.fabric, 1, qp_type)
        self.service = {e.IBV_QPT_RC: "RC", e.IBV_QPT_UC: "UC", e.IBV_QPT_UD: "UD"}[qp_type]
        if qp_type != e.IBV_QPT_UD:
            self._connect(FIRST_PSN, path)
        self.injector = Injector(self.fabric, "host0")
        self._counted = self._counters()

    def _connect(self, psn: int, path: dict[str, int], partner_qpn: int | None = None) -> None:
        options = {"mtu": e.IBV_MTU_256, "psn": psn, "access": ALL_ACCESS, **path}
        to_partner, to_end = (address(x.qp, psn) for x in (self.partner, self.end))
        if partner_qpn is not None:
            to_partner = replace(to_partner, qp_num=partner_qpn)
        connect_to(self.partner.qp, to_end, **options)
        connect_to(self.end.qp, to_partner, **options)

    def reconnect(self, psn: int, partner_qpn: int | None = None) -> None:
        """Connects both QPs again; the end's to another QP than the partner's, if given."""
        for end in (self.partner, self.end):
            end.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        self._connect(psn, {}, partner_qpn)

    def close(self) -> None:
        self.injector.close()
        self.end.ctx.close()
        self.partner.ctx.close()
        self.fabric.close()

    def psn(self, ahead: int = 0) -> int:
        """Returns the PSN that the QP expects, plus *ahead*."""
        return (self.injector.expected_psn(self.end.qp.qp_num) + ahead) & 0xFFFFFF

    def bth(self, opcode: str | int, psn: int | None = None, **fields: Any) -> Packet:
        """Returns *opcode* without its service ("SEND_ONLY")."""
        code = f"{self.service}_{opcode}" if isinstance(opcode, str) else opcode
        if psn is None:
            psn = 0 if self.service == "UD" else self.psn()
        return BTH(opcode=code, **{"dqpn": self.end.qp.qp_num, "psn": psn, **fields})

    def reth(self, offset: int = 0, length: int = 0, **fields: int) -> Packet:
        """Returns a RETH for the end's region."""
        mr = self.end.mr
        return RETH(**{"va": mr.buf + offset, "rkey": mr.rkey, "dmalen": length, **fields})

    def atomic(self, offset: int = 0, swap: int = 0, compare: int = 0) -> Packet:
        mr = self.end.mr
        return AtomicETH(va=mr.buf + offset, rkey=mr.rkey, swap=swap, compare=compare)

    def inject(self, packet: Packet | bytes) -> Verdict:
        return inject(self.injector, packet, timeout=WAIT_S)

    def _counters(self) -> dict[str, int]:
        return self.fabric.hw_counters()[1]

    def counted(self) -> dict[str, int]:
        """Returns the changes of host1's counters since the last call."""
        before, self._counted = self._counted, self._counters()
        return {name: n - before[name] for name, n in self._counted.items() if n != before[name]}
