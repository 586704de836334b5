# SPDX-License-Identifier: BSD-3-Clause
"""Completion queues, channels, extended completion queues."""

import errno
import select
import threading

import pytest

from nupa.verbs import (
    CQ,
    CQEX,
    PD,
    QP,
    CompChannel,
    Context,
    CqInitAttrEx,
    PollCqAttr,
    PyverbsRDMAError,
    PyverbsUserError,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    connect,
)
from nupa.verbs import enums as e


def send(pair, wr_id: int = 1, flags: int = e.IBV_SEND_SIGNALED) -> None:
    """Sends a message of 8 bytes from a to b."""
    pair.b.qp.post_recv(RecvWR(wr_id + 100, sg=[pair.b.mr.sge(0, 64)]))
    pair.a.qp.post_send(SendWR(wr_id, sg=[pair.a.mr.sge(0, 8)], send_flags=flags))


def test_an_empty_queue_polls_nothing(end) -> None:
    assert end.cq.poll() == (0, [])
    assert end.cq.poll(16) == (0, [])


def test_a_queue_holds_at_least_what_was_asked(end) -> None:
    for cqe in (1, 100, end.ctx.query_device().max_cqe):
        with CQ(end.ctx, cqe, None, None, 0) as cq:
            assert cq.cqe >= cqe
    with CQ(end.ctx, 7.0) as cq:  # type: ignore[arg-type]
        assert cq.cqe >= 7


def test_a_queue_beyond_the_limit_is_refused(end) -> None:
    for cqe in (0, -1, end.ctx.query_device().max_cqe + 1):
        with pytest.raises(PyverbsRDMAError, match=f"CQ of {cqe} entries") as caught:
            CQ(end.ctx, cqe)
        assert caught.value.error_code == errno.EINVAL


def test_a_completion_vector_beyond_the_limit_is_refused(end) -> None:
    with pytest.raises(PyverbsRDMAError, match="completion vector") as caught:
        CQ(end.ctx, 10, None, None, end.ctx.num_comp_vectors)
    assert caught.value.error_code == errno.EINVAL


def test_a_queue_keeps_its_context_object(end) -> None:
    mark = object()
    with CQ(end.ctx, 10, mark) as cq:
        assert cq.cq_context is mark


def test_completions_come_in_order_and_all_at_once(pair) -> None:
    for wr_id in range(10):
        send(pair, wr_id)
    assert [wc.wr_id for wc in pair.b.wait_ok(10)] == list(range(100, 110))
    assert [wc.wr_id for wc in pair.a.wait_ok(10)] == list(range(10))


def test_no_more_is_polled_than_asked(pair) -> None:
    for wr_id in range(5):
        send(pair, wr_id)
    pair.b.wait_ok(5)
    first = pair.a.wait_ok(2)
    assert [wc.wr_id for wc in first + pair.a.wait_ok(3)] == [0, 1, 2, 3, 4]


def test_a_completion_stays_when_others_are_polled(pair) -> None:
    kept = []
    for wr_id in range(50):
        send(pair, wr_id)
        kept += pair.b.wait_ok()
        pair.a.wait_ok()
    assert [wc.wr_id for wc in kept] == list(range(100, 150))


def test_waiting_ends_with_what_came(pair) -> None:
    send(pair)
    with pytest.raises(TimeoutError, match="1 of 2 completions") as caught:
        pair.b.cq.wait(2, timeout=0.05)
    assert [wc.wr_id for wc in caught.value.completions] == [101]  # type: ignore[attr-defined]


def test_an_event_comes_for_the_next_completion(pair) -> None:
    pair.b.cq.req_notify()
    send(pair)
    assert pair.b.channel.get_cq_event(pair.b.cq, timeout=pair.b.WAIT_S) is pair.b.cq
    assert pair.b.cq.num_events == 1
    assert pair.b.wait_ok()[0].wr_id == 101


