# SPDX-License-Identifier: BSD-3-Clause
"""Memory windows by nupa.verbs: bound, used, closed; the rules are tested in C, by each mover."""

import errno

import pytest

from nupa.verbs import MR, PD, QPCap, QPEx, QPInitAttrEx, RecvWR, SendWR, connect
from nupa.verbs import enums as e
from nupa.verbs.base import inc_rkey
from nupa.verbs.base.errors import PyverbsRDMAError
from nupa.verbs.mr import MW, MWBind, MWBindInfo

BINDABLE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_MW_BIND
WRITE = e.IBV_ACCESS_REMOTE_WRITE


@pytest.fixture
def pair(make_pair, mover):
    return make_pair(mover=mover)


@pytest.fixture
def region(pair):
    """A region of b that its own key does not open to peers."""
    return MR(pair.b.pd, 4096, BINDABLE)


def write_by(pair, rkey: int, addr: int, length: int = 8) -> e.ibv_wc_status:
    """Returns the status of an RDMA write by a."""
    wr = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, length)])
    wr.set_wr_rdma(rkey, addr)
    pair.a.qp.post_send(wr)
    return pair.a.wait()[0].status


def bind(pair, mw: MW, info: MWBindInfo) -> e.ibv_wc_status:
    pair.b.qp.bind_mw(mw, MWBind(info, e.IBV_SEND_SIGNALED, 5))
    wc = pair.b.wait()[0]
    assert wc.wr_id == 5
    return wc.status


def test_a_bound_window_opens_its_part_of_a_region(pair, region: MR) -> None:
    with MW(pair.b.pd, e.IBV_MW_TYPE_1) as mw:
        before = mw.rkey
        info = MWBindInfo(region, region.buf + 64, 64, WRITE)
        assert bind(pair, mw, info) is e.IBV_WC_SUCCESS
        assert mw.rkey == inc_rkey(before)
        pair.a.mr.write(b"windowed")
        assert write_by(pair, mw.rkey, region.buf + 64) is e.IBV_WC_SUCCESS
        assert region.read(8, 64) == b"windowed"
        assert write_by(pair, mw.rkey, region.buf + 63) is e.IBV_WC_REM_ACCESS_ERR


def test_a_closed_window_is_closed_for_peers(pair, region: MR) -> None:
    mw = MW(pair.b.pd, e.IBV_MW_TYPE_1)
    bind(pair, mw, MWBindInfo(region, region.buf, 64, WRITE))
    rkey = mw.rkey
    mw.close()
    assert write_by(pair, rkey, region.buf) is e.IBV_WC_REM_ACCESS_ERR
    assert region.read() == bytes(4096)


def test_a_type_2_window_is_bound_by_a_work_request_and_invalidated_by_another(
    pair, region: MR
) -> None:
    with MW(pair.b.pd, e.IBV_MW_TYPE_2) as mw:
        wr = SendWR(2, e.IBV_WR_BIND_MW)
        wr.set_bind_wr(mw, MWBindInfo(region, region.buf, 64, WRITE))
        pair.b.qp.post_send(wr)
        assert pair.b.wait_ok()[0].opcode == e.IBV_WC_BIND_MW
        assert write_by(pair, wr.rkey, region.buf) is e.IBV_WC_SUCCESS
        inv = SendWR(3, e.IBV_WR_LOCAL_INV)
        inv.imm_data = wr.rkey
        pair.b.qp.post_send(inv)
        assert pair.b.wait_ok()[0].opcode == e.IBV_WC_LOCAL_INV
        assert write_by(pair, wr.rkey, region.buf) is e.IBV_WC_REM_ACCESS_ERR


