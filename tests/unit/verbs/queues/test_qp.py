# SPDX-License-Identifier: BSD-3-Clause
"""Queue pairs: creation, states, refused posts."""

import errno

import pytest

from nupa.verbs import (
    CQ,
    PD,
    QP,
    SGE,
    AHAttr,
    Context,
    PostError,
    PyverbsRDMAError,
    PyverbsUserError,
    QPAttr,
    QPCap,
    QPInitAttr,
    QPInitAttrEx,
    RecvWR,
    SendWR,
    connect,
)
from nupa.verbs import enums as e
from nupa.verbs.qp import ECE

STATE = e.IBV_QP_STATE
TYPES = [e.IBV_QPT_RC, e.IBV_QPT_UC, e.IBV_QPT_UD]


def init(end, qp_type: int = e.IBV_QPT_RC, **cap: int) -> QPInitAttr:
    return QPInitAttr(qp_type, None, end.cq, end.cq, cap=QPCap(**cap))


@pytest.mark.parametrize("qp_type", TYPES)
def test_a_new_qp_is_in_reset(end, qp_type: int) -> None:
    with QP(end.pd, init(end, qp_type)) as qp:
        assert (qp.qp_state, qp.qp_type) == (e.IBV_QPS_RESET, qp_type)
        assert 1 < qp.qp_num < 1 << 24


@pytest.mark.parametrize(
    ("qp_type", "state"),
    [
        (e.IBV_QPT_RC, e.IBV_QPS_INIT),
        (e.IBV_QPT_UC, e.IBV_QPS_INIT),
        (e.IBV_QPT_UD, e.IBV_QPS_RTS),
    ],
)
def test_with_attributes_a_qp_goes_as_far_as_it_can(end, qp_type: int, state: int) -> None:
    with QP(end.pd, init(end, qp_type), QPAttr()) as qp:
        assert qp.qp_state == state


def test_a_qp_can_be_made_from_a_context(end) -> None:
    attr = QPInitAttrEx(
        e.IBV_QPT_RC, None, end.cq, end.cq, cap=QPCap(), comp_mask=e.IBV_QP_INIT_ATTR_PD, pd=end.pd
    )
    with QP(end.ctx, attr) as qp:
        assert qp.pd is end.pd
        assert qp.qp_type is e.IBV_QPT_RC


def test_creator_and_attributes_have_to_match(end) -> None:
    with pytest.raises(PyverbsUserError, match="got PD and QPInitAttrEx"):
        QP(end.pd, QPInitAttrEx())
    with pytest.raises(PyverbsUserError, match="got CQ and QPInitAttr"):
        QP(end.cq, QPInitAttr())


def test_numbers_are_not_given_again_at_once(end) -> None:
    numbers = set()
    for _ in range(50):
        with QP(end.pd, init(end)) as qp:
            numbers.add(qp.qp_num)
    assert len(numbers) == 50


def test_a_qp_gets_at_least_what_it_asked_for(end) -> None:
    wanted = QPCap(100, 200, 3, 4, 220)
    with QP(end.pd, QPInitAttr(e.IBV_QPT_RC, None, end.cq, end.cq, cap=wanted)) as qp:
        attr, made = qp.query(e.IBV_QP_CAP | e.IBV_QP_CUR_STATE)
        for cap in (attr.cap, made.cap):
            assert cap.max_send_wr >= 100
            assert cap.max_recv_wr >= 200
            assert cap.max_send_sge >= 3
            assert cap.max_recv_sge >= 4
            assert cap.max_inline_data >= 220
        assert attr.cur_qp_state is e.IBV_QPS_RESET
        assert made.qp_type is e.IBV_QPT_RC
        assert made.send_cq is end.cq


@pytest.mark.parametrize("name", ["max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge"])
def test_one_past_a_limit_is_refused(end, name: str) -> None:
    limits = end.ctx.query_device()
    limit = limits.max_sge if name.endswith("sge") else limits.max_qp_wr
    with QP(end.pd, init(end, **{name: limit})) as qp:
        assert qp.qp_num
    with pytest.raises(PyverbsRDMAError, match="Failed to create QP of type RC") as caught:
        QP(end.pd, init(end, **{name: limit + 1}))
    assert caught.value.error_code == errno.EINVAL


@pytest.mark.parametrize("qp_type", [e.IBV_QPT_RAW_PACKET, e.IBV_QPT_XRC_RECV])
def test_a_type_that_is_not_there_is_refused_as_unsupported(end, qp_type: int) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        QP(end.pd, init(end, qp_type))
    assert caught.value.error_code in (errno.EOPNOTSUPP, errno.EINVAL)


def test_a_qp_needs_completion_queues(end) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        QP(end.pd, QPInitAttr(e.IBV_QPT_RC, cap=QPCap()))
    assert caught.value.error_code == errno.EINVAL


