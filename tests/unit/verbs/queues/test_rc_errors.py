# SPDX-License-Identifier: BSD-3-Clause
"""Answers of a reliable connection to requests that it cannot grant."""

import pytest

from nupa.verbs import (
    MR,
    PD,
    SGE,
    QPCap,
    RecvWR,
    RemoteCompletionError,
    SendWR,
)
from nupa.verbs import enums as e

LOCAL = e.IBV_ACCESS_LOCAL_WRITE
WRITE, READ = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ
ADD = e.IBV_WR_ATOMIC_FETCH_AND_ADD
ONE_SIDED = {
    WRITE: e.IBV_ACCESS_REMOTE_WRITE,
    READ: e.IBV_ACCESS_REMOTE_READ,
    ADD: e.IBV_ACCESS_REMOTE_ATOMIC,
}
QUICK = {"timeout": 8, "retry_cnt": 1}  # 2.1 ms in all


@pytest.fixture
def pair(make_pair, mover):
    return make_pair(mover=mover)


def request(pair, opcode: int, rkey: int, address: int, length: int = 8) -> SendWR:
    wr = SendWR(1, opcode, sg=[pair.a.mr.sge(0, length)])
    if opcode == ADD:
        wr.set_wr_atomic(rkey, address, 1)
    else:
        wr.set_wr_rdma(rkey, address)
    return wr


def expect_refusal(pair, wr: SendWR, status: int) -> None:
    """Checks that *wr* ends with *status*, later ones are flushed, and both QPs are in error."""
    pair.a.qp.post_send(wr)
    behind = SendWR(2, sg=[pair.a.mr.sge(0, 1)])
    pair.a.qp.post_send(behind)
    first, second = pair.a.wait(2)
    assert (first.wr_id, first.status) == (1, status)
    assert (second.wr_id, second.status) == (2, e.IBV_WC_WR_FLUSH_ERR)
    assert pair.a.qp.query(e.IBV_QP_STATE)[0].qp_state is e.IBV_QPS_ERR


@pytest.mark.parametrize("opcode", ONE_SIDED)
def test_a_key_that_was_never_given_is_a_remote_access_error(pair, opcode: int) -> None:
    wr = request(pair, opcode, pair.b.mr.rkey ^ 0x5A5A5A, pair.b.mr.buf)
    expect_refusal(pair, wr, e.IBV_WC_REM_ACCESS_ERR)


@pytest.mark.parametrize("opcode", ONE_SIDED)
def test_the_key_of_a_region_that_is_gone_is_a_remote_access_error(pair, opcode: int) -> None:
    gone = MR(pair.b.pd, 64, LOCAL | 0xE)
    rkey, address = gone.rkey, gone.buf
    gone.close()
    expect_refusal(pair, request(pair, opcode, rkey, address), e.IBV_WC_REM_ACCESS_ERR)


@pytest.mark.parametrize("opcode", ONE_SIDED)
def test_the_key_of_another_protection_domain_is_a_remote_access_error(pair, opcode: int) -> None:
    other = MR(PD(pair.b.ctx), 64, LOCAL | 0xE)
    expect_refusal(pair, request(pair, opcode, other.rkey, other.buf), e.IBV_WC_REM_ACCESS_ERR)


@pytest.mark.parametrize("opcode", [WRITE, READ])
@pytest.mark.parametrize("shift", [-1, 1])
def test_one_byte_beyond_the_region_is_a_remote_access_error(pair, opcode: int, shift: int) -> None:
    with MR(pair.b.pd, 64, LOCAL | 0xE) as target:
        wr = request(pair, opcode, target.rkey, target.buf + shift, 64)
        expect_refusal(pair, wr, e.IBV_WC_REM_ACCESS_ERR)
        assert target.read() == bytes(64)


def test_an_address_that_wraps_is_a_remote_access_error(pair) -> None:
    wr = request(pair, WRITE, pair.b.mr.rkey, (1 << 64) - 4)
    expect_refusal(pair, wr, e.IBV_WC_REM_ACCESS_ERR)


