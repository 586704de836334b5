# SPDX-License-Identifier: BSD-3-Clause
"""nupa.replay with imperfect captures: cut, repeated, begun late, ambiguous, hostile."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import UDP, Ether

from nupa.packet.pcapng.reader import PcapngError, Writer
from nupa.packet.scapy.cm import MAD, REP, REQ
from nupa.packet.scapy.routing import LRH
from nupa.packet.scapy.transport import BTH, DETH, RETH
from nupa.replay import ReplayError, flows, memory, messages, packets, replay, run, stage
from tests.packet.replay.tape import MTU, PSN_ERROR, RNR, Talk, Tape, pattern, word
from tests.packet.replay.test_replay import VA, outcome


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.pcapng"


def test_retransmissions_and_second_sightings_are_played_once(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.fetch_add(VA, 1, 5)
    for packet in tape.packets[:2]:  # the answer was lost, and sent again
        tape.add(packet.copy())
    psn = talk.request("SEND_FIRST", pattern(MTU))
    talk.psn += 1
    talk.request("SEND_LAST", b"three")  # the second packet was lost
    talk.answer(PSN_ERROR, psn + 1)
    talk.request_at(psn + 1, "SEND_MIDDLE", pattern(MTU, 2))
    talk.request_at(psn + 2, "SEND_LAST", b"three")
    talk.answer()
    talk.fetch_add(VA, 1, 6)
    report = replay(tape.write(path))
    assert outcome(report) == (3, 0, 0), report
    assert report.left_out == {"retransmissions and duplicates": 2, "NAKs of lost packets": 1}
    twice = [frame for frame in tape.frames() for _ in range(2)]
    assert outcome(replay(tape.write(path, frames=twice))) == (3, 0, 0)


def test_a_read_that_was_asked_for_again_from_its_middle_is_one_read(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    data = pattern(3 * MTU)
    psn = talk.request("RDMA_READ_REQUEST", RETH(va=VA, rkey=1, dmalen=3 * MTU), psns=3)
    talk.response("RDMA_READ_RESPONSE_FIRST", psn, data[:MTU])
    talk.request_at(psn + 1, "RDMA_READ_REQUEST", RETH(va=VA + MTU, rkey=1, dmalen=2 * MTU))
    talk.response("RDMA_READ_RESPONSE_FIRST", psn + 1, data[MTU : 2 * MTU])
    talk.response("RDMA_READ_RESPONSE_LAST", psn + 2, data[2 * MTU :])
    talk.load(VA, data, rkey=1)
    report = replay(tape.write(path))
    assert outcome(report) == (2, 0, 0), report
    assert report.left_out == {"retransmissions and duplicates": 1}


def test_bytes_behind_a_request_that_has_no_payload_are_no_part_of_it(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    reth = RETH(va=VA, rkey=1, dmalen=4)
    psn = talk.request("RDMA_READ_REQUEST", reth, pattern(400))
    talk.read_responses(psn, [b"four"])
    assert outcome(replay(tape.write(path))) == (1, 0, 0)


def test_a_capture_that_begins_in_the_middle_is_played_from_the_first_whole_request(
    path: Path,
) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.response("RDMA_READ_RESPONSE_LAST", talk.psn - 9, b"of a read before")
    talk.request("RDMA_WRITE_MIDDLE", pattern(MTU))
    talk.request("RDMA_WRITE_LAST", b"end")
    talk.answer()
    talk.store(VA, pattern(400))
    talk.load(VA, pattern(400))
    report = replay(tape.write(path))
    assert outcome(report) == (2, 0, 0), report
    assert report.skipped == {"requests that began before the capture": 1}
    assert report.left_out["answers to what is not in the capture"] >= 1


def test_requests_with_packets_that_were_not_captured_are_left_out(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.store(VA, pattern(4 * MTU))
    talk.send(b"whole")
    frames = tape.frames()
    del frames[2]
    report = replay(tape.write(path, frames=frames))
    assert outcome(report) == (1, 0, 0), report
    assert report.skipped["requests of which packets are missing in the capture"] >= 1


def test_without_the_responders_packets_nothing_can_be_compared(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.send(b"to whom?", answer=None)
    talk.store(VA, b"where?", answer=None)
    report = replay(tape.write(path))
    assert outcome(report) == (0, 0, 1)
    assert [count for why, count in report.skipped.items() if "without an answer" in why] == [1]


def test_payloads_that_were_cut_are_compared_as_far_as_they_were_captured(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.send(pattern(3 * MTU + 5))
    talk.store(VA, pattern(3 * MTU + 5))
    talk.load(VA, pattern(3 * MTU + 5))
    talk.load(VA + 0x1000, pattern(2 * MTU))
    talk.fetch_add(VA + 0x2000, 1, 2)
    report = replay(tape.write(path, snaplen=96))
    assert outcome(report) == (5, 0, 0), report
    assert report.partly == 4
    assert report.as_dict()["partly_compared"] == 4
    # Cut within the headers of some: these are as if they were not there.
    report = replay(tape.write(path, snaplen=60))
    assert report.left_out["cut off within its headers"] > 0
    assert report.differed == 0


def test_connections_with_the_same_psns_are_told_apart(path: Path) -> None:
    tape = Tape()
    talks = [Talk(tape, qpn=0x100 + i, peer_qpn=0x200 + i, psn=0) for i in range(4)]
    for turn in range(3):
        for i, talk in enumerate(talks):
            talk.load(VA + 0x1000 * i, pattern(2 * MTU, i + turn), rkey=i)
    report = replay(tape.write(path))
    assert outcome(report) == (12, 0, 0), report


def test_a_handshake_says_which_queue_pairs_are_one_connection(path: Path) -> None:
    tape = Tape()
    talks = [Talk(tape, qpn=0x100 + i, peer_qpn=0x200 + i, psn=0) for i in range(2)]
    for i, talk in enumerate(talks):
        for message, ends in (
            (REQ(local_comm_id=i + 1, local_qpn=talk.qpn), (1, 2)),
            (REP(local_comm_id=9, remote_comm_id=i + 1, local_qpn=talk.peer_qpn), (2, 1)),
        ):
            mad = BTH(opcode="UD_SEND_ONLY", dqpn=1) / DETH() / MAD(transaction_id=i) / message
            tape.add(tape.below(*ends) / mad)
    reads = [
        talk.request("RDMA_READ_REQUEST", RETH(va=VA, rkey=i, dmalen=8))
        for i, talk in enumerate(talks)
    ]
    # Answered in the other order, which PSNs alone do not show.
    for i in (1, 0):
        talks[i].read_responses(reads[i], [pattern(8, i)])
    for i, talk in enumerate(talks):
        talk.store(VA, pattern(8, 3 + i), rkey=i)
        talk.load(VA, pattern(8, 3 + i), rkey=i)
    report = replay(tape.write(path))
    assert outcome(report) == (6, 0, 0), report
    assert report.left_out == {"management datagrams": 4}


def test_a_queue_pair_that_is_connected_again_begins_anew(path: Path) -> None:
    tape = Tape()
    for seed, psn in enumerate((0, 0, 0x800000)):
        talk = Talk(tape, psn=psn)
        talk.store(VA + seed, pattern(300, seed))
        talk.send(pattern(20 + len(tape.packets)))
    report = replay(tape.write(path))
    assert outcome(report) == (6, 0, 0), report


def test_native_infiniband_is_replayed(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.store(VA, pattern(2 * MTU))
    talk.load(VA, pattern(2 * MTU))
    with Writer(path) as writer:
        port = writer.add_interface("ib0", packets.fast.LINKTYPE_INFINIBAND)
        for packet in tape.packets:
            there = packet["IP"].dst.endswith("2")
            lids = {"slid": 1 + (not there), "dlid": 1 + there}
            writer.write(port, 0, bytes(LRH(**lids) / packet[BTH]))
    report = replay(path)
    assert outcome(report) == (2, 0, 0), report
    assert report.hosts == 2


def test_what_is_no_request_is_counted_by_its_reason(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.send(b"one")
    tape.add(Ether() / UDP(dport=53))
    tape.add(tape.below(1, 2) / BTH(opcode="RC_SEND_ONLY", icrc=1) / b"wrong")
    report = replay(tape.write(path))
    assert outcome(report) == (1, 0, 0)
    assert report.left_out == {"no InfiniBand transport": 1, "a wrong CRC: receivers drop it": 1}


def test_what_the_capture_itself_lost_is_said(path: Path) -> None:
    tape = Tape()
    Talk(tape).send(b"one")
    with Writer(path) as writer:
        port = writer.add_interface("h0/1", packets.fast.LINKTYPE_ETHERNET)
        for frame in tape.frames():
            writer.write(port, 0, frame)
        writer.statistics(port, 0, 9, 7)
    assert replay(path).notes == {"packets that the capture lost": 7}


def test_a_file_without_requests_says_what_it_has_instead(path: Path) -> None:
    tape = Tape()
    tape.add(Ether() / UDP(dport=53))
    with pytest.raises(ReplayError, match=r"no InfiniBand requests .* 1 no InfiniBand transport"):
        replay(tape.write(path))


@pytest.mark.parametrize(
    ("module", "limit", "value", "message"),
    [
        (packets, "PACKETS_MAX", 3, "more than 3 transport packets"),
        (packets, "PAYLOAD_BYTES_MAX", 1 << 10, "more than 0 MiB"),
        (memory, "REGION_BYTES_MAX", 1 << 10, "reach 0 MiB of memory"),
        (memory, "REGIONS_MAX", 1, "reach 2 separate places"),
        (flows, "FLOWS_MAX", 1, "more than 1 queue pairs"),
        (messages, "FLOWS_MAX", 0, "datagrams go between more than 0 queue pairs"),
        (run, "MESSAGE_BYTES_MAX", 1 << 9, "a request has 1024 bytes; the limit is 512"),
        (stage, "HOSTS_MAX", 1, "requests between 2 addresses"),
    ],
)
def test_limits_are_refused_with_what_to_do(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    limit: str,
    value: int,
    message: str,
) -> None:
    tape = Tape()
    talk = Talk(tape)
    talk.store(VA, pattern(1 << 10))
    assert outcome(replay(tape.write(path))) == (1, 0, 0)
    talk.store(VA + (1 << 20), pattern(1))
    tape.datagram(b"one")
    monkeypatch.setattr(module, limit, value)
    with pytest.raises(ReplayError, match=message):
        replay(tape.write(path))


class Recorded:
    """A clock that only sleep() advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def test_realtime_keeps_the_pauses_of_the_capture(path: Path) -> None:
    tape = Tape()
    talk = Talk(tape)
    for i in range(5):
        talk.send(pattern(i))
    tape.write(path, step_ns=10**9)
    clock = Recorded()
    assert outcome(replay(path, realtime=True, clock=clock)) == (5, 0, 0)
    # From the first request to the last; a busy machine adds naps of half a millisecond.
    assert clock.now - 100 == pytest.approx(8, abs=0.5)
    clock = Recorded()
    replay(path, clock=clock)
    assert clock.now - 100 < 0.5