@pytest.mark.parametrize("to", [e.IBV_QPS_RTR, e.IBV_QPS_RTS, e.IBV_QPS_SQD, e.IBV_QPS_SQE])
def test_states_cannot_be_skipped(end, to: int) -> None:
    with pytest.raises(PyverbsRDMAError, match="Failed to modify QP") as caught:
        end.qp.modify(QPAttr(qp_state=to), STATE)
    assert caught.value.error_code == errno.EINVAL
    assert end.qp.qp_state is e.IBV_QPS_RESET


def test_a_transition_needs_all_its_attributes(end) -> None:
    for missing in (e.IBV_QP_PORT, e.IBV_QP_PKEY_INDEX, e.IBV_QP_ACCESS_FLAGS):
        mask = STATE | e.IBV_QP_PORT | e.IBV_QP_PKEY_INDEX | e.IBV_QP_ACCESS_FLAGS
        with pytest.raises(PyverbsRDMAError) as caught:
            end.qp.modify(QPAttr(), mask & ~missing)
        assert caught.value.error_code == errno.EINVAL
    end.qp.to_init(QPAttr())
    assert end.qp.qp_state is e.IBV_QPS_INIT


def test_a_port_that_is_not_there_is_refused(end) -> None:
    with pytest.raises(PyverbsRDMAError, match="to init from Reset"):
        end.qp.to_init(QPAttr(port_num=2))


def test_a_connection_needs_a_path(end) -> None:
    attr = QPAttr()
    attr.dest_qp_num = 0x10001
    attr.ah_attr = AHAttr(is_global=0)
    with pytest.raises(PyverbsRDMAError, match="to RTR from Init"):
        end.qp.to_rtr(attr)


def test_what_was_set_can_be_queried(pair) -> None:
    attr, _ = pair.a.qp.query(STATE | e.IBV_QP_AV | e.IBV_QP_DEST_QPN | e.IBV_QP_TIMEOUT)
    assert attr.qp_state is e.IBV_QPS_RTS
    assert attr.dest_qp_num == pair.b.qp.qp_num
    assert (attr.timeout, attr.retry_cnt, attr.rnr_retry) == (14, 7, 7)
    assert attr.ah_attr.dgid == pair.b.ctx.query_gid(1, 0).gid


def test_a_qp_can_be_reset_and_connected_again(pair) -> None:
    for end in (pair.a, pair.b):
        end.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), STATE)
        assert end.qp.qp_state is e.IBV_QPS_RESET
    connect(pair.a.qp, pair.b.qp)
    pair.b.qp.post_recv(RecvWR(1, sg=[pair.b.mr.sge()]))
    pair.a.qp.post_send(SendWR(2, sg=[pair.a.mr.sge(0, 4)]))
    assert pair.b.wait_ok()[0].byte_len == 4
    assert pair.a.wait_ok()[0].wr_id == 2


def test_a_drained_qp_goes_on(pair) -> None:
    pair.a.qp.modify(QPAttr(qp_state=e.IBV_QPS_SQD), STATE)
    assert pair.a.qp.qp_state is e.IBV_QPS_SQD
    pair.b.qp.post_recv(RecvWR(1, sg=[pair.b.mr.sge()]))
    pair.a.qp.post_send(SendWR(2, sg=[pair.a.mr.sge(0, 4)]))
    with pytest.raises(TimeoutError):
        pair.a.cq.wait(1, timeout=0.05)
    pair.a.qp.modify(QPAttr(qp_state=e.IBV_QPS_RTS), STATE)
    assert pair.a.wait_ok()[0].wr_id == 2


def test_error_flushes_what_is_posted_in_order(pair) -> None:
    for wr_id in (1, 2, 3):
        pair.b.qp.post_recv(RecvWR(wr_id, sg=[pair.b.mr.sge()]))
    pair.b.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), STATE)
    flushed = pair.b.wait(3)
    assert [(wc.wr_id, wc.status) for wc in flushed] == [
        (wr_id, e.IBV_WC_WR_FLUSH_ERR) for wr_id in (1, 2, 3)
    ]
    pair.b.qp.post_recv(RecvWR(4, sg=[pair.b.mr.sge()]))
    pair.b.qp.post_send(SendWR(5, sg=[pair.b.mr.sge(0, 4)]))
    late = pair.b.wait(2)
    assert {wc.wr_id for wc in late} == {4, 5}
    assert {wc.status for wc in late} == {e.IBV_WC_WR_FLUSH_ERR}