@pytest.mark.parametrize("opcode", ONE_SIDED)
def test_access_that_the_region_does_not_give_is_a_remote_access_error(pair, opcode: int) -> None:
    others = sum(flag for op, flag in ONE_SIDED.items() if op != opcode)
    with MR(pair.b.pd, 64, LOCAL | others) as target:
        wr = request(pair, opcode, target.rkey, target.buf)
        expect_refusal(pair, wr, e.IBV_WC_REM_ACCESS_ERR)


@pytest.mark.parametrize("opcode", ONE_SIDED)
def test_access_that_the_qp_does_not_give_is_refused(make_pair, mover, opcode: int) -> None:
    others = sum(flag for op, flag in ONE_SIDED.items() if op != opcode)
    pair = make_pair(mover=mover, path={"access": LOCAL | others})
    pair.a.qp.post_send(request(pair, opcode, pair.b.mr.rkey, pair.b.mr.buf))
    refused = (e.IBV_WC_REM_ACCESS_ERR, e.IBV_WC_REM_INV_REQ_ERR)
    assert pair.a.wait()[0].status in refused


def test_an_atomic_off_its_alignment_is_an_invalid_request(pair) -> None:
    """IBTA 9.4.5: the address of an atomic is a multiple of 8."""
    wr = request(pair, ADD, pair.b.mr.rkey, pair.b.mr.buf + 4)
    expect_refusal(pair, wr, e.IBV_WC_REM_INV_REQ_ERR)


def test_a_refusal_tells_what_to_look_at(pair) -> None:
    pair.a.qp.post_send(request(pair, WRITE, 0, pair.b.mr.buf))
    with pytest.raises(RemoteCompletionError, match=r"REM_ACCESS_ERR.*compare rkey"):
        pair.a.wait_ok()


def test_the_peer_of_a_refused_request_is_in_error_too(pair) -> None:
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
    pair.a.qp.post_send(request(pair, WRITE, 0, pair.b.mr.buf))
    assert pair.a.wait()[0].status is e.IBV_WC_REM_ACCESS_ERR
    flushed = pair.b.wait()[0]
    assert (flushed.wr_id, flushed.status) == (7, e.IBV_WC_WR_FLUSH_ERR)


LOCAL_FAULTS = {
    "a key that was never given": lambda mr, _: SGE(mr.buf, 8, mr.lkey ^ 0x5A5A5A),
    "one byte beyond": lambda mr, _: SGE(mr.buf + len(mr) - 7, 8, mr.lkey),
    "one byte before": lambda mr, _: SGE(mr.buf - 1, 8, mr.lkey),
    "another protection domain": lambda _, other: other.sge(0, 8),
}


@pytest.mark.parametrize("fault", LOCAL_FAULTS)
@pytest.mark.parametrize("opcode", [e.IBV_WR_SEND, WRITE, READ])
def test_memory_of_ones_own_that_is_not_granted_is_a_local_protection_error(
    pair, fault: str, opcode: int
) -> None:
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
    other = MR(PD(pair.a.ctx), 64, LOCAL)
    wr = SendWR(1, opcode, sg=[LOCAL_FAULTS[fault](pair.a.mr, other)])
    if opcode != e.IBV_WR_SEND:
        wr.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf)
    expect_refusal(pair, wr, e.IBV_WC_LOC_PROT_ERR)


def test_a_read_into_memory_that_may_not_be_written_is_a_local_protection_error(pair) -> None:
    with MR(pair.a.pd, 64, 0) as constant:
        wr = SendWR(1, READ, sg=[constant.sge(0, 8)])
        wr.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf)
        expect_refusal(pair, wr, e.IBV_WC_LOC_PROT_ERR)


@pytest.mark.parametrize("size", [9, 100, 50_000])
def test_a_message_longer_than_the_receive_ends_both(pair, size: int) -> None:
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge(0, 8)]))
    expect_refusal(pair, SendWR(1, sg=[pair.a.mr.sge(0, size)]), e.IBV_WC_REM_INV_REQ_ERR)
    got = pair.b.wait()[0]
    assert (got.wr_id, got.status) == (7, e.IBV_WC_LOC_LEN_ERR)
    assert pair.b.mr.read(8, 8) == bytes(8)


