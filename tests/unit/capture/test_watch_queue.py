# SPDX-License-Identifier: BSD-3-Clause
"""A watch shows queue entries, and the TLPs at hosts' ports when a switch moves the data."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from nupa.core.watch import Watch
from nupa.fabric import Fabric
from nupa.packet.scapy import link
from nupa.packet.scapy.cxl_mem import CxlMem
from nupa.packet.scapy.queue import CQE, WQE, Doorbell
from nupa.packet.scapy.tlp import TLP, CompletionData
from nupa.packet.tables import record
from nupa.packet.tables.record import Direction, Kind
from nupa.verbs import MR, RecvWR, SendWR, connect
from nupa.verbs import enums as e
from tests.unit.capture.watched import one_sided, seen
from tests.unit.conftest import ALL_ACCESS
from tests.unit.verbs.queues.test_uc_ud import datagram

IN, OUT = Direction.INBOUND, Direction.OUTBOUND


@pytest.fixture
def pair(make_pair: Any, mover: str) -> Any:
    return make_pair(mover=mover)


@pytest.fixture
def queue(fabric: Fabric) -> Iterator[Watch]:
    with Watch(fabric, ("queue",)) as watch:
        yield watch


def test_a_request_is_posted_announced_and_completed(pair: Any, queue: Watch) -> None:
    wr = one_sided(pair, e.IBV_WR_RDMA_WRITE, 500, at=32)
    wr.wr_id = 0x1234
    pair.a.qp.post_send(wr)
    pair.a.wait_ok()
    packets = seen(queue, 2)
    wqe, bell, cqe = (link.Nupa(p.data) for p in packets)
    assert [p.direction for p in packets] == [OUT, OUT, IN]
    assert (wqe[WQE].opcode, wqe[WQE].qp_type, wqe[WQE].number) == (0, 2, pair.a.qp.qp_num)
    assert (wqe[WQE].wr_id, wqe[WQE].length, wqe[WQE].index) == (0x1234, 500, 0)
    remote, data = wqe[WQE].segments
    assert (remote.address, remote.rkey) == (pair.b.mr.buf + 32, pair.b.mr.rkey)
    assert (data.address, data.length, data.lkey) == (pair.a.mr.buf, 500, pair.a.mr.lkey)
    assert (bell[Doorbell].number, bell[Doorbell].index) == (pair.a.qp.qp_num, 1)
    assert (cqe[CQE].wr_id, cqe[CQE].opcode, cqe[CQE].status) == (0x1234, 1, 0)
    assert (cqe[CQE].qpn, cqe[CQE].byte_len) == (pair.a.qp.qp_num, 500)
    for packet in packets:
        head = record.unpack(packet.data)
        assert (head.level, head.kind, head.direction) == (2, packet.kind, packet.direction)
        assert (head.transfer, head.sequence) == (packet.transfer, packet.sequence)
        assert (head.port, head.host, head.flags) == (packet.port, packet.host, packet.flags)


def test_each_kind_of_request_has_its_segments(make_pair: Any, fabric: Fabric) -> None:
    pair, ud = make_pair(), make_pair(e.IBV_QPT_UD)
    with Watch(fabric, ("queue",)) as watch:
        pair.b.qp.post_recv([RecvWR(i, sg=[pair.b.mr.sge()]) for i in range(2)])
        inline = SendWR(
            1, e.IBV_WR_SEND_WITH_IMM, imm_data=socket.htonl(9), sg=[pair.a.mr.sge(0, 7)]
        )
        inline.send_flags |= e.IBV_SEND_INLINE
        pair.a.mr.write(b"inlined")
        for wr in (
            inline,
            one_sided(pair, e.IBV_WR_ATOMIC_CMP_AND_SWP, 8),
            SendWR(3, sg=[pair.a.mr.sge(0, 8), pair.a.mr.sge(64, 9)]),
        ):
            pair.a.qp.post_send(wr)
            pair.a.wait_ok()
        pair.b.wait_ok(2)
        ud.a.qp.post_send(datagram(ud, 8))
        ud.a.wait_ok()
        packets = [link.Nupa(p.data) for p in seen(watch, 2)]
    wqes = [p[WQE] for p in packets if WQE in p]
    inlined, swap, gather, sent = wqes
    assert (inlined.imm, inlined.segments[0].data) == (9, b"inlined")
    assert (swap.segments[1].compare_add, swap.segments[1].swap) == (5, 9)
    assert [s.length for s in gather.segments] == [8, 9]
    assert (sent.qp_type, sent.segments[0].dest_qpn) == (4, ud.b.qp.qp_num)
    assert (sent.segments[0].qkey, sent.segments[0].dgid) == (ud.a.QKEY, "::ffff:10.0.0.2")
    received = [p[CQE] for p in packets if CQE in p and p[CQE].opcode == 128]
    assert [c.byte_len for c in received] == [7, 17]
    assert received[0].imm == 9
    bells = [p[Doorbell] for p in packets if Doorbell in p]
    assert bells[0].queue == 1
    assert bells[0].number == pair.b.qp.qp_num


def test_a_notification_that_is_asked_for_and_receives_ring_too(pair: Any, queue: Watch) -> None:
    pair.b.cq.req_notify(True)
    pair.b.qp.post_recv([RecvWR(i, sg=[pair.b.mr.sge()]) for i in range(3)])
    bells = [link.Nupa(p.data)[Doorbell] for p in seen(queue, 2)]
    asked, posted = bells
    assert (asked.queue, int(asked.flags), asked.index) == (3, 1, 0)
    assert (posted.queue, posted.number, posted.index) == (1, pair.b.qp.qp_num, 3)


def test_a_receive_is_announced_in_the_hosts_own_memory(pair: Any, fabric: Fabric) -> None:
    with Watch(fabric, ("tlp",)) as watch:
        pair.b.qp.post_recv(RecvWR(1, sg=[pair.b.mr.sge()]))
        pair.b.cq.req_notify()
        found = tlps(watch)
    assert [(p.host, p.direction, type(s[TLP].payload).__name__) for p, s in found] == [
        (1, OUT, "MemWrite64")  # the notification's
    ]


def tlps(watch: Watch) -> list[tuple[Any, Any]]:
    return [(p, link.Nupa(p.data)) for p in seen(watch, 1)]


@pytest.mark.parametrize("size", [8, 256, 1000, 5000])
def test_a_write_is_read_at_its_source_and_written_at_its_target(
    pair: Any, fabric: Fabric, size: int
) -> None:
    data = Random(size).randbytes(size)
    pair.a.mr.write(data)
    with Watch(fabric, ("tlp",)) as watch:
        pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_WRITE, size))
        pair.a.wait_ok()
        found = tlps(watch)
    kinds = [(p.host, p.direction, type(s[TLP].payload).__name__) for p, s in found]
    assert kinds[0] == (0, OUT, "MemWrite64")  # the doorbell
    assert kinds[-1] == (0, IN, "MemWrite64")  # the completion
    assert len(found[-1][0].data) == 24 + 16 + 64
    reads = [k for k in kinds[1:-1] if k[2] == "MemRead64"]
    assert set(reads) == {(0, IN, "MemRead64")}
    assert len(reads) >= size // 512
    written = [(p, s) for p, s in found if p.host == 1]
    assert {p.direction for p, _ in written} == {IN}
    first = written[0][1][TLP].payload
    assert first.address == pair.b.mr.buf
    fetched = b"".join(p.data[24 + 12 :] for p, s in found if CompletionData in s)
    assert fetched == data
    assert b"".join(p.data[24 + 16 :] for p, _ in written) == data


def test_a_read_goes_the_other_way_round(pair: Any, fabric: Fabric) -> None:
    with Watch(fabric, ("tlp",)) as watch:
        pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_READ, 512))
        pair.a.wait_ok()
        found = tlps(watch)
    kinds = [(p.host, p.direction, type(s[TLP].payload).__name__) for p, s in found]
    assert (1, IN, "MemRead64") in kinds
    assert (1, OUT, "CompletionData") in kinds
    assert kinds.count((0, IN, "MemWrite64")) >= 3  # data and completion


@pytest.mark.parametrize(
    ("opcode", "name"),
    [(e.IBV_WR_ATOMIC_FETCH_AND_ADD, "FetchAdd64"), (e.IBV_WR_ATOMIC_CMP_AND_SWP, "CAS64")],
)
def test_an_atomic_is_a_tlp_at_its_target(
    pair: Any, fabric: Fabric, opcode: int, name: str
) -> None:
    pair.b.mr.write((5).to_bytes(8, "little"))
    with Watch(fabric, ("tlp",)) as watch:
        pair.a.qp.post_send(one_sided(pair, opcode, 8))
        pair.a.wait_ok()
        found = tlps(watch)
    kinds = [(p.host, p.direction, type(s[TLP].payload).__name__) for p, s in found]
    at = kinds.index((1, IN, name))
    assert kinds[at + 1] == (1, OUT, "CompletionData")
    assert found[at][1][TLP].payload.address == pair.b.mr.buf
    assert found[at + 1][0].data[-8:] == (5).to_bytes(8, "little")
    assert kinds[at + 2] == (0, IN, "MemWrite64")


def test_tlps_are_seen_at_both_ends_of_a_hosts_link(pair: Any, fabric: Fabric) -> None:
    with Watch(fabric, ("tlp",), ports=range(len(fabric.ports))) as watch:
        pair.a.qp.post_send(one_sided(pair, e.IBV_WR_RDMA_WRITE, 8))
        pair.a.wait_ok()
        packets = seen(watch, 1)
    names = [fabric.ports[p.port].name for p in packets]
    assert names[:2] == ["host0/1", "switch0/1"]
    assert {"host1/1", "switch0/2"} <= set(names)
    assert packets[0].sequence == packets[1].sequence


def test_data_in_the_pool_is_loaded_and_stored(make_end: Any, fabric: Fabric) -> None:
    a, b = make_end(0), make_end(1)
    connect(a.qp, b.qp)
    memory = fabric.alloc(4096)
    mr = MR(b.pd, memory, ALL_ACCESS)
    with Watch(fabric, ("tlp",)) as watch:
        for opcode, length in (
            (e.IBV_WR_RDMA_WRITE, 100),
            (e.IBV_WR_RDMA_READ, 64),
            (e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8),
        ):
            wr = SendWR(1, opcode, sg=[a.mr.sge(0, length)])
            if length == 8:
                wr.set_wr_atomic(mr.rkey, mr.buf, 5, 0)
            else:
                wr.set_wr_rdma(mr.rkey, mr.buf)
            a.qp.post_send(wr)
            a.wait_ok()
        found = [(p, s) for p, s in tlps(watch) if p.kind == Kind.CXL_MEM]
    names = [type(s[CxlMem].payload).__name__ for _, s in found]
    store, load = ["M2SRwD", "S2MNDR"], ["M2SReq", "S2MDRS"]
    assert names == 2 * store + load + load + store
    assert [p.direction for p, _ in found] == 5 * [OUT, IN]
    assert {p.host for p, _ in found} == {0}
    mr.close()
    memory.free()
