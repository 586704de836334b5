# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of work requests and completions, made once and posted as often as wanted."""

import errno

import numpy as np
import pytest

from nupa.verbs import (
    SRQ,
    PostError,
    PyverbsUserError,
    QPCap,
    RecvWR,
    SendWR,
    SrqAttr,
    SrqInitAttr,
    WCBatch,
)
from nupa.verbs import enums as e


def write(pair, length: int = 8) -> SendWR:
    wr = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, length)])
    wr.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf)
    return wr


def test_a_batch_begins_as_copies_of_its_template(pair) -> None:
    batch = pair.a.qp.batch(3, write(pair))
    assert len(batch) == 3
    assert batch.wr["opcode"].tolist() == [e.IBV_WR_RDMA_WRITE] * 3
    assert batch.wr["remote_addr"].tolist() == [pair.b.mr.buf] * 3
    assert batch.wr["rkey"].tolist() == [pair.b.mr.rkey] * 3
    assert batch.sge.shape == (3, 1)
    assert batch.sge["lkey"].tolist() == [[pair.a.mr.lkey]] * 3


def test_columns_are_set_for_all_at_once(pair) -> None:
    batch = pair.a.qp.batch(16, write(pair))
    steps = np.arange(16, dtype=np.uint64)
    batch.wr["wr_id"] = 100 + steps
    batch.wr["remote_addr"] += steps * 64
    batch.sge["addr"][:, 0] += steps * 8
    pair.a.mr.write(np.arange(16, dtype=np.uint64))
    batch.post()
    wcs = WCBatch(64)
    assert pair.a.cq.poll_batch(wcs, at_least=16, timeout=pair.a.WAIT_S) == 16
    assert wcs.array["wr_id"][:16].tolist() == list(range(100, 116))
    assert not wcs[:16]["status"].any()
    assert wcs[0]["opcode"] == e.IBV_WC_RDMA_WRITE
    written = np.frombuffer(pair.b.mr.view, np.uint64)[: 16 * 8 : 8]
    assert written.tolist() == list(range(16))


def test_a_batch_can_be_posted_again_and_in_part(pair) -> None:
    batch = pair.a.qp.batch(8, write(pair))
    batch.wr["wr_id"] = np.arange(8)
    wcs = WCBatch(8)
    for count in (8, 3, 1, 0, None):
        batch.post(count)
        expected = 8 if count is None else count
        assert pair.a.cq.poll_batch(wcs, expected, timeout=pair.a.WAIT_S) == expected
        assert wcs.array["wr_id"][:expected].tolist() == list(range(expected))
        assert pair.a.cq.poll_batch(wcs) == 0


def test_several_elements_each(pair) -> None:
    pair.a.mr.write(b"abcdefgh")
    batch = pair.a.qp.batch(2, num_sge=2)
    batch.wr["opcode"] = e.IBV_WR_RDMA_WRITE
    batch.wr["send_flags"] = e.IBV_SEND_SIGNALED
    batch.wr["rkey"] = pair.b.mr.rkey
    batch.wr["remote_addr"] = pair.b.mr.buf + np.array([0, 16], dtype=np.uint64)
    batch.sge["addr"] = pair.a.mr.buf + np.array([[4, 0], [2, 6]], dtype=np.uint64)
    batch.sge["length"] = 2
    batch.sge["lkey"] = pair.a.mr.lkey
    batch.post()
    pair.a.wait_ok(2)
    assert (pair.b.mr.read(4), pair.b.mr.read(4, 16)) == (b"efab", b"cdgh")


def test_atomics_have_their_own_columns(pair) -> None:
    wr = SendWR(1, e.IBV_WR_ATOMIC_FETCH_AND_ADD, sg=[pair.a.mr.sge(0, 8)])
    wr.set_wr_atomic(pair.b.mr.rkey, pair.b.mr.buf, 0)
    batch = pair.a.qp.batch(4, wr)
    batch.wr["compare_add"] = [1, 10, 100, 1000]
    assert batch.wr["atomic_rkey"].tolist() == [pair.b.mr.rkey] * 4
    batch.post()
    pair.a.wait_ok(4)
    assert int.from_bytes(pair.b.mr.read(8), "little") == 1111


