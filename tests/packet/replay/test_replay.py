# SPDX-License-Identifier: BSD-3-Clause
"""nupa.replay with captures made by hand: matches and differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from nupa.fabric import Fabric, Faulty
from nupa.packet.scapy.transport import RETH, AtomicAckETH, AtomicETH
from nupa.replay import ReplayDifferenceError, Report, replay, step
from tests.packet.replay.tape import (
    INVALID_REQUEST,
    MTU,
    REMOTE_ACCESS,
    REMOTE_OPERATION,
    RNR,
    Talk,
    Tape,
    pattern,
    word,
)

VA = 0x7F00_0000_1000


def outcome(report: Report) -> tuple[int, int, int]:
    """Returns matched, differed, not comparable; asserts that the counts are consistent."""
    assert report.played == report.matched + report.differed + report.not_comparable
    return report.matched, report.differed, report.not_comparable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.pcapng"


@pytest.mark.parametrize("version", [4, 6])
def test_every_kind_of_request_matches_what_a_right_responder_said(
    path: Path, version: int
) -> None:
    tape = Tape(version)
    talk = Talk(tape)
    talk.send(b"hello")
    talk.send(b"")
    talk.send(pattern(3 * MTU + 5), imm=0xCAFE)
    talk.send(pattern(2 * MTU))
    talk.store(VA, pattern(5 * MTU + 3))
    talk.store(VA + 10, b"overwritten", imm=7)
    talk.load(VA, pattern(5 * MTU + 3)[:10] + b"overwritten" + pattern(5 * MTU + 3)[21:])
    talk.load(VA + 0x2000, pattern(2 * MTU, 3))  # what its owner had put there
    talk.fetch_add(VA + 0x4000, 2**64 - 1, 5)
    talk.compare_swap(VA + 0x4000, 4, 99, 4)
    talk.compare_swap(VA + 0x4000, 4, 98, 99)
    talk.load(VA + 0x4000, word(99))
    report = replay(tape.write(path))
    assert outcome(report) == (12, 0, 0), report
    assert (report.hosts, report.packets, report.skipped) == (2, len(tape.packets), {})
    assert report.raise_for_differences() is report


def test_both_directions_of_a_connection_and_other_hosts_are_played_in_order(path: Path) -> None:
    tape = Tape()
    there = Talk(tape, psn=100)
    back = Talk(tape, source=2, destination=1, qpn=0x222, peer_qpn=0x111, psn=0xFFFFFE)
    third = Talk(tape, source=3, destination=2, qpn=0x333, peer_qpn=0x444, psn=9)
    for i in range(4):  # the PSNs of one wrap
        there.store(VA, pattern(600, i))
        third.load(VA, pattern(600, i))
        back.send(pattern(10, i))
        back.store(VA, pattern(20, i), rkey=0x88)
    report = replay(tape.write(path))
    assert outcome(report) == (16, 0, 0), report
    assert report.hosts == 3


@pytest.mark.parametrize("place", ["read", "original", "refused", "compared"])
def test_a_tampered_response_is_reported_with_its_packet_and_both_sides(
    path: Path, place: str
) -> None:
    tape = Tape()
    talk = Talk(tape)
    if place == "read":
        talk.store(VA, pattern(2 * MTU))
        data = bytearray(pattern(2 * MTU))
        data[300] ^= 0xFF
        talk.load(VA, bytes(data))
        packet, expected = 4, ("read data, 1 bytes from byte 300 on", data[300:316].hex(" "))
    elif place == "original":
        talk.fetch_add(VA, 3, 10)
        talk.fetch_add(VA, 3, 14)
        packet, expected = 3, ("original value", "0xe")
    elif place == "refused":  # an adapter that takes what the specification refuses
        talk.fetch_add(VA + 1, 3, 10)
        packet, expected = 1, ("status", "SUCCESS")
    else:
        talk.store(VA, b"a" * 8)
        talk.compare_swap(VA, 1, 2, int.from_bytes(b"b" * 8, "little"))
        packet, expected = 3, ("original value", "0x6262626262626262")
    report = replay(tape.write(path))
    assert report.differed == 1
    (difference,) = report.differences
    assert difference.packet == packet
    assert (difference.what, difference.captured) == expected
    assert difference.came != difference.captured
    with pytest.raises(ReplayDifferenceError, match=difference.what) as caught:
        report.raise_for_differences()
    assert caught.value.report is report


def test_after_a_difference_the_rest_is_compared_on_its_own(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.fetch_add(VA + 4, 3, 10)  # refused by us: the queue pairs fail
    talk.store(VA + 16, pattern(700))
    talk.load(VA + 16, pattern(700))
    talk.send(b"still there")
    assert outcome(replay(tape.write(path))) == (3, 1, 0)


@pytest.mark.parametrize(
    "refusal",
    ["bad key", "out of bounds", "wrong access", "gone later", "short receive", "bad receive"],
)
def test_what_was_refused_is_refused_again_in_the_same_way(path: Path, refusal: str) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.store(VA, pattern(64))
    if refusal == "bad key":
        talk.load(VA, bytes(64), rkey=0x1234, refused=REMOTE_ACCESS)
    elif refusal == "out of bounds":
        talk.store(VA + 1, pattern(64), answer=REMOTE_ACCESS)
    elif refusal == "wrong access":
        talk.load(VA, bytes(64), refused=REMOTE_ACCESS)
    elif refusal == "gone later":
        talk.store(VA, pattern(64), answer=REMOTE_ACCESS)
    elif refusal == "short receive":
        talk.send(pattern(300), answer=INVALID_REQUEST)
    else:
        talk.send(pattern(300), answer=REMOTE_OPERATION)
    report = replay(tape.write(path))
    assert outcome(report) == (2, 0, 0), report


def test_what_was_sent_behind_a_refused_request_is_not_played(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    psn = talk.request("RDMA_READ_REQUEST", RETH(va=VA, rkey=0x99, dmalen=8))
    talk.send(b"flushed", answer=None)
    talk.answer(REMOTE_ACCESS, psn)
    report = replay(tape.write(path))
    assert outcome(report) == (1, 0, 0)
    assert report.skipped == {"requests behind one that was refused": 1}


def test_a_receiver_that_was_not_ready_is_not_ready_again_until_the_retry(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.send(b"one")
    talk.send(pattern(2 * MTU), answer=RNR)
    talk.psn -= 2
    talk.send(pattern(2 * MTU))
    talk.store(VA, b"with a receive", imm=5, answer=RNR)
    talk.psn -= 1
    talk.store(VA, b"with a receive", imm=5)
    talk.send(b"never taken", answer=RNR)
    report = replay(tape.write(path))
    assert outcome(report) == (4, 0, 0), report
    assert report.notes == {"receives withheld where the capture has an RNR NAK": 3}
    assert report.left_out == {"retransmissions and duplicates": 3}


def test_a_window_that_a_peer_invalidates_is_closed_from_then_on(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.store(VA, pattern(100), rkey=0x500)
    talk.load(VA, pattern(100), rkey=0x500)
    talk.send(b"done with it", invalidates=0x500)
    talk.store(VA, pattern(100, 2), rkey=0x501)
    talk.load(VA, pattern(100, 2), rkey=0x500, refused=REMOTE_ACCESS)
    report = replay(tape.write(path))
    assert outcome(report) == (5, 0, 0), report


def test_datagrams_arrive_with_their_payload(path: Path) -> None:
    tape = Tape()
    for i in range(5):
        tape.datagram(pattern(40 * i, i), source_qpn=7 + i % 2, dqpn=9 + i % 3)
    tape.datagram(b"to many", dqpn=0xFFFFFF)
    report = replay(tape.write(path))
    assert outcome(report) == (5, 0, 0), report
    assert report.skipped == {"datagrams to multicast groups": 1}


def test_unreliable_connections_need_no_answers_and_what_was_lost_is_left_out(
    path: Path,
) -> None:
    tape = Tape()
    talk = Talk(tape, transport="UC")
    talk.send(pattern(3 * MTU + 1))
    talk.store(VA, pattern(2 * MTU))
    lost = len(tape.packets)
    talk.store(VA, b"lost on its way")
    talk.store(VA + 4, b"four", imm=4)
    # As in NUPA's captures: the sender's record, and that of a receiver that never got it.
    tape.add(tape.packets[lost].copy())
    comments = {len(tape.packets) - 1: "nupa: dropped"}
    report = replay(tape.write(path, comments=comments))
    assert outcome(report) == (3, 0, 0), report
    assert report.skipped == {"requests that never arrived, as the capture says": 1}


def test_atomics_of_several_queue_pairs_are_played_in_the_order_of_what_they_found(
    path: Path,
) -> None:
    tape = Tape()
    talks = [Talk(tape, qpn=0x100 + i, peer_qpn=0x200 + i, psn=50 * i) for i in range(3)]
    talks[0].fetch_add(VA, 5, 10)
    asked = [
        talk.request("FETCH_ADD", AtomicETH(va=VA, rkey=0x77, swap=1 << i))
        for i, talk in enumerate(talks)
    ]
    # The third was first, then the first; their answers were seen in another order.
    for i, original in ((0, 15 + 4), (1, 15 + 4 + 1), (2, 15)):
        answer = AtomicAckETH(orig=original)
        talks[i].response("ATOMIC_ACKNOWLEDGE", asked[i], answer)
    talks[1].load(VA, word(15 + 7))
    report = replay(tape.write(path))
    assert outcome(report) == (5, 0, 0), report


def test_what_was_written_while_it_was_read_is_not_compared(path: Path) -> None:
    tape = Tape()
    writer, reader = (Talk(tape, qpn=0x100 + i, peer_qpn=0x200 + i, psn=50 * i) for i in (0, 1))
    writer.store(VA, bytes(16))
    psn = reader.request("RDMA_READ_REQUEST", RETH(va=VA, rkey=0x77, dmalen=16))
    writer.store(VA + 4, b"\1" * 4)
    reader.read_responses(psn, [bytes(4) + b"\1\1\0\0" + bytes(8)])
    report = replay(tape.write(path))
    assert outcome(report) == (3, 0, 0), report
    assert report.partly == 1
    assert list(report.notes.values()) == [1]
    reader.load(VA, bytes(4) + b"\1" * 4 + bytes(8))
    assert outcome(replay(tape.write(path))) == (4, 0, 0)
    reader.load(VA, bytes(16))
    assert outcome(replay(tape.write(path))) == (4, 1, 0)


def test_a_write_that_was_refused_leaves_open_what_is_in_its_place(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.store(VA, bytes(600))
    talk.store(VA, pattern(600), imm=1, answer=RNR)
    Talk(tape, qpn=9, peer_qpn=10).load(VA, pattern(300) + bytes(300))
    assert outcome(replay(tape.write(path))) == (3, 0, 0)


def test_a_capture_is_replayed_on_a_fabric_with_faults(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    for i in range(15):
        talk.store(VA, pattern(9 * MTU, i))
        talk.load(VA, pattern(9 * MTU, i))
        talk.send(pattern(3 * MTU, i))
    tape.write(path)
    with Fabric(hosts=2) as fabric:
        with Faulty(fabric.port("host0"), "drop", probability="5%", seed=1) as faulty:
            assert outcome(replay(path, fabric=fabric)) == (45, 0, 0)
            assert faulty.hits > 0
        with Faulty(fabric.port("host0"), "poison", after=20, count=1):
            report = replay(path, fabric=fabric)
    assert outcome(report) == (44, 1, 0)
    (difference,) = report.differences
    assert (difference.captured, difference.came) == ("SUCCESS", "REM_OP_ERR")


def test_a_datagram_that_is_lost_is_a_difference(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape()
    for i in range(3):
        tape.datagram(pattern(40 * i, i))
    monkeypatch.setattr(step, "UNRELIABLE_WAIT_S", 1.0)
    with Fabric(hosts=2) as fabric, Faulty(fabric.port("host0"), "drop", after=1, count=1):
        report = replay(tape.write(path), fabric=fabric)
    assert outcome(report) == (2, 1, 0), report
    (difference,) = report.differences
    assert (difference.packet, difference.what) == (2, "receive")
    assert difference.came == "no completion within 1 s"
