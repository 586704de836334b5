# SPDX-License-Identifier: BSD-3-Clause
"""Every operation of a reliable connection, and its effect on memory."""

import socket
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nupa.verbs import MR, QPAttr, QPCap, RecvWR, SendWR, address, connect_to
from nupa.verbs import enums as e

SIZES = [0, 1, 7, 8, 63, 64, 65, 256, 4095, 4096, 4097, 65_536, 1_000_003]
BIG = 1 << 20


@pytest.fixture
def pair(make_pair, mover):
    return make_pair(mover=mover, size=BIG)


def rdma(pair, opcode: int, length: int, *, wr_id: int = 1, at: int = 0, **options) -> SendWR:
    """Makes a request of *length* bytes from the start of a's region to *at* in b's, or back."""
    wr = SendWR(wr_id, opcode, sg=[pair.a.mr.sge(0, length)], **options)
    wr.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf + at)
    return wr


@pytest.mark.parametrize("size", SIZES)
def test_a_send_fills_the_receive(pair, size: int) -> None:
    data = Random(size).randbytes(size)
    pair.a.mr.write(data)
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
    pair.a.qp.post_send(SendWR(3, sg=[pair.a.mr.sge(0, size)]))
    got, sent = pair.b.wait_ok()[0], pair.a.wait_ok()[0]
    assert (got.wr_id, got.opcode, got.byte_len) == (7, e.IBV_WC_RECV, size)
    assert (got.qp_num, got.src_qp) == (pair.b.qp.qp_num, pair.a.qp.qp_num)
    assert (sent.wr_id, sent.opcode, sent.qp_num) == (3, e.IBV_WC_SEND, pair.a.qp.qp_num)
    assert pair.b.mr.read(size) == data


@pytest.mark.parametrize("size", SIZES)
def test_a_write_changes_just_the_bytes_it_names(pair, size: int) -> None:
    data = Random(size).randbytes(size)
    pair.a.mr.write(data)
    pair.b.mr.write(b"\xee" * (size + 32))
    pair.a.qp.post_send(rdma(pair, e.IBV_WR_RDMA_WRITE, size, at=16))
    done = pair.a.wait_ok()[0]
    assert done.opcode == e.IBV_WC_RDMA_WRITE
    assert pair.b.mr.read(size + 32) == b"\xee" * 16 + data + b"\xee" * 16


@pytest.mark.parametrize("size", SIZES)
def test_a_read_fetches_the_bytes(pair, size: int) -> None:
    data = Random(size).randbytes(size)
    pair.b.mr.write(data, offset=16)
    pair.a.mr.write(b"\xee" * (size + 16))
    pair.a.qp.post_send(rdma(pair, e.IBV_WR_RDMA_READ, size, at=16))
    done = pair.a.wait_ok()[0]
    assert done.opcode == e.IBV_WC_RDMA_READ
    assert pair.a.mr.read(size + 16) == data + b"\xee" * 16


def test_immediate_data_comes_with_a_send(pair) -> None:
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
    wr = SendWR(
        1, e.IBV_WR_SEND_WITH_IMM, imm_data=socket.htonl(0x12345678), sg=[pair.a.mr.sge(0, 8)]
    )
    pair.a.qp.post_send(wr)
    got = pair.b.wait_ok()[0]
    assert got.wc_flags & e.IBV_WC_WITH_IMM
    assert socket.ntohl(got.imm_data) == 0x12345678


@pytest.mark.parametrize("size", [0, 8, 100_000])
def test_immediate_data_comes_with_a_write(pair, size: int) -> None:
    data = Random(size).randbytes(size)
    pair.a.mr.write(data)
    pair.b.qp.post_recv(RecvWR(7))
    pair.a.qp.post_send(rdma(pair, e.IBV_WR_RDMA_WRITE_WITH_IMM, size, imm_data=99))
    got = pair.b.wait_ok()[0]
    assert (got.wr_id, got.opcode) == (7, e.IBV_WC_RECV_RDMA_WITH_IMM)
    assert (got.byte_len, got.imm_data) == (size, 99)
    assert pair.b.mr.read(size) == data
    pair.a.wait_ok()