# A model of a right responder: the capture of any program matches.
_ADDRESSES = st.integers(0, 60).map(lambda n: n * 8)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "store", "load", "add", "swap", "rnr"]),
        _ADDRESSES,
        st.integers(0, 3 * MTU),
        st.integers(0, 2),
    ),
    max_size=25,
)


def tape_of(steps: list[tuple[str, int, int, int]]) -> Tape:
    """Returns the packets of a correct responder."""
    tape = Tape()
    talks = [
        Talk(tape, source=1 + i, destination=3 - i % 2, qpn=i, peer_qpn=0x50 + i, psn=i * 1000)
        for i in range(3)
    ]
    stores: dict[int, bytearray] = {2: bytearray(2048), 3: bytearray(2048)}
    Talk(tape).send(b"there is one request at least")
    for number, (what, at, size, who) in enumerate(steps):
        talk, data = talks[who], pattern(size, number)
        memory_there = stores[talk.ends[1]]
        old = int.from_bytes(memory_there[at : at + 8], "little")
        if what == "send":
            talk.send(data, imm=number)
        elif what == "rnr":
            talk.send(data[:MTU], answer=RNR)
            talk.psn -= 1
            talk.send(data[:MTU])
        elif what == "store":
            talk.store(VA + at, data)
            memory_there[at : at + size] = data
        elif what == "load":
            talk.load(VA + at, bytes(memory_there[at : at + size]))
        elif what == "add":
            talk.fetch_add(VA + at, size, old)
            memory_there[at : at + 8] = word((old + size) % 2**64)
        else:
            talk.compare_swap(VA + at, old ^ (size & 1), number, old)
            if not size & 1:
                memory_there[at : at + 8] = word(number)
    return tape


