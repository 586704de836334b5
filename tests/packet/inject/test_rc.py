# SPDX-License-Identifier: BSD-3-Clause
"""Requests that are injected at a QP of a reliable connection."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from scapy.packet import Packet

from nupa.packet.scapy.inject import Reason
from nupa.packet.scapy.transport import FETH, IETH, ImmDt
from nupa.verbs import MR, MW, MWBindInfo, SendWR
from nupa.verbs import enums as e
from tests.packet.inject.scene import ALL_ACCESS, FIRST_PSN, MTU_BYTES, Scene

MakeScene = Callable[..., Scene]


def data(length: int, seed: int = 1) -> bytes:
    return bytes((seed + i * 7) & 0xFF for i in range(length))


# --- what is good is executed -------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 255, 256])
def test_a_send_is_received(scene: Scene, length: int) -> None:
    scene.end.recv(7, 100)
    verdict = scene.inject(scene.bth("SEND_ONLY") / data(length))
    assert verdict.executed
    assert verdict.expected_psn == FIRST_PSN
    wc = scene.end.wait()
    assert (wc.wr_id, wc.status, wc.byte_len) == (7, e.IBV_WC_SUCCESS, length)
    assert wc.src_qp == scene.partner.qp.qp_num
    assert scene.end.mr.read(length, 100) == data(length)
    assert scene.psn() == FIRST_PSN + 1
    assert scene.counted() == {"rx_injected": 1}


def test_immediate_data_comes_with_a_send(scene: Scene) -> None:
    scene.end.recv()
    assert scene.inject(
        scene.bth("SEND_ONLY_WITH_IMMEDIATE") / ImmDt(data=0x01020304) / b"x"
    ).executed
    wc = scene.end.wait()
    assert wc.wc_flags & e.IBV_WC_WITH_IMM
    assert wc.imm_data == int.from_bytes(struct.pack(">I", 0x01020304), "little")


def test_a_send_of_three_packets_is_one_message(scene: Scene) -> None:
    scene.end.recv()
    body = data(2 * MTU_BYTES + 10)
    assert scene.inject(scene.bth("SEND_FIRST") / body[:256]).executed
    assert scene.inject(scene.bth("SEND_MIDDLE") / body[256:512]).executed
    assert scene.end.nothing()
    assert scene.inject(scene.bth("SEND_LAST") / body[512:]).executed
    assert scene.end.wait().byte_len == len(body)
    assert scene.end.mr.read(len(body), 0) == body
    assert scene.psn() == (FIRST_PSN + 3) & 0xFFFFFF


def test_a_send_that_invalidates_takes_a_window_away(scene: Scene) -> None:
    end = scene.end
    region = MR(end.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_MW_BIND)
    bind = SendWR(2, e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED)
    window = MW(end.pd, e.IBV_MW_TYPE_2)
    bind.set_bind_wr(window, MWBindInfo(region, region.buf, 64, e.IBV_ACCESS_REMOTE_WRITE))
    end.qp.post_send(bind)
    assert end.wait().status == e.IBV_WC_SUCCESS
    write = scene.reth(0, 4, va=region.buf + 60, rkey=bind.rkey) / b"abcd"
    assert scene.inject(scene.bth("RDMA_WRITE_ONLY") / write).executed
    assert region.read(4, 60) == b"abcd"
    end.recv()
    send = scene.bth("SEND_ONLY_WITH_INVALIDATE") / IETH(rkey=bind.rkey) / b"x"
    assert scene.inject(send).executed
    assert end.wait().invalidated_rkey == bind.rkey
    access_error(scene, scene.bth("RDMA_WRITE_ONLY") / write)


def test_a_write_changes_memory_and_nothing_else(scene: Scene) -> None:
    assert scene.inject(scene.bth("RDMA_WRITE_ONLY") / scene.reth(8, 5) / b"hello").executed
    assert scene.end.mr.read(21, 0) == bytes(8) + b"hello" + bytes(8)
    assert scene.end.nothing()


def test_a_write_of_three_packets_with_immediate_data_is_received_whole(scene: Scene) -> None:
    scene.end.recv(5)
    body = data(2 * MTU_BYTES + 3)
    assert scene.inject(
        scene.bth("RDMA_WRITE_FIRST") / scene.reth(64, len(body)) / body[:256]
    ).executed
    assert scene.inject(scene.bth("RDMA_WRITE_MIDDLE") / body[256:512]).executed
    assert scene.inject(
        scene.bth("RDMA_WRITE_LAST_WITH_IMMEDIATE") / ImmDt(data=9) / body[512:]
    ).executed
    wc = scene.end.wait()
    assert (wc.wr_id, wc.opcode) == (5, e.IBV_WC_RECV_RDMA_WITH_IMM)
    assert wc.byte_len == len(body)
    assert scene.end.mr.read(len(body), 64) == body


def test_a_write_of_nothing_needs_no_key(scene: Scene) -> None:
    assert scene.inject(scene.bth("RDMA_WRITE_ONLY") / scene.reth(rkey=0, va=0)).executed


def test_a_read_is_executed_and_takes_one_psn(scene: Scene) -> None:
    assert scene.inject(scene.bth("RDMA_READ_REQUEST") / scene.reth(0, 1000)).executed
    assert scene.psn() == FIRST_PSN + 1
    assert scene.partner.state() is e.IBV_QPS_RTS


def test_atomics_change_memory(scene: Scene) -> None:
    word = struct.Struct("<Q")
    scene.end.mr.write(word.pack(40), offset=16)
    assert scene.inject(scene.bth("FETCH_ADD") / scene.atomic(16, swap=2)).executed
    assert word.unpack(scene.end.mr.read(8, 16)) == (42,)
    assert scene.inject(scene.bth("COMPARE_SWAP") / scene.atomic(16, 7, compare=41)).executed
    assert word.unpack(scene.end.mr.read(8, 16)) == (42,)
    assert scene.inject(scene.bth("COMPARE_SWAP") / scene.atomic(16, 7, compare=42)).executed
    assert word.unpack(scene.end.mr.read(8, 16)) == (7,)


def test_an_atomic_write_and_a_flush_are_executed(scene: Scene) -> None:
    assert scene.inject(scene.bth("ATOMIC_WRITE") / scene.reth(24, 8) / b"12345678").executed
    assert scene.end.mr.read(8, 24) == b"12345678"
    flush = scene.bth("FLUSH") / FETH(placement=1) / scene.reth(0, 64)
    assert scene.inject(flush).executed


@pytest.mark.parametrize("slot", [1, 0x77], ids=["no such QP", "no such process"])
def test_a_qp_whose_partner_is_not_there_executes_all_the_same(scene: Scene, slot: int) -> None:
    scene.reconnect(psn=5, partner_qpn=slot << 16 | 0x1234)
    scene.end.recv()
    for packet in (
        scene.bth("RDMA_WRITE_ONLY", 5) / scene.reth(0, 4) / b"abcd",
        scene.bth("SEND_ONLY", 6) / bytes(200),
        scene.bth("RDMA_READ_REQUEST", 7) / scene.reth(0, 4000),
        scene.bth("FETCH_ADD", 8) / scene.atomic(8, 1),
    ):
        assert scene.inject(packet).executed
        assert scene.inject(packet).reason is Reason.DUPLICATE
    assert scene.end.wait().status == e.IBV_WC_SUCCESS
    assert scene.inject(scene.bth("SEND_ONLY") / b"x").syndrome_name == "RNR_NAK"
    assert scene.inject(scene.bth("SEND_MIDDLE") / bytes(256)).syndrome == 0x61


def test_injection_goes_on_where_the_partner_was(scene: Scene) -> None:
    for i in range(3):
        scene.end.recv(i, i * 64, 64)
        scene.partner.qp.post_send(
            SendWR(i, sg=[scene.partner.mr.sge(0, 8)], send_flags=e.IBV_SEND_SIGNALED)
        )
        assert scene.partner.wait().status == e.IBV_WC_SUCCESS
        assert scene.end.wait().wr_id == i
    assert scene.psn() == (FIRST_PSN + 3) & 0xFFFFFF
    scene.end.recv(9)
    assert scene.inject(scene.bth("SEND_ONLY") / b"x").executed
    assert scene.end.wait().wr_id == 9


# --- keys, bounds, rights -----------------------------------------------------------------------


def refused(scene: Scene, packet: Packet, name: str, event: str) -> None:
    """Asserts this NAK: the QP is in error and says why, and its partner continues."""
    verdict = scene.inject(packet)
    assert (verdict.naked, verdict.syndrome_name) == (True, name)
    assert scene.end.state() is e.IBV_QPS_ERR
    assert scene.end.event() == event
    assert scene.partner.state() is e.IBV_QPS_RTS
    assert scene.inject(packet).reason is Reason.NO_QP


def access_error(scene: Scene, packet: Packet) -> None:
    refused(scene, packet, "NAK_REMOTE_ACCESS_ERROR", "QP_ACCESS_ERR")


def invalid(scene: Scene, packet: Packet) -> None:
    refused(scene, packet, "NAK_INVALID_REQUEST", "QP_REQ_ERR")


def test_a_write_beyond_the_region_changes_nothing(scene: Scene) -> None:
    end = scene.end.mr.length
    access_error(scene, scene.bth("RDMA_WRITE_ONLY") / scene.reth(end - 4, 5) / b"hello")
    assert scene.end.mr.read(8, end - 8) == bytes(8)


def test_the_first_packet_of_a_write_answers_for_all_of_it(scene: Scene) -> None:
    at = scene.end.mr.length - 300
    access_error(scene, scene.bth("RDMA_WRITE_FIRST") / scene.reth(at, 301) / data(MTU_BYTES))
    assert scene.end.mr.read(300, at) == bytes(300)


@pytest.mark.parametrize("opcode", ["RDMA_WRITE_ONLY", "RDMA_READ_REQUEST"])
def test_a_key_that_was_never_given_is_an_access_error(scene: Scene, opcode: str) -> None:
    packet = scene.bth(opcode) / scene.reth(0, 4, rkey=scene.end.mr.rkey ^ 0x5A5A)
    access_error(scene, packet / b"xxxx" if "WRITE" in opcode else packet)


def test_a_region_without_the_right_is_an_access_error(scene: Scene) -> None:
    mr = MR(scene.end.pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
    access_error(
        scene, scene.bth("RDMA_WRITE_ONLY") / scene.reth(0, 1, va=mr.buf, rkey=mr.rkey) / b"x"
    )


def test_a_qp_without_the_right_is_an_access_error(make_scene: MakeScene) -> None:
    scene = make_scene(access=ALL_ACCESS & ~e.IBV_ACCESS_REMOTE_ATOMIC)
    access_error(scene, scene.bth("FETCH_ADD") / scene.atomic(0, 1))


def test_an_atomic_across_words_is_an_invalid_request(scene: Scene) -> None:
    invalid(scene, scene.bth("FETCH_ADD") / scene.atomic(4, 1))


# --- no receive -----------------------------------------------------------------------------------


@pytest.mark.parametrize("timer", [0, 1, 14, 31])
def test_without_a_receive_the_answer_is_the_rnr_timer(make_scene: MakeScene, timer: int) -> None:
    scene = make_scene(min_rnr_timer=timer)
    packet = scene.bth("SEND_ONLY") / b"x"
    verdict = scene.inject(packet)
    assert (verdict.syndrome, verdict.syndrome_name) == (0x20 | timer, "RNR_NAK")
    scene.end.recv(3)
    assert scene.inject(packet).executed
    assert scene.end.wait().wr_id == 3


def test_a_write_with_immediate_data_needs_a_receive(scene: Scene) -> None:
    packet = (
        scene.bth("RDMA_WRITE_ONLY_WITH_IMMEDIATE") / scene.reth(0, 4) / ImmDt(data=1) / b"abcd"
    )
    assert scene.inject(packet).syndrome_name == "RNR_NAK"
    assert scene.end.mr.read(4, 0) == bytes(4)
    scene.end.recv()
    assert scene.inject(packet).executed
    assert scene.end.mr.read(4, 0) == b"abcd"


def test_a_receive_that_is_too_short_is_an_invalid_request(scene: Scene) -> None:
    scene.end.recv(1, 0, 4)
    verdict = scene.inject(scene.bth("SEND_ONLY") / b"hello")
    assert verdict.syndrome_name == "NAK_INVALID_REQUEST"
    assert scene.end.wait().status == e.IBV_WC_LOC_LEN_ERR