def test_a_send_can_invalidate_a_key_of_the_receiver(pair) -> None:
    with MR(pair.b.pd, 64, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE) as victim:
        pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
        wr = SendWR(1, e.IBV_WR_SEND_WITH_INV, sg=[pair.a.mr.sge(0, 8)])
        wr.invalidate_rkey = victim.rkey
        pair.a.qp.post_send(wr)
        got = pair.b.wait_ok()[0]
        assert got.wc_flags & e.IBV_WC_WITH_INV
        assert got.invalidated_rkey == victim.rkey
        pair.a.wait_ok()
        write = SendWR(2, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, 8)])
        write.set_wr_rdma(victim.rkey, victim.buf)
        pair.a.qp.post_send(write)
        assert pair.a.wait()[0].status is e.IBV_WC_REM_ACCESS_ERR


def test_fetch_and_add_returns_what_was_there(pair) -> None:
    pair.b.mr.write((40).to_bytes(8, "little"), offset=64)
    wr = SendWR(1, e.IBV_WR_ATOMIC_FETCH_AND_ADD, sg=[pair.a.mr.sge(8, 8)])
    for before in (40, 42):
        wr.set_wr_atomic(pair.b.mr.rkey, pair.b.mr.buf + 64, 2)
        pair.a.qp.post_send(wr)
        assert pair.a.wait_ok()[0].opcode == e.IBV_WC_FETCH_ADD
        assert int.from_bytes(pair.a.mr.read(8, 8), "little") == before
    assert int.from_bytes(pair.b.mr.read(8, 64), "little") == 44


def test_an_addition_wraps_at_64_bits(pair) -> None:
    pair.b.mr.write(b"\xff" * 8)
    wr = SendWR(1, e.IBV_WR_ATOMIC_FETCH_AND_ADD, sg=[pair.a.mr.sge(0, 8)])
    wr.set_wr_atomic(pair.b.mr.rkey, pair.b.mr.buf, 3)
    pair.a.qp.post_send(wr)
    pair.a.wait_ok()
    assert int.from_bytes(pair.b.mr.read(8), "little") == 2


@pytest.mark.parametrize(("expected", "after"), [(5, 9), (6, 5)])
def test_compare_and_swap_swaps_only_what_is_expected(pair, expected: int, after: int) -> None:
    pair.b.mr.write((5).to_bytes(8, "little"))
    wr = SendWR(1, e.IBV_WR_ATOMIC_CMP_AND_SWP, sg=[pair.a.mr.sge(0, 8)])
    wr.set_wr_atomic(pair.b.mr.rkey, pair.b.mr.buf, expected, 9)
    pair.a.qp.post_send(wr)
    assert pair.a.wait_ok()[0].opcode == e.IBV_WC_COMP_SWAP
    assert int.from_bytes(pair.a.mr.read(8), "little") == 5
    assert int.from_bytes(pair.b.mr.read(8), "little") == after


def test_elements_are_gathered_and_scattered(pair) -> None:
    pair.a.mr.write(b"helloWORLD")
    parts = [pair.b.mr.sge(100, 3), pair.b.mr.sge(200, 0), pair.b.mr.sge(300, 50)]
    pair.b.qp.post_recv(RecvWR(1, sg=parts))
    pair.a.qp.post_send(SendWR(1, sg=[pair.a.mr.sge(5, 5), pair.a.mr.sge(0, 5)]))
    assert pair.b.wait_ok()[0].byte_len == 10
    assert pair.b.mr.read(3, 100) + pair.b.mr.read(7, 300) == b"WORLDhello"
    pair.a.wait_ok()
    read = SendWR(2, e.IBV_WR_RDMA_READ, sg=[pair.a.mr.sge(64, 1), pair.a.mr.sge(128, 2)])
    read.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf + 100)
    pair.a.qp.post_send(read)
    pair.a.wait_ok()
    assert (pair.a.mr.read(1, 64), pair.a.mr.read(2, 128)) == (b"W", b"OR")


def test_inline_data_is_taken_when_posted(pair) -> None:
    flags = e.IBV_SEND_SIGNALED | e.IBV_SEND_INLINE
    pair.a.mr.write(b"inline")
    pair.a.qp.post_send(rdma(pair, e.IBV_WR_RDMA_WRITE, 6, send_flags=flags))
    pair.a.mr.write(b"<gone>")
    pair.a.wait_ok()
    assert pair.b.mr.read(6) == b"inline"


