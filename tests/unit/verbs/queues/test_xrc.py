# SPDX-License-Identifier: BSD-3-Clause
"""XRC: domains, SRQs in them, and the two kinds of QPs."""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nupa.core.watch import Watch
from nupa.packet.scapy.transport import AETH, BTH, XRCETH
from nupa.verbs import (
    QP,
    SRQ,
    XRCD,
    PyverbsRDMAError,
    QPCap,
    QPEx,
    QPInitAttrEx,
    RecvWR,
    SendWR,
    SrqInitAttrEx,
    XRCDInitAttr,
    connect,
)
from nupa.verbs import enums as e
from tests.unit.capture.watched import acknowledged_once, names, transport

BOTH = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS


def open_domain(ctx: Any, fd: int, oflags: int = os.O_CREAT) -> XRCD:
    return XRCD(ctx, XRCDInitAttr(BOTH, oflags, fd))


def make_srq(end: Any, xrcd: XRCD) -> SRQ:
    attr = SrqInitAttrEx(max_wr=16, max_sge=2)
    attr.srq_type = e.IBV_SRQT_XRC
    attr.pd, attr.xrcd, attr.cq = end.pd, xrcd, end.cq
    attr.comp_mask = (
        e.IBV_SRQ_INIT_ATTR_TYPE
        | e.IBV_SRQ_INIT_ATTR_PD
        | e.IBV_SRQ_INIT_ATTR_XRCD
        | e.IBV_SRQ_INIT_ATTR_CQ
    )
    return SRQ(end.ctx, attr)


@dataclass
class Xrc:
    """Connects a.sender to b.receiver, in the domain of b.srq."""

    a: Any
    b: Any
    sender: QPEx
    receiver: QP
    srq: SRQ


@pytest.fixture
def domain_file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "xrcd", os.O_RDWR | os.O_CREAT, 0o600)
    yield fd
    os.close(fd)


@pytest.fixture
def xrc(make_end, mover, domain_file) -> Xrc:
    a, b = make_end(0, mover=mover), make_end(1, mover=mover)
    xrcd = open_domain(b.ctx, domain_file)
    target = QPInitAttrEx(e.IBV_QPT_XRC_RECV, comp_mask=e.IBV_QP_INIT_ATTR_XRCD, xrcd=xrcd)
    init = QPInitAttrEx(
        e.IBV_QPT_XRC_SEND,
        scq=a.cq,
        cap=QPCap(16, 0, 2, 0),
        sq_sig_all=1,
        pd=a.pd,
        comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        send_ops_flags=e.IBV_QP_EX_WITH_SEND,
    )
    sender, receiver = QPEx(a.ctx, init), QP(b.ctx, target)
    connect(sender, receiver)
    return Xrc(a, b, sender, receiver, make_srq(b, xrcd))


@pytest.mark.parametrize("size", [0, 8, 4096, 50_000])
def test_a_message_reaches_the_srq_that_it_names(xrc, size: int) -> None:
    data = Random(size).randbytes(size)
    xrc.a.mr.write(data)
    xrc.srq.post_recv(RecvWR(7, sg=[xrc.b.mr.sge()]))
    wr = SendWR(1, sg=[xrc.a.mr.sge(0, size)])
    wr.set_qp_type_xrc(xrc.srq.get_srq_num())
    xrc.sender.post_send(wr)
    xrc.a.wait_ok()
    wc = xrc.b.wait_ok()[0]
    assert (wc.wr_id, wc.byte_len) == (7, size)
    assert (wc.qp_num, wc.src_qp) == (xrc.receiver.qp_num, xrc.sender.qp_num)
    assert xrc.b.mr.read(size) == data


def test_extended_posting_names_the_srq_too(xrc) -> None:
    xrc.a.mr.write(b"extended")
    xrc.srq.post_recv(RecvWR(7, sg=[xrc.b.mr.sge()]))
    xrc.sender.wr_start()
    xrc.sender.wr_id = 3
    xrc.sender.wr_send()
    xrc.sender.wr_set_xrc_srqn(xrc.srq.get_srq_num())
    xrc.sender.wr_set_sge(xrc.a.mr.sge(0, 8))
    xrc.sender.wr_complete()
    assert xrc.a.wait_ok()[0].wr_id == 3
    xrc.b.wait_ok()
    assert xrc.b.mr.read(8) == b"extended"


