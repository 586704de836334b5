# SPDX-License-Identifier: BSD-3-Clause
"""Atomic writes and flushes: stores, order, and refusals."""

import errno

import pytest

from nupa.core.watch import Watch
from nupa.packet.scapy.transport import BTH, FETH, RETH
from nupa.verbs import MR, QPAttr, QPCap, QPEx, QPInitAttrEx, SendWR, connect
from nupa.verbs import enums as e
from nupa.verbs.base.errors import PyverbsRDMAError, PyverbsUserError
from tests.unit.capture.watched import names, transport

WRITE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
FLUSH = WRITE | e.IBV_ACCESS_FLUSH_GLOBAL
VALUE = b"8 bytes!"


@pytest.fixture(params=["local", "relay", "cma"])
def pair(request, make_pair):
    """RC; a's QP is an extended one, and b's lets itself be flushed."""
    pair = make_pair(mover=request.param, path=None)
    init = QPInitAttrEx(
        qp_type=e.IBV_QPT_RC,
        scq=pair.a.cq,
        rcq=pair.a.cq,
        cap=QPCap(16, 16, 2, 1, 16),
        pd=pair.a.pd,
        comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        send_ops_flags=e.IBV_QP_EX_WITH_ATOMIC_WRITE
        | e.IBV_QP_EX_WITH_FLUSH
        | e.IBV_QP_EX_WITH_RDMA_WRITE,
    )
    pair.a.qp = QPEx(pair.a.ctx, init)
    reconnect(pair)
    return pair


def reconnect(pair) -> None:
    for qp in (pair.a.qp, pair.b.qp):
        qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
    connect(pair.a.qp, pair.b.qp, access=FLUSH)


def atomic_write(pair, rkey: int, addr: int) -> e.ibv_wc_status:
    qp = pair.a.qp
    qp.wr_start()
    qp.wr_id, qp.wr_flags = 5, e.IBV_SEND_SIGNALED
    qp.wr_atomic_write(rkey, addr, VALUE)
    qp.wr_complete()
    wc = pair.a.wait()[0]
    assert wc.wr_id == 5
    if wc.status is e.IBV_WC_SUCCESS:
        assert wc.opcode == e.IBV_WC_ATOMIC_WRITE
    return wc.status


def flush(
    pair,
    rkey: int,
    addr: int,
    length: int,
    kind: int = e.IBV_FLUSH_GLOBAL,
    level: int = e.IBV_FLUSH_RANGE,
) -> e.ibv_wc_status:
    """Writes a's bytes and flushes; returns the status of the flush."""
    qp = pair.a.qp
    qp.wr_start()
    qp.wr_id, qp.wr_flags = 6, 0
    qp.wr_rdma_write(pair.b.mr.rkey, pair.b.mr.buf)
    qp.wr_set_sge(pair.a.mr.sge(0, 64))
    qp.wr_id, qp.wr_flags = 7, e.IBV_SEND_SIGNALED
    qp.wr_flush(rkey, addr, length, kind, level)
    qp.wr_complete()
    wc = pair.a.wait()[0]
    assert wc.wr_id == 7
    if wc.status is e.IBV_WC_SUCCESS:
        assert wc.opcode == e.IBV_WC_FLUSH
    return wc.status


def test_an_atomic_write_stores_its_eight_bytes(pair) -> None:
    assert atomic_write(pair, pair.b.mr.rkey, pair.b.mr.buf + 8) is e.IBV_WC_SUCCESS
    assert pair.b.mr.read(24) == bytes(8) + VALUE + bytes(8)


def test_an_atomic_write_can_be_posted_from_memory_and_inline(pair) -> None:
    pair.a.mr.write(VALUE + b"another!")
    for at, flags in ((0, 0), (8, e.IBV_SEND_INLINE)):
        wr = SendWR(1, e.IBV_WR_ATOMIC_WRITE, sg=[pair.a.mr.sge(at, 8)])
        wr.send_flags = flags | e.IBV_SEND_SIGNALED
        wr.set_wr_rdma(pair.b.mr.rkey, pair.b.mr.buf + at)
        pair.a.qp.post_send(wr)
        pair.a.wait_ok()
    assert pair.b.mr.read(16) == VALUE + b"another!"
    wr = SendWR(1, e.IBV_WR_ATOMIC_WRITE, sg=[pair.a.mr.sge(0, 9)])
    with pytest.raises(PyverbsRDMAError) as caught:
        pair.a.qp.post_send(wr)
    assert caught.value.error_code == errno.EINVAL
    with pytest.raises(PyverbsUserError, match="8 bytes, got 7"):
        pair.a.qp.wr_atomic_write(0, 0, b"7 bytes")