def test_only_what_is_signalled_completes(make_pair, mover) -> None:
    pair = make_pair(mover=mover, sq_sig_all=0)
    for wr_id in range(10):
        flags = e.IBV_SEND_SIGNALED if wr_id % 5 == 4 else 0
        pair.a.qp.post_send(rdma(pair, e.IBV_WR_RDMA_WRITE, 8, wr_id=wr_id, send_flags=flags))
    assert [wc.wr_id for wc in pair.a.wait_ok(2)] == [4, 9]
    assert pair.a.cq.poll(4) == (0, [])


def test_a_list_is_posted_in_its_order(pair) -> None:
    pair.b.qp.post_recv([RecvWR(n, sg=[pair.b.mr.sge(n * 8, 8)]) for n in range(20)])
    pair.a.mr.write(bytes(range(20)))
    pair.a.qp.post_send([SendWR(n, sg=[pair.a.mr.sge(n, 1)]) for n in range(20)])
    assert [wc.wr_id for wc in pair.b.wait_ok(20)] == list(range(20))
    assert [wc.wr_id for wc in pair.a.wait_ok(20)] == list(range(20))
    assert [pair.b.mr.read(1, n * 8)[0] for n in range(20)] == list(range(20))


def test_a_posted_list_leaves_its_requests_as_they_were(pair) -> None:
    tail = SendWR(3, sg=[pair.a.mr.sge(0, 1)])
    head = SendWR(1, sg=[pair.a.mr.sge(0, 1)], next_wr=tail)
    pair.b.qp.post_recv([RecvWR(n, sg=[pair.b.mr.sge()]) for n in range(4)])
    pair.a.qp.post_send([head, SendWR(2, sg=[pair.a.mr.sge(0, 1)])])
    assert [wc.wr_id for wc in pair.a.wait_ok(2)] == [1, 2]
    assert head.next_wr is tail
    pair.a.qp.post_send(head)
    assert [wc.wr_id for wc in pair.a.wait_ok(2)] == [1, 3]
    pair.a.qp.post_send([])


def test_a_request_waits_for_those_before_it(pair) -> None:
    """IBTA 9.5: a write behind a send is not executed before the send is received."""
    pair.a.mr.write(b"12345678")
    pair.a.qp.post_send(SendWR(1, sg=[pair.a.mr.sge(0, 8)]))
    pair.a.qp.post_send(rdma(pair, e.IBV_WR_RDMA_WRITE, 8, wr_id=2, at=64))
    with pytest.raises(TimeoutError):
        pair.a.cq.wait(1, timeout=0.05)
    assert pair.b.mr.read(8, 64) == bytes(8)
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge(0, 8)]))
    assert [wc.wr_id for wc in pair.a.wait_ok(2)] == [1, 2]
    assert pair.b.mr.read(8, 64) == b"12345678"


def test_a_fenced_send_waits_for_the_read_before_it(pair) -> None:
    pair.b.mr.write(b"new data", offset=512)
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge(0, 8)]))
    pair.a.qp.post_send(rdma(pair, e.IBV_WR_RDMA_READ, 8, wr_id=1, at=512))
    flags = e.IBV_SEND_SIGNALED | e.IBV_SEND_FENCE
    pair.a.qp.post_send(SendWR(2, sg=[pair.a.mr.sge(0, 8)], send_flags=flags))
    pair.b.wait_ok()
    assert pair.b.mr.read(8) == b"new data"
    assert [wc.wr_id for wc in pair.a.wait_ok(2)] == [1, 2]


@pytest.mark.parametrize("attempt", range(20))
def test_a_peer_that_is_not_ready_yet_gets_all_in_order(make_end, mover, attempt: int) -> None:
    a, b = make_end(0, mover=mover), make_end(1, mover=mover)
    to_a, to_b = address(a.qp), address(b.qp)
    connect_to(a.qp, to_b, timeout=0)
    a.mr.write(bytes(range(10)))
    a.qp.post_send([SendWR(n, sg=[a.mr.sge(n, 1)]) for n in range(10)])
    assert a.cq.poll(10) == (0, []), attempt
    b.qp.to_init(QPAttr())
    b.qp.post_recv([RecvWR(n, sg=[b.mr.sge(n * 8, 8)]) for n in range(10)])
    connect_to(b.qp, to_a)
    assert [wc.wr_id for wc in b.wait_ok(10)] == list(range(10))
    assert [wc.wr_id for wc in a.wait_ok(10)] == list(range(10))
    assert [b.mr.read(1, n * 8)[0] for n in range(10)] == list(range(10))


