# SPDX-License-Identifier: BSD-3-Clause
"""Connecting QPs."""

import json
import time

import pytest

from nupa.fabric import Fabric
from nupa.verbs import (
    CQ,
    MR,
    PD,
    QP,
    Address,
    Context,
    PyverbsUserError,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    address,
    connect,
    connect_to,
)
from nupa.verbs import enums as e


def test_an_address_travels_as_json(make_end) -> None:
    a, b = make_end(0), make_end(1)
    told = json.dumps(address(b.qp, psn=77).as_dict())
    heard = Address(**json.loads(told))
    assert heard == address(b.qp, psn=77)
    assert heard.gid == b.ctx.query_gid(1, 0).gid
    connect_to(a.qp, heard, psn=5)
    connect_to(b.qp, address(a.qp, psn=5), psn=77)
    b.qp.post_recv(RecvWR(1, sg=[b.mr.sge()]))
    a.qp.post_send(SendWR(2, sg=[a.mr.sge(0, 8)]))
    assert b.wait_ok()[0].byte_len == 8
    attr, _ = a.qp.query(e.IBV_QP_SQ_PSN | e.IBV_QP_RQ_PSN)
    assert attr.rq_psn == 77


@pytest.mark.parametrize("qp_type", [e.IBV_QPT_RC, e.IBV_QPT_UC])
@pytest.mark.parametrize("gid_index", [0, 1])
def test_two_qps_are_connected_by_any_gid(make_end, qp_type: int, gid_index: int) -> None:
    a, b = make_end(0, qp_type), make_end(1, qp_type)
    connect(a.qp, b.qp, gid_index=gid_index)
    assert a.qp.qp_state is b.qp.qp_state is e.IBV_QPS_RTS
    a.qp.post_recv(RecvWR(1, sg=[a.mr.sge()]))
    b.qp.post_send(SendWR(2, sg=[b.mr.sge(0, 8)]))
    assert a.wait_ok()[0].src_qp == b.qp.qp_num


def test_two_qps_of_one_host_are_connected(make_end) -> None:
    a, b = make_end(0), make_end(0)
    connect(a.qp, b.qp)
    a.mr.write(b"loopback")
    write = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[a.mr.sge(0, 8)])
    write.set_wr_rdma(b.mr.rkey, b.mr.buf)
    a.qp.post_send(write)
    a.wait_ok()
    assert b.mr.read(8) == b"loopback"


def test_a_qp_is_connected_to_itself(end) -> None:
    connect_to(end.qp, address(end.qp))
    end.qp.post_recv(RecvWR(1, sg=[end.mr.sge(64, 8)]))
    end.mr.write(b"echo")
    end.qp.post_send(SendWR(2, sg=[end.mr.sge(0, 4)]))
    assert {wc.wr_id for wc in end.wait_ok(2)} == {1, 2}
    assert end.mr.read(4, 64) == b"echo"


def test_the_address_of_a_closed_qp_is_refused(end) -> None:
    end.qp.close()
    with pytest.raises(PyverbsUserError, match="QP is closed"):
        address(end.qp)


def test_who_sent_to_itself_waits_for_nobody_at_the_end(fabric: Fabric) -> None:
    def closing_s() -> float:
        ctx = Context(fabric=fabric, host=0)
        pd, cq = PD(ctx), CQ(ctx, 100)
        mr = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
        init = QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=QPCap(4, 4))
        one, two = QP(pd, init), QP(pd, init)
        connect(one, two)
        two.post_recv(RecvWR(sg=[mr.sge()]))
        one.post_send(SendWR(sg=[mr.sge()]))
        cq.wait(2, 10)
        for qp in (one, two):
            qp.close()
        start = time.monotonic()
        ctx.close()
        return time.monotonic() - start

    # The engine lingers for 1 s where a peer may still read; the median, on a busy machine.
    assert sorted(closing_s() for _ in range(5))[2] < 0.5