def test_without_a_request_there_is_no_event(pair) -> None:
    send(pair)
    pair.b.wait_ok()
    with pytest.raises(TimeoutError, match="completion event"):
        pair.b.channel.get_cq_event(timeout=0)


def test_one_request_gives_one_event(pair) -> None:
    pair.b.cq.req_notify()
    send(pair, 1)
    send(pair, 2)
    pair.b.wait_ok(2)
    pair.b.channel.get_cq_event(timeout=pair.b.WAIT_S)
    with pytest.raises(TimeoutError):
        pair.b.channel.get_cq_event(timeout=0)


def test_what_has_arrived_before_the_request_makes_no_event(pair) -> None:
    send(pair)
    pair.a.wait_ok()
    assert pair.b.cq.poll(2)[0] == 1
    for _ in range(50):  # the port or the request may come first
        send(pair)
        pair.b.cq.req_notify()
        assert pair.b.cq.poll(2)[0] == 1
        with pytest.raises(TimeoutError, match="completion event"):
            pair.b.channel.get_cq_event(timeout=0)
        send(pair)
        pair.b.channel.get_cq_event(timeout=pair.b.WAIT_S)
        assert pair.b.cq.poll(2)[0] == 1
        pair.a.wait_ok(2)


def test_only_solicited_messages_make_solicited_events(pair) -> None:
    pair.b.cq.req_notify(solicited_only=True)
    send(pair, 1)
    pair.b.wait_ok()
    with pytest.raises(TimeoutError):
        pair.b.channel.get_cq_event(timeout=0)
    send(pair, 2, e.IBV_SEND_SIGNALED | e.IBV_SEND_SOLICITED)
    pair.b.channel.get_cq_event(timeout=pair.b.WAIT_S)


def test_the_channel_can_be_polled_as_a_file(pair) -> None:
    poll = select.poll()
    poll.register(pair.b.channel, select.POLLIN)
    assert poll.poll(0) == []
    pair.b.cq.req_notify()
    send(pair)
    assert poll.poll(pair.b.WAIT_S * 1000) == [(pair.b.channel.fileno(), select.POLLIN)]
    pair.b.channel.get_cq_event()
    assert poll.poll(0) == []


def test_a_thread_that_waits_for_an_event_lets_others_run(pair) -> None:
    pair.b.cq.req_notify()
    got = []
    waiter = threading.Thread(
        target=lambda: got.append(pair.b.channel.get_cq_event(timeout=pair.b.WAIT_S))
    )
    waiter.start()
    send(pair)
    waiter.join(pair.b.WAIT_S)
    assert got == [pair.b.cq]


def test_an_event_of_another_queue_is_told(pair) -> None:
    with CQ(pair.b.ctx, 10, None, pair.b.channel) as other:
        pair.b.cq.req_notify()
        send(pair)
        with pytest.raises(PyverbsRDMAError, match="unexpected CQ"):
            pair.b.channel.get_cq_event(other, timeout=pair.b.WAIT_S)


def test_closing_a_queue_acknowledges_its_events(pair) -> None:
    pair.b.cq.req_notify()
    send(pair)
    pair.b.channel.get_cq_event(timeout=pair.b.WAIT_S)
    pair.b.cq.close()
    with pytest.raises(PyverbsUserError, match="CQ is closed"):
        pair.b.cq.poll()


def test_closing_a_queue_closes_its_qps(end) -> None:
    end.cq.close()
    with pytest.raises(PyverbsUserError, match="QP is closed"):
        end.qp.qp_num  # noqa: B018


def test_closing_a_channel_closes_its_queues(end) -> None:
    end.channel.close()
    with pytest.raises(PyverbsUserError, match="CQ is closed"):
        end.cq.poll()


def test_a_queue_can_grow_and_keeps_what_it_holds(pair) -> None:
    for wr_id in range(5):
        send(pair, wr_id)
    pair.a.wait_ok(5)
    pair.b.cq.resize(5000)
    assert pair.b.cq.cqe >= 5000
    assert [wc.wr_id for wc in pair.b.wait_ok(5)] == list(range(100, 105))


