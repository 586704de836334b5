# SPDX-License-Identifier: BSD-3-Clause
"""Asynchronous events."""

import select
import signal

import pytest

from nupa.verbs import (
    GID,
    SRQ,
    AHAttr,
    GlobalRoute,
    QPAttr,
    QPCap,
    RecvWR,
    SendWR,
    SrqAttr,
    SrqInitAttr,
    address,
    connect_to,
)
from nupa.verbs import enums as e

STATE = e.IBV_QP_STATE


def expect(end, kind: int, element: object) -> None:
    """Checks that the next event of *end* is this one."""
    with end.ctx.get_async_event(end.WAIT_S) as event:
        assert (event.event_type, event.element) == (kind, element)


def test_without_an_event_waiting_ends(end) -> None:
    with pytest.raises(TimeoutError, match=r"asynchronous event within 0.01 s"):
        end.ctx.get_async_event(0.01)


def test_a_link_that_goes_down_and_up_is_told(end, fabric) -> None:
    poll = select.poll()
    poll.register(end.ctx.async_fd, select.POLLIN)
    assert poll.poll(0) == []
    fabric.set_port(0, False)
    assert poll.poll(end.WAIT_S * 1000)
    expect(end, e.IBV_EVENT_PORT_ERR, 1)
    fabric.set_port(0, True)
    expect(end, e.IBV_EVENT_PORT_ACTIVE, 1)


def test_the_responder_of_a_refused_request_is_told(pair) -> None:
    wr = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, 8)])
    wr.set_wr_rdma(pair.b.mr.rkey ^ 0x5A5A5A, pair.b.mr.buf)
    pair.a.qp.post_send(wr)
    pair.a.wait()
    expect(pair.b, e.IBV_EVENT_QP_ACCESS_ERR, pair.b.qp)


def test_the_responder_of_an_invalid_request_is_told(pair) -> None:
    wr = SendWR(1, e.IBV_WR_ATOMIC_FETCH_AND_ADD, sg=[pair.a.mr.sge(0, 8)])
    wr.set_wr_atomic(pair.b.mr.rkey, pair.b.mr.buf + 1, 1)
    pair.a.qp.post_send(wr)
    pair.a.wait()
    expect(pair.b, e.IBV_EVENT_QP_REQ_ERR, pair.b.qp)


def test_the_last_receive_of_a_shared_queue_is_told(make_pair) -> None:
    pair = make_pair(make_srq=lambda pd: SRQ(pd, SrqInitAttr(SrqAttr(max_wr=16))))
    pair.b.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), STATE)
    expect(pair.b, e.IBV_EVENT_QP_LAST_WQE_REACHED, pair.b.qp)


def test_a_drained_send_queue_is_told_if_asked(pair) -> None:
    attr = QPAttr(qp_state=e.IBV_QPS_SQD)
    attr.en_sqd_async_notify = 1
    pair.a.qp.modify(attr, STATE | e.IBV_QP_EN_SQD_ASYNC_NOTIFY)
    expect(pair.a, e.IBV_EVENT_SQ_DRAINED, pair.a.qp)


def test_a_queue_that_overflows_is_told_and_its_qps_end(make_pair) -> None:
    pair = make_pair(cqe=2, cap=QPCap(64, 64, 1, 1))
    room = pair.a.cq.cqe
    wr = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, 8)])
    wr.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf)
    pair.a.qp.post_send([wr] * min(60, room + 8))
    kinds = set()
    for _ in range(2):
        with pair.a.ctx.get_async_event(pair.a.WAIT_S) as event:
            kinds.add((event.event_type, event.element))
    assert (e.IBV_EVENT_CQ_ERR, pair.a.cq) in kinds
    assert (e.IBV_EVENT_QP_FATAL, pair.a.qp) in kinds


def test_the_first_message_of_a_connection_is_told(make_pair) -> None:
    pair = make_pair()
    for end in (pair.a, pair.b):
        end.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), STATE)
    to_a, to_b = address(pair.a.qp), address(pair.b.qp)
    attr = QPAttr(path_mtu=e.IBV_MTU_4096)
    attr.dest_qp_num = to_a.qp_num
    attr.min_rnr_timer = 12
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=GID(to_a.gid)))
    pair.b.qp.to_rtr(attr)
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
    connect_to(pair.a.qp, to_b)
    pair.a.qp.post_send(SendWR(1, sg=[pair.a.mr.sge(0, 8)]))
    expect(pair.b, e.IBV_EVENT_COMM_EST, pair.b.qp)


def test_closing_an_object_acknowledges_its_events(pair) -> None:
    attr = QPAttr(qp_state=e.IBV_QPS_SQD)
    attr.en_sqd_async_notify = 1
    pair.a.qp.modify(attr, STATE | e.IBV_QP_EN_SQD_ASYNC_NOTIFY)
    event = pair.a.ctx.get_async_event(pair.a.WAIT_S)
    pair.a.qp.close()
    event.ack()
    assert "IBV_EVENT_SQ_DRAINED" in repr(event)


class AlarmError(Exception):
    """The exception of the signal handler."""


def test_a_signal_interrupts_waiting_for_events(end) -> None:
    """Ctrl-C has to work: the handler's exception comes through the blocking call."""

    def ring(_number: int, _frame: object) -> None:
        raise AlarmError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for wait in (end.ctx.get_async_event, end.channel.get_cq_event, end.cq.wait):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(AlarmError):
                wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
