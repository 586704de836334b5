# SPDX-License-Identifier: BSD-3-Clause
"""Shared receive queues."""

import errno

import pytest

from nupa.verbs import (
    QP,
    SRQ,
    PostError,
    PyverbsRDMAError,
    PyverbsUserError,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    SrqAttr,
    SrqInitAttr,
    SrqInitAttrEx,
    connect,
)
from nupa.verbs import enums as e


def make_srq(pd) -> SRQ:
    return SRQ(pd, SrqInitAttr(SrqAttr(max_wr=16, max_sge=2)))


@pytest.fixture
def pair(make_pair, mover):
    return make_pair(mover=mover, make_srq=make_srq)


def another_connection(pair) -> QP:
    """Connects a second QP of a to a second one of b, on the same SRQs."""
    qps = []
    for end in (pair.a, pair.b):
        init = QPInitAttr(e.IBV_QPT_RC, None, end.cq, end.cq, end.srq, QPCap(16, 0, 2, 0))
        qps.append(QP(end.pd, init))
    connect(*qps)
    pair.second = qps
    return qps[0]


def test_several_qps_draw_from_one_queue_in_order(pair) -> None:
    second = another_connection(pair)
    pair.b.srq.post_recv([RecvWR(n, sg=[pair.b.mr.sge(n * 8, 8)]) for n in range(4)])
    pair.a.mr.write(b"ABCD")
    for n, qp in enumerate((pair.a.qp, second, second, pair.a.qp)):
        qp.post_send(SendWR(n, sg=[pair.a.mr.sge(n, 1)]))
        got = pair.b.wait_ok()[0]
        assert got.wr_id == n
        assert got.src_qp == qp.qp_num
        assert pair.b.mr.read(1, n * 8) == b"ABCD"[n : n + 1]
    pair.a.wait_ok(4)


def test_receives_are_not_posted_to_a_qp_that_shares(pair) -> None:
    with pytest.raises(PostError) as caught:
        pair.b.qp.post_recv(RecvWR(1, sg=[pair.b.mr.sge()]))
    assert caught.value.error_code == errno.EINVAL


def test_a_full_queue_says_how_many_it_took(pair) -> None:
    room = pair.b.srq.query().max_wr
    with pytest.raises(PostError, match="post receive to SRQ at") as caught:
        pair.b.srq.post_recv([RecvWR(n, sg=[pair.b.mr.sge()]) for n in range(room + 1)])
    assert (caught.value.error_code, caught.value.posted) == (errno.ENOMEM, room)


def test_an_empty_queue_makes_the_sender_wait(pair) -> None:
    pair.a.qp.post_send(SendWR(1, sg=[pair.a.mr.sge(0, 8)]))
    with pytest.raises(TimeoutError):
        pair.a.cq.wait(1, timeout=0.05)
    pair.b.srq.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
    assert pair.a.wait_ok()[0].wr_id == 1


def test_the_limit_is_told_once(pair) -> None:
    pair.b.srq.post_recv([RecvWR(n, sg=[pair.b.mr.sge()]) for n in range(4)])
    pair.b.srq.modify(SrqAttr(srq_limit=3), e.IBV_SRQ_LIMIT)
    assert pair.b.srq.query().srq_limit == 3
    for n in range(3):
        pair.a.qp.post_send(SendWR(n, sg=[pair.a.mr.sge(0, 8)]))
    pair.b.wait_ok(3)
    with pair.b.ctx.get_async_event(pair.b.WAIT_S) as event:
        assert event.event_type is e.IBV_EVENT_SRQ_LIMIT_REACHED
        assert event.element is pair.b.srq
    with pytest.raises(TimeoutError):
        pair.b.ctx.get_async_event(0)
    assert pair.b.srq.query().srq_limit == 0


def test_an_srq_gets_at_least_what_it_asked_for(end) -> None:
    with SRQ(end.pd, SrqInitAttr(SrqAttr(max_wr=100, max_sge=3))) as srq:
        attr = srq.query()
        assert attr.max_wr >= 100
        assert attr.max_sge >= 3


def test_one_past_a_limit_is_refused(end) -> None:
    limits = end.ctx.query_device()
    for attr in (
        SrqAttr(max_wr=limits.max_srq_wr + 1),
        SrqAttr(max_wr=1, max_sge=limits.max_srq_sge + 1),
    ):
        with pytest.raises(PyverbsRDMAError, match="Failed to create SRQ") as caught:
            SRQ(end.pd, SrqInitAttr(attr))
        assert caught.value.error_code == errno.EINVAL


def test_an_srq_can_be_made_from_a_context(end) -> None:
    attr = SrqInitAttrEx(max_wr=10)
    attr.srq_type = e.IBV_SRQT_BASIC
    attr.pd = end.pd
    attr.comp_mask = e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD
    with SRQ(end.ctx, attr) as srq:
        assert srq.query().max_wr >= 10
        assert srq.pd is end.pd
        assert srq.get_srq_num() > 0


def test_creator_and_attributes_have_to_match(end) -> None:
    with pytest.raises(PyverbsUserError, match="got PD and SrqInitAttrEx"):
        SRQ(end.pd, SrqInitAttrEx())


def test_closing_an_srq_closes_its_qps(pair) -> None:
    pair.b.srq.close()
    with pytest.raises(PyverbsUserError, match="QP is closed"):
        pair.b.qp.qp_num  # noqa: B018
    with pytest.raises(PyverbsUserError, match="SRQ is closed"):
        pair.b.srq.query()