def test_a_queue_cannot_shrink_below_what_it_holds(make_pair) -> None:
    pair = make_pair(cqe=16)
    for wr_id in range(10):
        send(pair, wr_id)
    pair.a.wait_ok(10)
    with pytest.raises(PyverbsRDMAError, match="resize CQ to 1 ") as caught:
        pair.b.cq.resize(1)
    assert caught.value.error_code == errno.EINVAL
    assert len(pair.b.wait_ok(10)) == 10


def test_a_context_is_needed() -> None:
    for make in (lambda: CQ(None, 10), lambda: CompChannel(None), lambda: CQEX(None)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"expected nupa.verbs.device.Context"):
            make()


class TestCqEx:
    """CQEX, whose completions are read field by field."""

    WC_FLAGS = e.IBV_WC_STANDARD_FLAGS | e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK

    @pytest.fixture
    def queue(self, pair):
        """Makes a CQEX on b's side, with a QP of its own that is connected to one of a's."""
        with CQEX(pair.b.ctx, CqInitAttrEx(cqe=100, wc_flags=self.WC_FLAGS)) as cq:
            cap = QPCap(16, 16, 1, 1)
            to = QP(pair.b.pd, QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=cap))
            pair.a.qp.close()
            init = QPInitAttr(e.IBV_QPT_RC, None, pair.a.cq, pair.a.cq, cap=cap)
            pair.a.qp = QP(pair.a.pd, init)
            connect(pair.a.qp, to)
            for wr_id in (5, 6):
                to.post_recv(RecvWR(wr_id, sg=[pair.b.mr.sge(0, 64)]))
                pair.a.qp.post_send(
                    SendWR(1, e.IBV_WR_SEND_WITH_IMM, imm_data=0x0D, sg=[pair.a.mr.sge(0, 8)])
                )
            pair.a.wait_ok(2)
            yield cq, to

    @staticmethod
    def started(cq: CQEX) -> None:
        for _ in range(1_000_000):
            if cq.start_poll(PollCqAttr()) == 0:
                return
        raise AssertionError("no completion came")

    def test_every_field_can_be_read(self, queue) -> None:
        cq, qp = queue
        self.started(cq)
        assert (cq.status, cq.wr_id) == (e.IBV_WC_SUCCESS, 5)
        assert cq.read_opcode() == e.IBV_WC_RECV
        assert cq.read_byte_len() == 8
        assert cq.read_imm_data() == 0x0D
        assert cq.read_qp_num() == qp.qp_num
        assert cq.read_wc_flags() & e.IBV_WC_WITH_IMM
        assert cq.read_vendor_err() == cq.read_sl() == cq.read_dlid_path_bits() == 0
        assert cq.read_completion_wallclock_ns() > 1_600_000_000 * 10**9
        cq.end_poll()

    def test_a_batch_ends_with_enoent(self, queue) -> None:
        cq, _ = queue
        self.started(cq)
        while cq.poll_next() != 0:
            assert cq.wr_id == 5
        assert cq.wr_id == 6
        assert cq.poll_next() == errno.ENOENT
        cq.end_poll()
        assert cq.start_poll() == errno.ENOENT

    def test_what_comes_during_a_batch_is_left_for_the_next(self, pair, queue) -> None:
        cq, qp = queue

        def write(wr_id: int) -> None:
            request = SendWR(
                wr_id,
                e.IBV_WR_RDMA_WRITE,
                sg=[pair.b.mr.sge(0, 8)],
                send_flags=e.IBV_SEND_SIGNALED,
            )
            request.set_wr_rdma(pair.a.mr.rkey, pair.a.mr.buf)
            qp.post_send(request)

        for _ in range(2):  # the two messages of the queue
            self.started(cq)
            cq.end_poll()
        write(1)
        self.started(cq)
        write(2)
        assert (cq.wr_id, cq.poll_next()) == (1, errno.ENOENT)
        while cq.poll_next() != 0:
            assert cq.wr_id == 1
        assert cq.wr_id == 2
        cq.end_poll()

    def test_closing_it_closes_its_qps(self, queue) -> None:
        cq, qp = queue
        cq.close()
        with pytest.raises(PyverbsUserError, match="QP is closed"):
            qp.qp_num  # noqa: B018

    def test_it_tells_its_channel(self, fabric) -> None:
        with Context(fabric=fabric, host=0) as ctx, CompChannel(ctx) as channel:
            cq = CQEX(ctx, CqInitAttrEx(10, channel, wc_flags=e.IBV_WC_STANDARD_FLAGS))
            init = QPInitAttr(e.IBV_QPT_UD, None, cq, cq, cap=QPCap())
            qp = QP(PD(ctx), init, QPAttr())
            cq.req_notify()
            qp.post_recv(RecvWR(9))
            qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
            assert channel.get_cq_event(timeout=10) is cq