def test_the_peer_invalidates_a_type_2_window_with_a_send(pair, region: MR) -> None:
    with MW(pair.b.pd, e.IBV_MW_TYPE_2) as mw:
        wr = SendWR(2, e.IBV_WR_BIND_MW)
        wr.set_bind_wr(mw, MWBindInfo(region, region.buf, 64, WRITE))
        pair.b.qp.post_send(wr)
        pair.b.wait_ok()
        pair.b.qp.post_recv(RecvWR(7, sg=[pair.b.mr.sge()]))
        send = SendWR(3, e.IBV_WR_SEND_WITH_INV, sg=[pair.a.mr.sge(0, 8)])
        send.invalidate_rkey = wr.rkey
        pair.a.qp.post_send(send)
        assert pair.b.wait_ok()[0].invalidated_rkey == wr.rkey
        pair.a.wait_ok()
        assert write_by(pair, wr.rkey, region.buf) is e.IBV_WC_REM_ACCESS_ERR


def test_a_bind_beyond_the_region_fails_as_a_completion(pair, region: MR) -> None:
    with MW(pair.b.pd, e.IBV_MW_TYPE_1) as mw:
        info = MWBindInfo(region, region.buf + 1, 4096, WRITE)
        assert bind(pair, mw, info) is e.IBV_WC_MW_BIND_ERR
        assert pair.b.qp.qp_state == e.IBV_QPS_ERR


def test_a_region_with_a_bound_window_cannot_be_closed(pair, region: MR) -> None:
    mw = MW(pair.b.pd, e.IBV_MW_TYPE_1)
    bind(pair, mw, MWBindInfo(region, region.buf, 64, WRITE))
    with pytest.raises(PyverbsRDMAError, match="close what still uses it") as caught:
        region.close()
    assert caught.value.error_code == errno.EBUSY
    mw.close()
    region.close()


def test_closing_the_context_closes_bound_windows_before_their_regions(pair, region: MR) -> None:
    mw = MW(pair.b.pd, e.IBV_MW_TYPE_1)
    bind(pair, mw, MWBindInfo(region, region.buf, 64, WRITE))
    pair.b.ctx.close()
    assert region.buf == 0


def test_an_extended_qp_binds_a_window(make_end, mover: str) -> None:
    a, b = make_end(0, mover=mover), make_end(1, mover=mover)
    init = QPInitAttrEx(
        qp_type=e.IBV_QPT_RC,
        scq=b.cq,
        rcq=b.cq,
        cap=QPCap(16, 16, 1, 1, 0),
        pd=b.pd,
        comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        send_ops_flags=e.IBV_QP_EX_WITH_BIND_MW | e.IBV_QP_EX_WITH_LOCAL_INV,
    )
    b.qp = QPEx(b.ctx, init)
    connect(a.qp, b.qp)
    region = MR(b.pd, 4096, BINDABLE)
    with MW(b.pd, e.IBV_MW_TYPE_2) as mw:
        rkey = inc_rkey(mw.rkey)
        b.qp.wr_start()
        b.qp.wr_id = 9
        b.qp.wr_flags = e.IBV_SEND_SIGNALED
        b.qp.wr_bind_mw(mw, rkey, MWBindInfo(region, region.buf, 64, WRITE))
        b.qp.wr_complete()
        assert (b.wait_ok()[0].wr_id, inc_rkey(mw.rkey)) == (9, rkey)
        wr = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[a.mr.sge(0, 64)])
        wr.set_wr_rdma(rkey, region.buf)
        a.qp.post_send(wr)
        a.wait_ok()
        b.qp.wr_start()
        b.qp.wr_bind_mw(mw, rkey ^ 0x100, MWBindInfo(region, region.buf, 64, WRITE))
        with pytest.raises(PyverbsRDMAError) as caught:
            b.qp.wr_complete()
        assert caught.value.error_code == errno.EINVAL


def test_a_window_of_another_type_is_refused(end) -> None:
    with pytest.raises(PyverbsRDMAError, match="type 1 or 2") as caught:
        MW(end.pd, 3)
    assert caught.value.error_code == errno.EINVAL


def test_a_window_keeps_its_protection_domain_open(end) -> None:
    pd = PD(end.ctx)
    mw = MW(pd, e.IBV_MW_TYPE_1)
    assert mw.pd is pd
    pd.close()
    assert mw.pd is None