def test_a_receive_into_memory_that_is_not_granted_ends_both(pair) -> None:
    bad = SGE(pair.b.mr.buf, 64, pair.b.mr.lkey ^ 0x5A5A5A)
    pair.b.qp.post_recv(RecvWR(7, sg=[bad]))
    expect_refusal(pair, SendWR(1, sg=[pair.a.mr.sge(0, 8)]), e.IBV_WC_REM_OP_ERR)
    got = pair.b.wait()[0]
    assert (got.wr_id, got.status) == (7, e.IBV_WC_LOC_PROT_ERR)


def test_a_send_without_a_receive_gives_up_after_its_retries(make_pair, mover) -> None:
    pair = make_pair(mover=mover, path={"rnr_retry": 2, "min_rnr_timer": 1})
    expect_refusal(pair, SendWR(1, sg=[pair.a.mr.sge(0, 8)]), e.IBV_WC_RNR_RETRY_EXC_ERR)


def test_a_send_without_a_receive_waits_for_ever_if_told_so(pair) -> None:
    pair.a.qp.post_send(SendWR(1, sg=[pair.a.mr.sge(0, 8)]))
    with pytest.raises(TimeoutError):
        pair.a.cq.wait(1, timeout=0.1)
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
    assert pair.a.wait_ok()[0].wr_id == 1


@pytest.mark.parametrize("opcode", [e.IBV_WR_SEND, WRITE, READ, ADD])
def test_a_link_that_is_down_ends_with_retry_exceeded(
    make_pair, fabric, mover, opcode: int
) -> None:
    pair = make_pair(mover=mover, path=QUICK)
    fabric.set_port(1, False)
    wr = (
        SendWR(1, sg=[pair.a.mr.sge(0, 8)])
        if opcode == e.IBV_WR_SEND
        else request(pair, opcode, pair.b.mr.rkey, pair.b.mr.buf)
    )
    expect_refusal(pair, wr, e.IBV_WC_RETRY_EXC_ERR)


def test_a_link_that_comes_back_in_time_loses_nothing(make_pair, fabric, mover) -> None:
    pair = make_pair(mover=mover, path={"timeout": 18, "retry_cnt": 7})
    pair.b.qp.post_recv([RecvWR(n, sg=[pair.b.mr.sge(n * 8, 8)]) for n in range(10)])
    fabric.set_port(0, False)
    pair.a.mr.write(bytes(range(10)))
    pair.a.qp.post_send([SendWR(n, sg=[pair.a.mr.sge(n, 1)]) for n in range(10)])
    with pytest.raises(TimeoutError):
        pair.a.cq.wait(1, timeout=0.02)
    fabric.set_port(0, True)
    assert [wc.wr_id for wc in pair.a.wait_ok(10)] == list(range(10))
    assert [wc.wr_id for wc in pair.b.wait_ok(10)] == list(range(10))
    assert [pair.b.mr.read(1, n * 8)[0] for n in range(10)] == list(range(10))


def test_a_peer_that_is_gone_ends_with_retry_exceeded(make_pair, mover) -> None:
    pair = make_pair(mover=mover, path=QUICK)
    pair.b.qp.close()
    expect_refusal(pair, SendWR(1, sg=[pair.a.mr.sge(0, 8)]), e.IBV_WC_RETRY_EXC_ERR)


def test_a_context_that_was_closed_ends_its_partners(make_pair, mover) -> None:
    pair = make_pair(mover=mover, path=QUICK)
    rkey, address = pair.b.mr.rkey, pair.b.mr.buf
    pair.b.ctx.close()
    pair.a.qp.post_send(request(pair, WRITE, rkey, address))
    # Flushed, if the peer's end was noticed before the request was posted.
    assert pair.a.wait()[0].status in (e.IBV_WC_RETRY_EXC_ERR, e.IBV_WC_WR_FLUSH_ERR)
    assert pair.a.qp.query(e.IBV_QP_STATE)[0].qp_state is e.IBV_QPS_ERR


def test_a_full_send_queue_has_room_again_after_polling(make_pair, mover) -> None:
    pair = make_pair(mover=mover, cap=QPCap(4, 4, 1, 1))
    room = pair.a.qp.query(e.IBV_QP_CAP)[0].cap.max_send_wr
    wr = request(pair, WRITE, pair.b.mr.rkey, pair.b.mr.buf)
    for _ in range(5):
        pair.a.qp.post_send([wr] * room)
        pair.a.wait_ok(room)