def test_moderated_events_come_for_several_completions(pair) -> None:
    pair.b.cq.moderate(2, 60_000)
    pair.b.cq.req_notify()
    pair.b.qp.post_recv([RecvWR(n, sg=[pair.b.mr.sge(0, 8)]) for n in range(2)])
    for n in range(2):
        with pytest.raises(TimeoutError):
            pair.b.channel.get_cq_event(pair.b.cq, timeout=0)
        pair.a.qp.post_send(SendWR(n, sg=[pair.a.mr.sge(0, 8)]))
        pair.a.wait_ok()
        pair.b.wait_ok()
    assert pair.b.channel.get_cq_event(pair.b.cq, timeout=pair.b.WAIT_S) is pair.b.cq


def test_moderation_is_a_capability_of_the_device(end) -> None:
    caps = end.ctx.query_device_ex().cq_mod_caps
    assert (caps.max_cq_count, caps.max_cq_period) == (65535, 65535)


def now_ns(ctx: Context) -> int:
    seconds, nanoseconds = ctx.query_rt_values_ex()
    return seconds * 10**9 + nanoseconds


def test_all_hosts_of_a_fabric_have_one_clock(make_end) -> None:
    a, b = make_end(0), make_end(1)
    attr = CqInitAttrEx(10, wc_flags=e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
    with CQEX(b.ctx, attr) as cq:
        init = QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=QPCap(4, 4, 1, 1))
        to = QP(b.pd, init)
        connect(a.qp, to)
        to.post_recv(RecvWR(1, sg=[b.mr.sge()]))
        before = now_ns(a.ctx)
        a.qp.post_send(SendWR(1, sg=[a.mr.sge(0, 8)]))
        a.wait_ok()
        TestCqEx.started(cq)
        completed = cq.read_timestamp()
        cq.end_poll()
        assert before <= completed <= now_ns(a.ctx)
    assert b.ctx.query_device_ex().hca_core_clock == 1_000_000  # kHz: nanoseconds


@pytest.mark.parametrize(
    "wc_flag",
    [e.IBV_WC_EX_WITH_CVLAN, e.IBV_WC_EX_WITH_FLOW_TAG, e.IBV_WC_EX_WITH_TM_INFO, 1 << 40],
)
def test_a_field_that_no_completion_has_is_refused(end, wc_flag: int) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        CQEX(end.ctx, CqInitAttrEx(10, wc_flags=wc_flag))
    assert caught.value.error_code == errno.EOPNOTSUPP


@pytest.mark.parametrize("read", ["read_cvlan", "read_flow_tag", "read_tm_info"])
def test_reading_such_a_field_is_refused(end, read: str) -> None:
    with CQEX(end.ctx, CqInitAttrEx(10)) as cq, pytest.raises(PyverbsRDMAError) as caught:
        getattr(cq, read)()
    assert caught.value.error_code == errno.EOPNOTSUPP
