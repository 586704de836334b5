# SPDX-License-Identifier: BSD-3-Clause
"""Unreliable connections and datagrams."""

import socket
from random import Random

import pytest

from nupa.verbs import (
    AH,
    GID,
    GRH,
    AHAttr,
    GlobalRoute,
    PostError,
    PyverbsRDMAError,
    PyverbsUserError,
    RecvWR,
    SendWR,
    connect,
)
from nupa.verbs import enums as e

GRH_BYTES = 40
MTU = 4096


@pytest.fixture
def uc(make_pair, mover):
    return make_pair(e.IBV_QPT_UC, mover=mover)


@pytest.fixture
def ud(make_pair):
    return make_pair(e.IBV_QPT_UD)


def handle(end, peer, gid_index: int = 1) -> AH:
    """Sends to *peer*, from *end*."""
    route = GlobalRoute(dgid=peer.ctx.query_gid(1, gid_index), sgid_index=gid_index, hop_limit=7)
    route.flow_label, route.traffic_class = 0x12345, 0x20
    return AH(end.pd, attr=AHAttr(is_global=1, port_num=1, gr=route))


def datagram(
    pair, size: int, *, wr_id: int = 1, qkey: int | None = None, gid_index: int = 1, **options
) -> SendWR:
    wr = SendWR(wr_id, sg=[pair.a.mr.sge(0, size)], **options)
    key = pair.a.QKEY if qkey is None else qkey
    wr.set_wr_ud(handle(pair.a, pair.b, gid_index), pair.b.qp.qp_num, key)
    return wr


@pytest.mark.parametrize("size", [0, 8, 4096, 50_000])
def test_uc_sends_and_writes(uc, size: int) -> None:
    data = Random(size).randbytes(size)
    uc.a.mr.write(data)
    uc.b.qp.post_recv([RecvWR(7, sg=[uc.b.mr.sge()]), RecvWR(8)])
    write = SendWR(2, e.IBV_WR_RDMA_WRITE_WITH_IMM, imm_data=5, sg=[uc.a.mr.sge(0, size)])
    write.set_wr_rdma(uc.b.mr.rkey, uc.b.mr.buf)
    uc.a.qp.post_send([SendWR(1, sg=[uc.a.mr.sge(0, size)]), write])
    first, second = uc.b.wait_ok(2)
    assert (first.wr_id, first.opcode, first.byte_len) == (7, e.IBV_WC_RECV, size)
    assert (second.wr_id, second.opcode) == (8, e.IBV_WC_RECV_RDMA_WITH_IMM)
    assert (second.byte_len, second.imm_data) == (size, 5)
    assert uc.b.mr.read(size) == data
    assert [wc.wr_id for wc in uc.a.wait_ok(2)] == [1, 2]


@pytest.mark.parametrize("opcode", [e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_FETCH_AND_ADD])
def test_uc_neither_reads_nor_does_atomics(uc, opcode: int) -> None:
    wr = SendWR(1, opcode, sg=[uc.a.mr.sge(0, 8)])
    with pytest.raises(PostError):
        uc.a.qp.post_send(wr)


def test_uc_drops_what_is_not_received(uc, make_pair, mover) -> None:
    other = make_pair(e.IBV_QPT_UC, mover=mover)
    other.b.qp.post_recv(RecvWR(8, sg=[other.b.mr.sge()]))
    uc.a.qp.post_send(SendWR(1, sg=[uc.a.mr.sge(0, 8)]))
    assert uc.a.wait_ok()[0].wr_id == 1
    other.a.qp.post_send(SendWR(2, sg=[other.a.mr.sge(0, 8)]))
    other.b.wait_ok()  # so the one before it, between the same hosts, was seen too
    uc.a.mr.write(b"received")
    uc.b.qp.post_recv(RecvWR(7, sg=[uc.b.mr.sge()]))
    uc.a.qp.post_send(SendWR(3, sg=[uc.a.mr.sge(0, 8)]))
    assert uc.b.wait_ok()[0].wr_id == 7
    assert uc.b.mr.read(8) == b"received"