def test_an_srq_that_is_not_there_is_an_invalid_request(xrc) -> None:
    wr = SendWR(1, sg=[xrc.a.mr.sge(0, 8)])
    wr.set_qp_type_xrc(xrc.srq.get_srq_num() + 5)
    xrc.sender.post_send(wr)
    assert xrc.a.wait()[0].status == e.IBV_WC_REM_INV_REQ_ERR


def test_one_sided_operations_work(xrc) -> None:
    xrc.a.mr.write(b"one-sided")
    wr = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[xrc.a.mr.sge(0, 9)])
    wr.set_wr_rdma(xrc.b.mr.rkey, xrc.b.mr.buf)
    wr.set_qp_type_xrc(xrc.srq.get_srq_num())
    xrc.sender.post_send(wr)
    xrc.a.wait_ok()
    assert xrc.b.mr.read(9) == b"one-sided"


@pytest.mark.parametrize(
    ("oflags", "error"),
    [(0, errno.EAGAIN), (os.O_APPEND, errno.EINVAL)],
    ids=["not there", "no such flag"],
)
def test_a_domain_is_not_opened(end, domain_file, oflags: int, error: int) -> None:
    with pytest.raises(PyverbsRDMAError, match="XRC domain") as caught:
        open_domain(end.ctx, domain_file, oflags)
    assert caught.value.error_code == error


def test_a_domain_that_somebody_has_is_shared_or_exclusive(make_end, domain_file) -> None:
    first, second = make_end(0), make_end(0)
    with open_domain(first.ctx, domain_file, os.O_CREAT | os.O_EXCL):
        with pytest.raises(PyverbsRDMAError) as caught:
            open_domain(second.ctx, domain_file, os.O_CREAT | os.O_EXCL)
        assert caught.value.error_code == errno.EINVAL
        open_domain(second.ctx, domain_file, 0).close()


def test_closing_a_domain_closes_what_is_in_it(make_end, domain_file) -> None:
    end = make_end(0)
    xrcd = open_domain(end.ctx, domain_file)
    srq = make_srq(end, xrcd)
    xrcd.close()
    assert srq._c is None


def test_an_xrc_srq_needs_a_domain_and_a_cq(end) -> None:
    attr = SrqInitAttrEx()
    attr.srq_type = e.IBV_SRQT_XRC
    attr.pd = end.pd
    attr.comp_mask = e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD
    with pytest.raises(PyverbsRDMAError) as caught:
        SRQ(end.ctx, attr)
    assert caught.value.error_code == errno.EINVAL


def test_a_watch_shows_the_srq_of_each_packet(xrc, fabric) -> None:
    with Watch(fabric, ("transport",)) as watch:
        xrc.srq.post_recv(RecvWR(7, sg=[xrc.b.mr.sge()]))
        wr = SendWR(1, sg=[xrc.a.mr.sge(0, 9000)])
        wr.set_qp_type_xrc(xrc.srq.get_srq_num())
        xrc.sender.post_send(wr)
        xrc.a.wait_ok()
        packets = acknowledged_once(transport(watch))
    assert names(packets) == ["SEND_FIRST", "SEND_MIDDLE", "SEND_LAST", "ACKNOWLEDGE"]
    assert {p[BTH].opcode & 0xE0 for p in packets} == {0xA0}
    assert {p[XRCETH].srqn for p in packets[:-1]} == {xrc.srq.get_srq_num()}
    assert {p[BTH].dqpn for p in packets[:-1]} == {xrc.receiver.qp_num}
    assert (packets[-1][AETH].msn, packets[-1][BTH].dqpn) == (1, xrc.sender.qp_num)
    assert packets[-1][BTH].psn == packets[-2][BTH].psn
    for packet in packets:
        assert packet[BTH].icrc == packet[BTH].computed_icrc()
