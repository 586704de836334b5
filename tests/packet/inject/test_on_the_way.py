# SPDX-License-Identifier: BSD-3-Clause
"""Injected packets on their way: faults take them as any others, and watches see them."""

from __future__ import annotations

from collections.abc import Callable

from scapy.sendrecv import sniff

from nupa.fabric.faulty import Faulty
from nupa.packet.scapy.inject import Reason
from nupa.packet.scapy.sniff import FabricSockets
from nupa.packet.scapy.transport import AETH, BTH, DETH, RETH
from nupa.verbs import SendWR
from nupa.verbs import enums as e
from tests.packet.inject.scene import FIRST_PSN, QKEY, WAIT_S, Scene

MakeScene = Callable[..., Scene]


def test_a_fault_that_drops_says_so(scene: Scene) -> None:
    packet = scene.bth("RDMA_WRITE_ONLY") / scene.reth(0, 5) / b"hello"
    with Faulty(scene.fabric.port("host0"), "drop", count=1):
        verdict = scene.inject(packet)
        assert (verdict.dropped, verdict.reason) == (True, Reason.FAULT)
        assert scene.end.mr.read(5) == bytes(5)
        assert scene.inject(packet).executed
    assert scene.end.mr.read(5) == b"hello"


def test_a_fault_that_doubles_has_it_executed_once(scene: Scene) -> None:
    scene.end.recv(1)
    scene.end.recv(2)
    with Faulty(scene.fabric.port("host1"), "duplicate", count=1):
        assert scene.inject(scene.bth("SEND_ONLY") / b"once").executed
        assert scene.psn() == FIRST_PSN + 1  # what is asked comes behind both
    assert scene.end.wait().wr_id == 1
    assert scene.end.nothing()
    counted = scene.counted()
    assert (counted["rx_injected"], counted["duplicate_request"]) == (2, 1)


def test_a_verdict_waits_for_a_packet_that_is_late(scene: Scene) -> None:
    with Faulty(scene.fabric.port("host1"), "delay", count=1, duration="20ms"):
        assert scene.inject(scene.bth("RDMA_WRITE_ONLY") / scene.reth(0, 5) / b"hello").executed
    assert scene.end.mr.read(5) == b"hello"


def test_a_partner_asks_again_for_a_read_that_was_injected_before(scene: Scene) -> None:
    assert scene.inject(scene.bth("RDMA_READ_REQUEST") / scene.reth(0, 8)).executed
    scene.end.mr.write(b"12345678", offset=64)
    with Faulty(scene.fabric.port("host1"), "delay", after=1 << 40):  # nothing moves directly
        wr = SendWR(5, e.IBV_WR_RDMA_READ, sg=[scene.partner.mr.sge(0, 8)])
        wr.send_flags = e.IBV_SEND_SIGNALED
        wr.set_wr_rdma(scene.end.mr.rkey, scene.end.mr.buf + 64)
        scene.partner.qp.post_send(wr)
        assert scene.partner.wait().status == e.IBV_WC_SUCCESS
    assert scene.partner.mr.read(8) == b"12345678"


def test_watches_see_what_was_injected_and_what_is_answered(scene: Scene) -> None:
    with FabricSockets(scene.fabric, [], ["transport"], 0, owns=False) as sockets:
        scene.inject(scene.bth("RDMA_WRITE_ONLY") / scene.reth(8, 5) / b"hello")
        # Before the next one: a NAK that follows at once acknowledges the WRITE, too.
        write, ack = sniff(opened_socket=sockets, count=2, timeout=WAIT_S)
        scene.inject(scene.bth("SEND_ONLY") / b"x")
        send, nak = sniff(opened_socket=sockets, count=2, timeout=WAIT_S)
    assert (write[BTH].psn, write[RETH].dmalen, bytes(write[BTH].payload)[16:21]) == (
        FIRST_PSN,
        5,
        b"hello",
    )
    assert write[RETH].va == scene.end.mr.buf + 8
    assert send[BTH].psn == FIRST_PSN + 1
    for packet in (write, send):
        assert b"nupa: injected" in packet.comments
        assert packet[BTH].icrc == packet[BTH].computed_icrc()
    assert (ack[AETH].syndrome & 0x60, nak[AETH].syndrome) == (0, 0x2C)
    assert not ack.comments
    assert ack[BTH].dqpn == scene.partner.qp.qp_num


def test_watches_see_datagrams_that_were_injected(make_scene: MakeScene) -> None:
    scene = make_scene(e.IBV_QPT_UD)
    scene.end.recv()
    with FabricSockets(scene.fabric, [], ["transport"], 0, owns=False) as sockets:
        scene.inject(scene.bth("SEND_ONLY") / DETH(qkey=QKEY, srcqp=0x321) / b"hello")
        (seen,) = sniff(opened_socket=sockets, count=1, timeout=WAIT_S)
    assert (seen[DETH].qkey, seen[DETH].srcqp) == (QKEY, 0x321)
    assert bytes(seen[DETH].payload)[:5] == b"hello"