def test_uc_drops_a_write_with_a_wrong_key(uc) -> None:
    wr = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[uc.a.mr.sge(0, 8)])
    wr.set_wr_rdma(uc.b.mr.rkey ^ 0x5A5A5A, uc.b.mr.buf)
    uc.a.mr.write(b"intruder")
    uc.a.qp.post_send(wr)
    assert uc.a.wait_ok()[0].wr_id == 1
    assert uc.b.cq.poll() == (0, [])
    assert uc.b.mr.read(8) == bytes(8)
    assert uc.b.qp.query(e.IBV_QP_STATE)[0].qp_state is e.IBV_QPS_RTS


@pytest.mark.parametrize("size", [0, 1, 8, 200, 1000, MTU])
def test_a_datagram_arrives_behind_its_header(ud, size: int) -> None:
    data = Random(size).randbytes(size)
    ud.a.mr.write(data)
    ud.b.qp.post_recv(RecvWR(7, sg=[ud.b.mr.sge(0, GRH_BYTES + MTU)]))
    ud.a.qp.post_send(datagram(ud, size))
    got = ud.b.wait_ok()[0]
    assert (got.wr_id, got.opcode, got.byte_len) == (7, e.IBV_WC_RECV, size + GRH_BYTES)
    assert got.wc_flags & e.IBV_WC_GRH
    assert (got.qp_num, got.src_qp) == (ud.b.qp.qp_num, ud.a.qp.qp_num)
    assert ud.b.mr.read(size, GRH_BYTES) == data
    assert ud.a.wait_ok()[0].opcode == e.IBV_WC_SEND


@pytest.mark.parametrize("gid_index", [0, 1, 2])
def test_the_header_says_where_a_datagram_comes_from(ud, gid_index: int) -> None:
    ud.b.qp.post_recv(RecvWR(7, sg=[ud.b.mr.sge()]))
    ud.a.qp.post_send(datagram(ud, 8, gid_index=gid_index))
    ud.b.wait_ok()
    header = ud.b.mr.read(GRH_BYTES)
    assert header[8:24] == bytes(ud.a.ctx.query_gid(1, gid_index))
    assert header[24:40] == bytes(ud.b.ctx.query_gid(1, gid_index))
    assert int.from_bytes(header[0:4], "big") == 6 << 28 | 0x20 << 20 | 0x12345
    assert header[7] == 7


@pytest.mark.parametrize("gid_index", [0, 1, 2])
@pytest.mark.parametrize("as_address", [True, False])
def test_a_datagram_can_be_answered(ud, as_address: bool, gid_index: int) -> None:
    ud.b.qp.post_recv(RecvWR(7, sg=[ud.b.mr.sge()]))
    ud.a.qp.post_recv(RecvWR(8, sg=[ud.a.mr.sge(8192)]))
    ud.a.qp.post_send(datagram(ud, 8, gid_index=gid_index))
    got = ud.b.wait_ok()[0]
    raw = ud.b.mr.read(GRH_BYTES)
    grh = GRH(hop_limit=raw[7])
    grh._c.sgid.raw, grh._c.dgid.raw = raw[8:24], raw[24:40]
    header = ud.b.mr.buf if as_address else grh
    with AH(ud.b.pd, wc=got, grh=header, port_num=1) as back:
        ud.b.mr.write(b"answer")
        reply = SendWR(9, sg=[ud.b.mr.sge(0, 6)])
        reply.set_wr_ud(back, got.src_qp, ud.a.QKEY)
        ud.b.qp.post_send(reply)
        assert ud.b.wait_ok()[0].wr_id == 9
    received = [wc for wc in ud.a.wait_ok(2) if wc.wr_id == 8]
    assert received[0].byte_len == GRH_BYTES + 6
    assert ud.a.mr.read(6, 8192 + GRH_BYTES) == b"answer"


def test_immediate_data_comes_with_a_datagram(ud) -> None:
    ud.b.qp.post_recv(RecvWR(7, sg=[ud.b.mr.sge()]))
    ud.a.qp.post_send(datagram(ud, 8, opcode=e.IBV_WR_SEND_WITH_IMM, imm_data=socket.htonl(77)))
    got = ud.b.wait_ok()[0]
    assert got.wc_flags & e.IBV_WC_WITH_IMM
    assert socket.ntohl(got.imm_data) == 77