def test_receives_in_batches(pair) -> None:
    receives = pair.b.qp.recv_batch(4, RecvWR(sg=[pair.b.mr.sge(0, 8)]))
    receives.wr["wr_id"] = [4, 5, 6, 7]
    receives.sge["addr"][:, 0] += np.arange(4, dtype=np.uint64) * 8
    receives.post()
    pair.a.mr.write(b"wxyz")
    pair.a.qp.post_send([SendWR(n, sg=[pair.a.mr.sge(n, 1)]) for n in range(4)])
    wcs = WCBatch(4)
    assert pair.b.cq.poll_batch(wcs, 4, pair.b.WAIT_S) == 4
    assert wcs.array["wr_id"].tolist() == [4, 5, 6, 7]
    assert wcs.array["src_qp"].tolist() == [pair.a.qp.qp_num] * 4
    assert bytes(pair.b.mr.view[:32:8]) == b"wxyz"


def test_receives_in_batches_for_a_shared_queue(make_pair) -> None:
    pair = make_pair(make_srq=lambda pd: SRQ(pd, SrqInitAttr(SrqAttr(max_wr=8))))
    pair.b.srq.recv_batch(3, RecvWR(5, sg=[pair.b.mr.sge(0, 8)])).post()
    pair.a.qp.post_send([SendWR(n, sg=[pair.a.mr.sge(n, 1)]) for n in range(3)])
    assert [wc.wr_id for wc in pair.b.wait_ok(3)] == [5, 5, 5]


def test_a_batch_cut_short_says_how_many_were_taken(make_pair) -> None:
    pair = make_pair(cap=QPCap(4, 4, 1, 1))
    room = pair.a.qp.query(e.IBV_QP_CAP)[0].cap.max_recv_wr
    receives = pair.a.qp.recv_batch(room + 3, RecvWR(sg=[pair.a.mr.sge()]))
    with pytest.raises(PostError, match=f"at {room} of {room + 3}") as caught:
        receives.post()
    assert (caught.value.posted, caught.value.error_code) == (room, errno.ENOMEM)


def test_a_send_batch_cut_short_executes_what_was_taken(pair) -> None:
    batch = pair.a.qp.batch(4, write(pair))
    batch.wr["wr_id"] = np.arange(4)
    batch.wr["opcode"][2] = e.IBV_WR_BIND_MW
    with pytest.raises(PostError) as caught:
        batch.post()
    assert caught.value.posted == 2
    assert [wc.wr_id for wc in pair.a.wait_ok(2)] == [0, 1]
    assert pair.a.cq.poll(4) == (0, [])


def test_waiting_ends_when_the_time_is_over(pair) -> None:
    pair.a.qp.batch(2, write(pair)).post()
    wcs = WCBatch(8)
    assert pair.a.cq.poll_batch(wcs, at_least=3, timeout=0.02) == 2
    with pytest.raises(ValueError, match="wait for 9 completions with room for 8"):
        pair.a.cq.poll_batch(wcs, at_least=9)


def test_errors_show_in_the_array(pair) -> None:
    batch = pair.a.qp.batch(3, write(pair))
    batch.wr["rkey"][1] ^= 0x5A5A5A
    batch.post()
    wcs = WCBatch(3)
    assert pair.a.cq.poll_batch(wcs, 3, pair.a.WAIT_S) == 3
    assert wcs.array["status"].tolist() == [
        e.IBV_WC_SUCCESS,
        e.IBV_WC_REM_ACCESS_ERR,
        e.IBV_WC_WR_FLUSH_ERR,
    ]


def test_what_makes_no_batch_is_refused(pair) -> None:
    for make in (lambda: pair.a.qp.batch(0), lambda: WCBatch(0)):
        with pytest.raises(PyverbsUserError, match="at least one"):
            make()
    for count in (-1, 3):
        with pytest.raises(PyverbsUserError, match=f"post {count} of a batch of 2"):
            pair.a.qp.batch(2).post(count)


def test_a_batch_of_a_closed_qp_says_so(pair) -> None:
    batch = pair.a.qp.batch(1, write(pair))
    pair.a.qp.close()
    with pytest.raises(PyverbsUserError, match="QP is closed"):
        batch.post()


def test_the_arrays_keep_their_memory(pair) -> None:
    column = pair.a.qp.batch(1000).wr["wr_id"]
    column[:] = np.arange(1000)
    other = [pair.a.qp.batch(1000) for _ in range(10)]
    assert column.tolist() == list(range(1000))
    assert len(other) == 10
