# SPDX-License-Identifier: BSD-3-Clause
"""Injected requests of XRC, which name their SRQ."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nupa.fabric import Fabric
from nupa.packet.scapy.inject import Injector, Reason, Verdict, inject
from nupa.packet.scapy.transport import AETH, BTH, RETH, XRCETH
from nupa.verbs import (
    QP,
    SRQ,
    XRCD,
    QPCap,
    QPEx,
    QPInitAttrEx,
    RecvWR,
    XRCDInitAttr,
    connect,
)
from nupa.verbs import enums as e
from tests.packet.inject.scene import End
from tests.unit.verbs.queues.test_xrc import make_srq


@dataclass
class Xrc:
    """Packets are injected at `receiver`, in the name of `sender`."""

    injector: Injector
    end: End
    sender: QPEx
    receiver: QP
    srq: SRQ

    def inject(self, operation: str, body: Any = b"", **fields: int) -> Verdict:
        psn = self.injector.expected_psn(self.receiver.qp_num)
        srqn = fields.pop("srqn", self.srq.get_srq_num())
        bth = BTH(opcode=f"XRC_{operation}", dqpn=self.receiver.qp_num, psn=psn, **fields)
        return inject(self.injector, bth / XRCETH(srqn=srqn) / body)


@pytest.fixture
def xrc(tmp_path: Path) -> Iterator[Xrc]:
    fd = os.open(tmp_path / "xrcd", os.O_RDWR | os.O_CREAT, 0o600)
    with Fabric(hosts=2) as fabric, Injector(fabric, 0) as injector:
        a, b = End(fabric, 0, e.IBV_QPT_RC), End(fabric, 1, e.IBV_QPT_RC)
        which = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS
        xrcd = XRCD(b.ctx, XRCDInitAttr(which, os.O_CREAT, fd))
        target = QPInitAttrEx(e.IBV_QPT_XRC_RECV, comp_mask=e.IBV_QP_INIT_ATTR_XRCD, xrcd=xrcd)
        initiator = QPInitAttrEx(
            e.IBV_QPT_XRC_SEND,
            scq=a.cq,
            cap=QPCap(16, 0, 2, 0),
            pd=a.pd,
            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            send_ops_flags=e.IBV_QP_EX_WITH_SEND,
        )
        sender, receiver = QPEx(a.ctx, initiator), QP(b.ctx, target)
        connect(sender, receiver)
        yield Xrc(injector, b, sender, receiver, make_srq(b, xrcd))
        a.ctx.close()
        b.ctx.close()
    os.close(fd)


def test_a_send_takes_a_receive_of_the_srq_that_it_names(xrc: Xrc) -> None:
    xrc.srq.post_recv(RecvWR(8, sg=[xrc.end.mr.sge(0, 100)]))
    assert xrc.inject("SEND_ONLY", b"hello").executed
    wc = xrc.end.wait()
    assert (wc.wr_id, wc.status, wc.byte_len) == (8, e.IBV_WC_SUCCESS, 5)
    assert xrc.inject("SEND_ONLY", b"hello").syndrome_name == "RNR_NAK"


def test_a_write_is_checked_against_the_domain_of_the_srq(xrc: Xrc) -> None:
    mr = xrc.end.mr
    write = RETH(va=mr.buf, rkey=mr.rkey, dmalen=5) / b"hello"
    assert xrc.inject("RDMA_WRITE_ONLY", write).executed
    assert mr.read(5) == b"hello"
    bad = RETH(va=mr.buf, rkey=mr.rkey ^ 0x5A5A, dmalen=5) / b"hello"
    assert xrc.inject("RDMA_WRITE_ONLY", bad).syndrome_name == "NAK_REMOTE_ACCESS_ERROR"


def test_an_srq_that_is_not_there_is_an_invalid_request(xrc: Xrc) -> None:
    srqn = xrc.srq.get_srq_num() ^ 0x55
    assert xrc.inject("SEND_ONLY", b"x", srqn=srqn).syndrome_name == "NAK_INVALID_REQUEST"


def test_the_srq_of_another_process_is_not_taken(xrc: Xrc) -> None:
    srqn = xrc.srq.get_srq_num() ^ 0x70000
    assert xrc.inject("SEND_ONLY", b"x", srqn=srqn).reason is Reason.UNSUPPORTED


def test_opcodes_of_rc_are_not_for_xrc(xrc: Xrc) -> None:
    packet = BTH(opcode="RC_SEND_ONLY", dqpn=xrc.receiver.qp_num) / b"x"
    assert inject(xrc.injector, packet).reason is Reason.OPCODE


def test_a_qp_that_only_sends_takes_answers_and_no_requests(xrc: Xrc) -> None:
    qpn = xrc.sender.qp_num
    with Injector(xrc.injector.fabric, 1) as injector:
        request = BTH(opcode="XRC_SEND_ONLY", dqpn=qpn) / XRCETH(srqn=qpn) / b"x"
        assert inject(injector, request).reason is Reason.OPCODE
        answer = BTH(opcode="XRC_ACKNOWLEDGE", dqpn=qpn) / AETH()
        assert inject(injector, answer).reason is Reason.UNASKED
