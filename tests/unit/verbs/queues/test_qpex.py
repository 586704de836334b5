# SPDX-License-Identifier: BSD-3-Clause
"""Extended queue pairs, posted to call by call (man 3 ibv_wr_post)."""

import socket

import pytest

from nupa.verbs import QP, PyverbsUserError, QPCap, QPEx, QPInitAttr, QPInitAttrEx, RecvWR, connect
from nupa.verbs import enums as e
from nupa.verbs.qp import DataBuffer

ALL_OPS = (
    e.IBV_QP_EX_WITH_RDMA_WRITE
    | e.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | e.IBV_QP_EX_WITH_SEND
    | e.IBV_QP_EX_WITH_SEND_WITH_IMM
    | e.IBV_QP_EX_WITH_RDMA_READ
    | e.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | e.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
)


@pytest.fixture
def ex(pair) -> QPEx:
    """Replaces a's QP."""
    attr = QPInitAttrEx(
        e.IBV_QPT_RC,
        None,
        pair.a.cq,
        pair.a.cq,
        cap=QPCap(16, 16, 4, 4, 64),
        comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd=pair.a.pd,
        send_ops_flags=ALL_OPS,
    )
    pair.a.qp = QPEx(pair.a.ctx, attr)
    pair.b.qp.close()
    pair.b.qp = QP(pair.b.pd, QPInitAttr(e.IBV_QPT_RC, None, pair.b.cq, pair.b.cq, cap=QPCap()))
    connect(pair.a.qp, pair.b.qp)
    return pair.a.qp


def test_it_sends_with_immediate_data(ex: QPEx, pair) -> None:
    pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
    pair.a.mr.write(b"hello")
    ex.wr_start()
    ex.wr_id, ex.wr_flags = 5, e.IBV_SEND_SIGNALED
    ex.wr_send_imm(0x1234)
    ex.wr_set_sge(pair.a.mr.sge(0, 5))
    ex.wr_complete()
    got = pair.b.wait_ok()[0]
    assert socket.ntohl(got.imm_data) == 0x1234
    assert pair.b.mr.read(got.byte_len) == b"hello"
    assert pair.a.wait_ok()[0].wr_id == 5


def test_several_requests_are_posted_at_once(ex: QPEx, pair) -> None:
    pair.a.mr.write(b"abcdef")
    ex.wr_start()
    ex.wr_id, ex.wr_flags = 1, e.IBV_SEND_SIGNALED
    ex.wr_rdma_write(pair.b.mr.rkey, pair.b.mr.buf + 8)
    ex.wr_set_sge_list(2, [pair.a.mr.sge(3, 3), pair.a.mr.sge(0, 3)])
    ex.wr_id = 2
    ex.wr_rdma_read(pair.b.mr.rkey, pair.b.mr.buf + 8)
    ex.wr_set_sge(pair.a.mr.sge(64, 6))
    ex.wr_id = 3
    ex.wr_atomic_fetch_add(pair.b.mr.rkey, pair.b.mr.buf + 256, 5)
    ex.wr_set_sge(pair.a.mr.sge(128, 8))
    ex.wr_id = 4
    ex.wr_atomic_cmp_swp(pair.b.mr.rkey, pair.b.mr.buf + 256, 5, 9)
    ex.wr_set_sge(pair.a.mr.sge(136, 8))
    assert pair.a.cq.poll(4) == (0, [])
    ex.wr_complete()
    assert [wc.wr_id for wc in pair.a.wait_ok(4)] == [1, 2, 3, 4]
    assert pair.a.mr.read(6, 64) == b"defabc"
    assert pair.b.mr.read(8, 256) == (9).to_bytes(8, "little")


def test_inline_data_is_taken_at_once(ex: QPEx, pair) -> None:
    pair.a.mr.write(b"inline!?")
    ex.wr_start()
    ex.wr_id, ex.wr_flags = 1, e.IBV_SEND_SIGNALED
    ex.wr_rdma_write(pair.b.mr.rkey, pair.b.mr.buf)
    ex.wr_set_inline_data_list(2, [DataBuffer(pair.a.mr.buf + 6, 2), DataBuffer(pair.a.mr.buf, 6)])
    pair.a.mr.write(bytes(8))
    ex.wr_complete()
    pair.a.wait_ok()
    assert pair.b.mr.read(8) == b"!?inline"


def test_what_is_aborted_never_happened(ex: QPEx, pair) -> None:
    ex.wr_start()
    ex.wr_id, ex.wr_flags = 1, e.IBV_SEND_SIGNALED
    ex.wr_rdma_write(pair.b.mr.rkey, pair.b.mr.buf)
    ex.wr_set_sge(pair.a.mr.sge(0, 8))
    ex.wr_abort()
    ex.wr_start()
    ex.wr_id = 2
    ex.wr_rdma_write(pair.b.mr.rkey, pair.b.mr.buf)
    ex.wr_set_inline_data(pair.a.mr.buf, 8)
    ex.wr_complete()
    assert [wc.wr_id for wc in pair.a.wait_ok()] == [2]
    assert pair.a.cq.poll(4) == (0, [])


def test_without_operations_it_cannot_post(end) -> None:
    attr = QPInitAttrEx(
        e.IBV_QPT_RC,
        None,
        end.cq,
        end.cq,
        cap=QPCap(),
        comp_mask=e.IBV_QP_INIT_ATTR_PD,
        pd=end.pd,
    )
    with QPEx(end.ctx, attr) as qp, pytest.raises(PyverbsUserError, match="send_ops_flags"):
        qp.wr_start()


def test_a_closed_one_says_so(ex: QPEx) -> None:
    ex.close()
    with pytest.raises(PyverbsUserError, match="QPEx is closed"):
        ex.wr_start()