def test_an_atomic_write_is_aligned_inside_and_allowed(pair) -> None:
    region = MR(pair.b.pd, 64, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC)
    assert atomic_write(pair, region.rkey, region.buf) is e.IBV_WC_REM_ACCESS_ERR
    reconnect(pair)
    region = MR(pair.b.pd, 64, WRITE)
    assert atomic_write(pair, region.rkey, region.buf + 4) is e.IBV_WC_REM_INV_REQ_ERR
    reconnect(pair)
    assert atomic_write(pair, region.rkey, region.buf + 64) is e.IBV_WC_REM_ACCESS_ERR
    assert region.read() == bytes(64)


def test_a_flush_completes_behind_what_it_flushes(pair) -> None:
    region = MR(pair.b.pd, 4096, FLUSH)
    pair.a.mr.write(b"flushed")
    assert flush(pair, region.rkey, region.buf, 4096) is e.IBV_WC_SUCCESS
    assert pair.b.mr.read(7) == b"flushed"
    assert flush(pair, region.rkey, 0, 0, level=e.IBV_FLUSH_MR) is e.IBV_WC_SUCCESS


def test_a_flush_that_the_region_does_not_allow_is_refused(pair) -> None:
    region = MR(pair.b.pd, 4096, FLUSH)
    for rkey, addr, length, kind in (
        (pair.b.mr.rkey, pair.b.mr.buf, 64, e.IBV_FLUSH_GLOBAL),
        (region.rkey, region.buf + 1, 4096, e.IBV_FLUSH_GLOBAL),
        (region.rkey, region.buf, 64, e.IBV_FLUSH_PERSISTENT),
        (region.rkey ^ 1, region.buf, 64, e.IBV_FLUSH_GLOBAL),
    ):
        assert flush(pair, rkey, addr, length, kind) is e.IBV_WC_REM_ACCESS_ERR
        reconnect(pair)
    connect_without_flush(pair)
    assert flush(pair, region.rkey, region.buf, 64) is e.IBV_WC_REM_ACCESS_ERR


def connect_without_flush(pair) -> None:
    for qp in (pair.a.qp, pair.b.qp):
        qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
    connect(pair.a.qp, pair.b.qp)


def test_what_cannot_be_meant_is_not_posted(pair) -> None:
    for kind, level in ((0, 0), (4, 0), (1, 2)):
        with pytest.raises(PyverbsRDMAError) as caught:
            flush(pair, pair.b.mr.rkey, pair.b.mr.buf, 64, kind, level)
        assert caught.value.error_code == errno.EINVAL
    with pytest.raises(PyverbsRDMAError) as caught:
        pair.a.qp.post_send(SendWR(1, e.IBV_WR_FLUSH))
    assert caught.value.error_code == errno.EINVAL


def test_no_memory_here_is_persistent(end) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        MR(end.pd, 64, WRITE | e.IBV_ACCESS_FLUSH_PERSISTENT)
    assert caught.value.error_code == errno.EOPNOTSUPP


def test_a_watch_shows_what_is_written_and_flushed(pair, fabric) -> None:
    with Watch(fabric, ("transport",)) as watch:
        assert atomic_write(pair, pair.b.mr.rkey, pair.b.mr.buf + 8) is e.IBV_WC_SUCCESS
        mr = MR(pair.b.pd, 4096, FLUSH)
        assert flush(pair, mr.rkey, mr.buf, 100) is e.IBV_WC_SUCCESS
        packets = transport(watch)
    assert names(packets)[:2] == ["ATOMIC_WRITE", "RDMA_READ_RESPONSE_ONLY"]
    written, answer = packets[:2]
    assert (written[RETH].va, written[RETH].dmalen) == (pair.b.mr.buf + 8, 8)
    assert bytes(written[RETH].payload)[:8] == VALUE
    assert answer[BTH].psn == written[BTH].psn
    flushed = next(p for p in packets if FETH in p)
    assert (flushed[FETH].selectivity, flushed[FETH].placement) == (0, 1)
    assert (flushed[RETH].va, flushed[RETH].rkey, flushed[RETH].dmalen) == (mr.buf, mr.rkey, 100)
    # The WRITE before it may be acknowledged by itself, before or behind that.
    answers = zip(names(packets), packets, strict=True)
    psns = [p[BTH].psn for name, p in answers if name == "RDMA_READ_RESPONSE_ONLY"]
    assert psns == [written[BTH].psn, flushed[BTH].psn]
    mr.close()