def test_both_ways_at_once(pair) -> None:
    for end, peer in ((pair.a, pair.b), (pair.b, pair.a)):
        end.qp.post_recv([RecvWR(100 + n, sg=[end.mr.sge(4096, 64)]) for n in range(30)])
        end.mr.write(peer.ctx.name.encode())
    for n in range(30):
        for end in (pair.a, pair.b):
            end.qp.post_send(SendWR(n, sg=[end.mr.sge(0, 10)]))
    for end in (pair.a, pair.b):
        found = sorted(wc.wr_id for wc in end.wait_ok(60))
        assert found == [*range(30), *range(100, 130)]


def test_a_queue_is_used_round_and_round(make_pair, mover) -> None:
    pair = make_pair(mover=mover, cap=QPCap(4, 4, 1, 1))
    for n in range(1000):
        pair.b.qp.post_recv(RecvWR(n, sg=[pair.b.mr.sge(0, 4)]))
        pair.a.mr.write(n.to_bytes(4, "little"))
        pair.a.qp.post_send(SendWR(n, sg=[pair.a.mr.sge(0, 4)]))
        assert pair.b.wait_ok()[0].wr_id == n
        assert int.from_bytes(pair.b.mr.read(4), "little") == n
        assert pair.a.wait_ok()[0].wr_id == n


def test_a_message_of_64_mib_arrives_whole(make_pair, mover) -> None:
    pair = make_pair(mover=mover, size=64 << 20)
    data = Random(0).randbytes(1 << 20) * 64
    pair.a.mr.write(data)
    pair.a.qp.post_send(rdma(pair, e.IBV_WR_RDMA_WRITE, 64 << 20))
    pair.a.wait_ok()
    assert pair.b.mr.read() == data


SPAN = 256
words = st.integers(0, (1 << 64) - 1)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, SPAN - 1), st.binary(min_size=1, max_size=64)),
        st.tuples(st.just("read"), st.integers(0, SPAN - 1), st.integers(1, 64)),
        st.tuples(st.just("add"), st.integers(0, SPAN // 8 - 1), words),
        st.tuples(st.just("swap"), st.integers(0, SPAN // 8 - 1), words),
    ),
    max_size=30,
)


@given(operations=operations)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_remote_memory_behaves_as_a_bytearray(pair, operations) -> None:
    model = bytearray(SPAN + 64)
    pair.b.mr.write(model)
    for kind, where, what in operations:
        if kind == "write":
            pair.a.mr.write(what)
            wr = rdma(pair, e.IBV_WR_RDMA_WRITE, len(what), at=where)
            model[where : where + len(what)] = what
            expected = b""
        elif kind == "read":
            wr = rdma(pair, e.IBV_WR_RDMA_READ, what, at=where)
            expected = bytes(model[where : where + what])
        else:
            at = where * 8
            before = int.from_bytes(model[at : at + 8], "little")
            opcode = e.IBV_WR_ATOMIC_FETCH_AND_ADD if kind == "add" else e.IBV_WR_ATOMIC_CMP_AND_SWP
            wr = SendWR(1, opcode, sg=[pair.a.mr.sge(0, 8)])
            operands = (what,) if kind == "add" else (before, what)
            wr.set_wr_atomic(pair.b.mr.rkey, pair.b.mr.buf + at, *operands)
            after = (before + what) % (1 << 64) if kind == "add" else what
            model[at : at + 8] = after.to_bytes(8, "little")
            expected = before.to_bytes(8, "little")
        pair.a.qp.post_send(wr)
        pair.a.wait_ok()
        assert pair.a.mr.read(len(expected)) == expected
    assert pair.b.mr.read(SPAN + 64) == bytes(model)