def test_nothing_can_be_posted_too_early(end) -> None:
    with pytest.raises(PostError, match="Failed to post recv") as caught:
        end.qp.post_recv(RecvWR(1, sg=[end.mr.sge()]))
    assert caught.value.error_code == errno.EINVAL
    end.qp.to_init(QPAttr())
    end.qp.post_recv(RecvWR(1, sg=[end.mr.sge()]))
    with pytest.raises(PostError, match="Failed to post send") as caught:
        end.qp.post_send(SendWR(1, sg=[end.mr.sge()]))
    assert caught.value.error_code == errno.EINVAL


def test_a_full_receive_queue_says_how_many_it_took(make_pair) -> None:
    pair = make_pair(cap=QPCap(4, 4, 1, 1))
    room = pair.a.qp.query(e.IBV_QP_CAP)[0].cap.max_recv_wr
    receives = [RecvWR(wr_id, sg=[pair.a.mr.sge()]) for wr_id in range(room + 2)]
    bad = RecvWR()
    with pytest.raises(PostError, match=f"at {room} of {room + 2}.*the queue is full") as caught:
        pair.a.qp.post_recv(receives)
    assert (caught.value.error_code, caught.value.posted) == (errno.ENOMEM, room)
    with pytest.raises(PostError):
        pair.a.qp.post_recv(receives[-1], bad)
    assert bad.wr_id == room + 1


def test_a_chain_that_is_cut_short_names_its_culprit(pair) -> None:
    wrong = SendWR(2, opcode=e.IBV_WR_BIND_MW, next_wr=SendWR(3, sg=[pair.a.mr.sge(0, 1)]))
    first = SendWR(1, sg=[pair.a.mr.sge(0, 1)], next_wr=wrong)
    bad = SendWR()
    pair.b.qp.post_recv(RecvWR(9, sg=[pair.b.mr.sge()]))
    with pytest.raises(PostError) as caught:
        pair.a.qp.post_send(first, bad)
    assert (caught.value.posted, bad.wr_id, bad.opcode) == (1, 2, e.IBV_WR_BIND_MW)
    assert pair.a.wait_ok()[0].wr_id == 1
    assert pair.a.cq.poll(4) == (0, [])


def test_more_elements_than_the_queue_has_are_refused(make_pair) -> None:
    pair = make_pair(cap=QPCap(4, 4, 1, 1))
    limit = pair.a.qp.query(e.IBV_QP_CAP)[0].cap.max_send_sge
    with pytest.raises(PostError) as caught:
        pair.a.qp.post_send(SendWR(sg=[pair.a.mr.sge(0, 1)] * (limit + 1)))
    assert caught.value.error_code == errno.EINVAL


def test_more_inline_data_than_agreed_is_refused(pair) -> None:
    limit = pair.a.qp.query(e.IBV_QP_CAP)[0].cap.max_inline_data
    flags = e.IBV_SEND_SIGNALED | e.IBV_SEND_INLINE
    with pytest.raises(PostError) as caught:
        pair.a.qp.post_send(SendWR(sg=[pair.a.mr.sge(0, limit + 1)], send_flags=flags))
    assert caught.value.error_code in (errno.ENOMEM, errno.EINVAL)


def test_closing_a_protection_domain_closes_its_qps(end) -> None:
    end.pd.close()
    with pytest.raises(PyverbsUserError, match="QP is closed"):
        end.qp.post_send(SendWR(sg=[SGE(0, 0, 0)]))
    assert repr(end.qp) == "<QP, closed>"


def test_a_protection_domain_needs_a_context() -> None:
    with pytest.raises(PyverbsUserError, match="Cannot create PD"):
        PD("nupa_rdma0")  # type: ignore[arg-type]


def test_a_qp_prints_its_state(pair) -> None:
    assert f"number              : {pair.a.qp.qp_num}" in str(pair.a.qp)
    assert "RC, RTS" in repr(pair.a.qp)


def test_many_qps_can_be_had(fabric) -> None:
    with Context(fabric=fabric, host=0) as ctx:
        pd, cq = PD(ctx), CQ(ctx, 100)
        attr = QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=QPCap())
        qps = [QP(pd, attr) for _ in range(1000)]
        assert len({qp.qp_num for qp in qps}) == 1000


def test_a_device_without_extensions_says_so(end) -> None:
    ece = end.qp.query_ece()
    assert (ece.vendor_id, ece.options, ece.comp_mask) == (0, 0, 0)
    wanted = ECE(vendor_id=1, options=2)
    end.qp.set_ece(wanted)
    assert wanted.vendor_id == 0  # nothing was accepted
    with pytest.raises(PyverbsRDMAError, match="Failed to set ECE"):
        end.qp.set_ece(ECE(comp_mask=1))
    assert "Vendor ID" in str(ece)


def test_the_order_of_a_messages_bytes_is_not_promised(end) -> None:
    assert end.qp.query_data_in_order(e.IBV_WR_RDMA_WRITE) == 0
