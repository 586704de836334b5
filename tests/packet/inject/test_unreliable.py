# SPDX-License-Identifier: BSD-3-Clause
"""Packets that are injected at UC and UD QPs: bad ones are dropped silently, and counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.layers.inet import IP, UDP
from scapy.packet import Packet

from nupa.packet.scapy.inject import Reason
from nupa.packet.scapy.transport import DETH, ImmDt
from nupa.verbs import enums as e
from tests.packet.inject.scene import FIRST_PSN, MTU_BYTES, QKEY, Scene

WHOLE = bytes(MTU_BYTES)
GRH_BYTES = 40


@pytest.fixture
def uc(make_scene: Callable[..., Scene]) -> Scene:
    return make_scene(e.IBV_QPT_UC)


@pytest.fixture
def ud(make_scene: Callable[..., Scene]) -> Scene:
    return make_scene(e.IBV_QPT_UD)


def lost(scene: Scene, packet: Packet, reason: Reason, counter: str) -> None:
    """Asserts that a packet is dropped for this reason, counted once and not answered."""
    scene.counted()
    verdict = scene.inject(packet)
    assert (verdict.dropped, verdict.reason) == (True, reason)
    assert scene.counted() == {"rx_injected": 1, counter: 1}


# --- unreliable connections -----------------------------------------------------------------------


def test_uc_sends_and_writes_are_executed(uc: Scene) -> None:
    uc.end.recv(4, 1024)
    assert uc.inject(uc.bth("SEND_ONLY") / b"hello").executed
    assert uc.end.wait().wr_id == 4
    assert uc.end.mr.read(5, 1024) == b"hello"
    assert uc.inject(uc.bth("RDMA_WRITE_ONLY") / uc.reth(0, 5) / b"world").executed
    assert uc.end.mr.read(5, 0) == b"world"


def test_a_uc_message_of_three_packets_is_one(uc: Scene) -> None:
    uc.end.recv(1)
    for opcode, body in (
        ("SEND_FIRST", WHOLE),
        ("SEND_MIDDLE", WHOLE),
        ("SEND_LAST_WITH_IMMEDIATE", b""),
    ):
        packet = uc.bth(opcode)
        assert uc.inject(packet / body if body else packet / ImmDt(data=3) / b"end").executed
    wc = uc.end.wait()
    assert (wc.byte_len, bool(wc.wc_flags & e.IBV_WC_WITH_IMM)) == (2 * MTU_BYTES + 3, True)


def test_a_uc_message_starts_anew_at_any_psn(uc: Scene) -> None:
    uc.end.recv(1)
    assert uc.inject(uc.bth("SEND_ONLY", 1000) / b"x").executed
    assert uc.psn() == 1001


def test_a_gap_loses_the_rest_of_a_uc_message(uc: Scene) -> None:
    uc.end.recv(1)
    assert uc.inject(uc.bth("SEND_FIRST") / WHOLE).executed
    lost(uc, uc.bth("SEND_MIDDLE", uc.psn(1)) / WHOLE, Reason.PSN, "rx_out_of_sequence")
    assert uc.inject(uc.bth("SEND_LAST", uc.psn()) / b"end").reason is Reason.PSN
    assert uc.end.nothing()
    assert uc.inject(uc.bth("SEND_ONLY") / b"next").executed
    assert uc.end.wait().byte_len == 4


def test_a_gap_loses_the_rest_of_a_uc_write(uc: Scene) -> None:
    first = uc.bth("RDMA_WRITE_FIRST") / uc.reth(0, 2 * MTU_BYTES) / WHOLE
    assert uc.inject(first).executed
    last = uc.bth("RDMA_WRITE_LAST", uc.psn(1)) / (b"\1" * MTU_BYTES)
    lost(uc, last, Reason.PSN, "rx_out_of_sequence")
    assert uc.end.mr.read(MTU_BYTES, MTU_BYTES) == WHOLE


@pytest.mark.parametrize("opcode", ["SEND_MIDDLE", "SEND_LAST", "RDMA_WRITE_MIDDLE"])
def test_a_uc_message_that_never_began_is_lost(uc: Scene, opcode: str) -> None:
    lost(uc, uc.bth(opcode) / WHOLE, Reason.SEQUENCE, "rx_invalid")


def test_a_uc_write_that_may_not_be_is_lost(uc: Scene) -> None:
    bad_key = uc.reth(0, 4, rkey=uc.end.mr.rkey ^ 0x5A5A)
    lost(uc, uc.bth("RDMA_WRITE_ONLY") / bad_key / b"abcd", Reason.ACCESS, "rx_invalid")
    beyond = uc.reth(uc.end.mr.length - 3, 4)
    lost(uc, uc.bth("RDMA_WRITE_ONLY") / beyond / b"abcd", Reason.ACCESS, "rx_invalid")
    assert uc.end.state() is e.IBV_QPS_RTS


def test_a_uc_send_without_a_receive_is_lost(uc: Scene) -> None:
    lost(uc, uc.bth("SEND_ONLY") / b"x", Reason.NO_RECEIVE, "rx_no_receive")
    assert uc.psn() == FIRST_PSN + 1
    packet = uc.bth("RDMA_WRITE_ONLY_WITH_IMMEDIATE") / uc.reth(0, 4) / ImmDt() / b"abcd"
    lost(uc, packet, Reason.NO_RECEIVE, "rx_no_receive")


def test_a_uc_receive_that_is_too_short_ends_the_qp(uc: Scene) -> None:
    uc.end.recv(1, 0, 4)
    assert uc.inject(uc.bth("SEND_ONLY") / b"hello").reason is Reason.RECEIVE
    assert uc.end.wait().status == e.IBV_WC_LOC_LEN_ERR


def test_a_uc_length_that_does_not_fit_is_lost(uc: Scene) -> None:
    uc.end.recv()
    lost(uc, uc.bth("SEND_FIRST") / b"short", Reason.LENGTH, "rx_invalid")
    lost(uc, uc.bth("SEND_ONLY") / (WHOLE + b"long"), Reason.LENGTH, "rx_invalid")
    lost(uc, uc.bth("RDMA_WRITE_ONLY") / uc.reth(0, 9) / b"abcd", Reason.LENGTH, "rx_invalid")
    assert uc.inject(uc.bth("SEND_ONLY") / b"x").executed


@pytest.mark.parametrize("code", [0x2C, 0x31, 0x33, 0x3F])
def test_uc_has_no_reads_atomics_and_answers(uc: Scene, code: int) -> None:
    lost(uc, uc.bth(code) / bytes(28), Reason.OPCODE, "rx_invalid")


# --- datagrams ------------------------------------------------------------------------------------


def test_a_datagram_comes_with_its_route(ud: Scene) -> None:
    ud.end.recv(6)
    packet = ud.bth("SEND_ONLY") / DETH(qkey=QKEY, srcqp=0x4321) / b"hello"
    verdict = ud.inject(IP(ttl=9, tos=0x28) / UDP() / packet)
    assert (verdict.executed, verdict.expected_psn) == (True, None)
    wc = ud.end.wait()
    assert (wc.wr_id, wc.src_qp, wc.byte_len) == (6, 0x4321, GRH_BYTES + 5)
    assert wc.wc_flags & e.IBV_WC_GRH
    grh = ud.end.mr.read(GRH_BYTES, 0)
    mapped = bytes(10) + b"\xff\xff"
    assert (grh[0] >> 4, grh[7]) == (6, 9)
    assert int.from_bytes(grh[:4], "big") >> 20 & 0xFF == 0x28
    assert grh[8:24] == mapped + bytes((10, 0, 0, 1))
    assert grh[24:40] == mapped + bytes((10, 0, 0, 2))
    assert ud.end.mr.read(5, GRH_BYTES) == b"hello"


def test_a_datagram_may_come_from_anywhere(ud: Scene) -> None:
    ud.end.recv()
    packet = ud.bth("SEND_ONLY") / DETH(qkey=QKEY) / b"hello"
    assert ud.inject(IP(src="192.0.2.7") / UDP() / packet).executed
    ud.end.wait()
    assert ud.end.mr.read(4, 20) == bytes((192, 0, 2, 7))


def test_a_datagram_carries_immediate_data(ud: Scene) -> None:
    ud.end.recv()
    packet = ud.bth("SEND_ONLY_WITH_IMMEDIATE") / DETH(qkey=QKEY) / ImmDt(data=5) / b"x"
    assert ud.inject(packet).executed
    assert ud.end.wait().wc_flags & e.IBV_WC_WITH_IMM


@pytest.mark.parametrize("qkey", [0, QKEY + 1, QKEY ^ 0x80000000])
def test_another_qkey_is_dropped_and_counted(ud: Scene, qkey: int) -> None:
    ud.end.recv()
    packet = ud.bth("SEND_ONLY") / DETH(qkey=qkey) / b"x"
    lost(ud, packet, Reason.QKEY, "qkey_violations")
    assert ud.end.nothing()


def test_a_datagram_without_a_receive_is_lost(ud: Scene) -> None:
    packet = ud.bth("SEND_ONLY") / DETH(qkey=QKEY) / b"x"
    lost(ud, packet, Reason.NO_RECEIVE, "rx_no_receive")


def test_a_datagram_longer_than_the_mtu_is_lost(ud: Scene) -> None:
    ud.end.recv(1, 0, 8192)
    packet = ud.bth("SEND_ONLY") / DETH(qkey=QKEY)
    lost(ud, packet / bytes(4100), Reason.LENGTH, "rx_invalid")
    assert ud.inject(packet / bytes(4096)).executed


def test_a_receive_without_room_for_a_datagram_and_its_route_ends_the_qp(ud: Scene) -> None:
    ud.end.recv(1, 0, GRH_BYTES)
    packet = ud.bth("SEND_ONLY") / DETH(qkey=QKEY) / b"x"
    assert ud.inject(packet).reason is Reason.RECEIVE
    assert ud.end.wait().status == e.IBV_WC_LOC_LEN_ERR


@pytest.mark.parametrize("code", [0x60, 0x6A, 0x71])
def test_datagrams_are_sends_of_one_packet(ud: Scene, code: int) -> None:
    lost(ud, ud.bth(code) / bytes(32), Reason.OPCODE, "rx_invalid")