def test_a_datagram_with_another_key_is_dropped(ud) -> None:
    ud.b.qp.post_recv(RecvWR(7, sg=[ud.b.mr.sge()]))
    ud.a.qp.post_send([datagram(ud, 8, qkey=1), datagram(ud, 4, wr_id=2)])
    assert [wc.wr_id for wc in ud.a.wait_ok(2)] == [1, 2]
    assert ud.b.wait_ok()[0].byte_len == GRH_BYTES + 4
    assert ud.b.cq.poll() == (0, [])


def test_a_datagram_without_a_receive_is_dropped(ud, make_end) -> None:
    other = make_end(1, e.IBV_QPT_UD)
    other.qp.post_recv(RecvWR(7, sg=[other.mr.sge()]))
    behind = datagram(ud, 8, wr_id=3)
    behind.set_wr_ud(handle(ud.a, other), other.qp.qp_num, other.QKEY)
    ud.a.qp.post_send([datagram(ud, 8), behind])
    other.wait_ok()  # so the one before it was seen too
    ud.b.qp.post_recv(RecvWR(7, sg=[ud.b.mr.sge()]))
    ud.a.qp.post_send(datagram(ud, 4, wr_id=2))
    assert ud.b.wait_ok()[0].byte_len == GRH_BYTES + 4


def test_a_datagram_to_nobody_is_dropped(ud) -> None:
    wr = datagram(ud, 8)
    wr.set_wr_ud(handle(ud.a, ud.b), 0xFFFFFE, ud.a.QKEY)
    ud.a.qp.post_send(wr)
    assert ud.a.wait_ok()[0].wr_id == 1


def test_a_datagram_is_at_most_one_packet(ud) -> None:
    ud.a.qp.post_send(datagram(ud, MTU + 1))
    assert ud.a.wait()[0].status is e.IBV_WC_LOC_LEN_ERR


def test_a_receive_without_room_for_the_header_is_a_length_error(ud) -> None:
    ud.b.qp.post_recv(RecvWR(7, sg=[ud.b.mr.sge(0, GRH_BYTES + 7)]))
    ud.a.qp.post_send(datagram(ud, 8))
    assert ud.a.wait_ok()[0].wr_id == 1
    got = ud.b.wait()[0]
    assert (got.wr_id, got.status) == (7, e.IBV_WC_LOC_LEN_ERR)


def test_a_datagram_can_go_to_its_own_host(make_end) -> None:
    one, two = make_end(0, e.IBV_QPT_UD), make_end(0, e.IBV_QPT_UD)
    two.qp.post_recv(RecvWR(7, sg=[two.mr.sge()]))
    wr = SendWR(1, sg=[one.mr.sge(0, 8)])
    wr.set_wr_ud(handle(one, two), two.qp.qp_num, two.QKEY)
    one.qp.post_send(wr)
    assert two.wait_ok()[0].src_qp == one.qp.qp_num


def test_an_address_handle_needs_a_route_on_ethernet(ud) -> None:
    with pytest.raises(PyverbsRDMAError, match="Failed to create AH"):
        AH(ud.a.pd, attr=AHAttr(is_global=0, port_num=1))


def test_an_address_of_nobody_makes_no_handle_or_drops(ud) -> None:
    route = GlobalRoute(dgid=GID("0000:0000:0000:0000:0000:ffff:0a00:00c8"), sgid_index=1)
    with pytest.raises(PyverbsRDMAError, match="Failed to create AH"):
        AH(ud.a.pd, attr=AHAttr(is_global=1, port_num=1, gr=route))


def test_an_address_handle_needs_to_be_told_where(ud) -> None:
    with pytest.raises(PyverbsUserError, match="attr=AHAttr"):
        AH(ud.a.pd)


def test_a_datagram_qp_is_not_connected(ud) -> None:
    with pytest.raises(PyverbsUserError, match="UD has no peer"):
        connect(ud.a.qp, ud.b.qp)