@settings(max_examples=40)
@given(steps=_STEPS)
def test_whatever_a_right_responder_said_matches(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("replay") / "x.pcapng"
    report = replay(tape_of(steps).write(path))
    assert outcome(report) == (len(steps) + 1, 0, 0), report
    assert report.skipped == {}


_SAMPLE = tape_of(
    [
        ("store", 8, 600, 0),
        ("load", 0, 700, 1),
        ("add", 16, 5, 2),
        ("rnr", 0, 9, 0),
        ("send", 0, 513, 1),
    ]
).frames()


@settings(max_examples=60)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(_SAMPLE) - 1), st.integers(0, 120), st.integers(0, 255)),
        max_size=6,
    ),
    order=st.lists(st.integers(0, len(_SAMPLE) - 1), max_size=len(_SAMPLE)),
    snaplen=st.sampled_from([0, 0, 58, 64, 90]),
)
def test_a_mutated_capture_gives_a_report_or_says_why_not(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, int, int]],
    order: list[int],
    snaplen: int,
) -> None:
    """Removes the ICRC, so that changed bytes are not refused."""
    frames = [bytearray(frame) for frame in _SAMPLE]
    for which, at, value in changes:
        frames[which][at % len(frames[which])] = value
    cut = [bytes(frame[:-1]) for frame in frames] + [bytes(frames[i][:-1]) for i in order]
    path = tmp_path_factory.mktemp("replay") / "x.pcapng"
    Tape().write(path, frames=cut, snaplen=snaplen)
    with suppress(ReplayError):
        outcome(replay(path))


@settings(max_examples=60)
@given(
    changes=st.lists(st.tuples(st.integers(0, 1 << 12), st.binary(min_size=1, max_size=4))),
    end=st.integers(0, 1 << 12),
)
def test_a_mutated_file_is_refused_or_replayed(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]], end: int
) -> None:
    path = tmp_path_factory.mktemp("replay") / "x.pcapng"
    data = bytearray(Tape().write(path, frames=_SAMPLE).read_bytes())
    for at, new in changes:
        at %= len(data)
        data[at : at + len(new)] = new
    path.write_bytes(data[: len(data) - end % 7 * 16])
    with suppress(PcapngError, ReplayError):
        outcome(replay(path))
