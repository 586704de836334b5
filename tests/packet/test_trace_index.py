# SPDX-License-Identifier: BSD-3-Clause
"""Which packets make one transfer, by ids or by QPs and PSNs; and any file at all."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.diagram.draw import listing, svg, text
from nupa.diagram.draw.story import read_story, tell
from nupa.diagram.find.index import Index, read_index
from nupa.diagram.find.transfer import Mark
from nupa.packet.decode import fast
from nupa.packet.pcapng.reader import PcapngError, Reader, Writer
from nupa.packet.scapy.cm import DREQ, MAD, REP, REQ, RTU
from nupa.packet.scapy.transport import AETH, BTH, DETH, RETH, CNPPadding
from nupa.packet.tables import record
from nupa.packet.tables.opcodes import OPCODES
from nupa.packet.tables.record import LINKTYPE_ETHERNET, LINKTYPE_NUPA
from tests.packet import trace_scenes
from tests.packet.trace_scenes import Scene
from tests.unit.packet import roce_dialogues

Reading = Callable[[Scene | bytes], Index]


@pytest.fixture
def read(tmp_path: Path) -> Reading:
    def made(source: Scene | bytes) -> Index:
        file = tmp_path / "x.pcapng"
        file.write_bytes(source.bytes() if isinstance(source, Scene) else source)
        return read_index(file)

    return made


def adapter() -> Scene:
    """A capture that does not say which packets belong together."""
    return Scene(names_transfers=False)


def of_packets(index: Index) -> list[int | None]:
    """For each packet the number of its transfer."""
    owners = (index.owner(packet) for packet in range(1, index.packets + 1))
    return [owner.number if owner else None for owner in owners]


# --- by ids ---


def test_records_with_one_id_are_one_transfer_at_all_levels(read: Reading) -> None:
    [transfer] = read(trace_scenes.all_levels()).transfers
    assert transfer.id == trace_scenes.TRANSFER
    assert transfer.counts[1:] == [40, 3, 5, 0, 0]
    assert transfer.what == "RDMA WRITE 4 KiB"
    assert (transfer.source_text, transfer.target_text) == ("host0 0x010011", "host1 0x020047")


def test_each_scene_is_said_what_it_is(read: Reading) -> None:
    assert {
        name: read(scene()).transfers[0].what for name, scene in trace_scenes.SCENES.items()
    } == {
        "send": "SEND 8 B",
        "write": "RDMA WRITE 64 KiB",
        "all_levels": "RDMA WRITE 4 KiB",
        "read": "RDMA READ 3 KiB",
        "atomic": "CMP AND SWP 8 B",
        "refused": "RDMA WRITE 64 B",
        "dropped": "SEND 8 B",
        "datagram": "UD SEND 64 B",
        "pooled": "RDMA WRITE 128 B",
        "through_switch": "SEND 8 B",
    }


def test_another_program_s_packet_ids_are_no_transfers(read: Reading) -> None:
    scene = Scene()
    for number in range(2):
        scene.transfer = number + 1
        scene.request("RC_SEND_FIRST" if not number else "RC_SEND_LAST", 5 + number, b"x" * 256)
    foreign = scene.bytes().replace(b"nupa ", b"else ", 1)
    assert len(read(scene).transfers) == 2
    assert len(read(foreign).transfers) == 1


def test_tlps_alone_are_a_transfer_too(read: Reading) -> None:
    from tests.unit.packet import split

    scene = Scene()
    scene.tlps(split.pcie_tlps("write", 0x7000, 1024, split.PcieLink()), host=1)
    [transfer] = read(scene).transfers
    assert transfer.what == "PCIe MWr 1 KiB"


# --- by QPs and PSNs ---


def test_a_message_of_many_packets_and_its_ack_are_one_transfer(read: Reading) -> None:
    scene = adapter()
    for psn, opcode in enumerate(("FIRST", "MIDDLE", "MIDDLE", "LAST"), 0xFFFFFE):
        scene.request(f"RC_SEND_{opcode}", psn & 0xFFFFFF, b"x" * 256, after=10)
    scene.request("RC_SEND_ONLY", 2, b"next", after=10)
    scene.ack(1, after=10)
    scene.ack(2, after=10)
    index = read(scene)
    assert of_packets(index) == [1, 1, 1, 1, 2, 1, 2]
    assert [one.what for one in index.transfers] == ["SEND 1 KiB", "SEND 4 B"]
    assert index.transfers[0].source_qpn == trace_scenes.SOURCE_QPN


def test_all_dialogues_of_an_adapter_become_transfers(read: Reading) -> None:
    file = io.BytesIO()
    writer = Writer(file)
    number = writer.add_interface("eth0", LINKTYPE_ETHERNET)
    for i, packet in enumerate(roce_dialogues.packets("sends", "writes", "reads", "atomics")):
        writer.write(number, i * 1000, bytes(packet))
    index = read(file.getvalue())
    assert index.unassigned == 0
    assert [(one.what, one.records) for one in index.transfers] == [
        ("SEND 13 B", 2),
        ("SEND WITH IMM 4 B", 2),
        ("SEND 515 B", 4),
        ("SEND WITH IMM 257 B", 3),
        ("SEND WITH INV 8 B", 2),
        ("SEND 0 B", 2),
        ("RDMA WRITE 10 B", 2),
        ("RDMA WRITE 514 B", 4),
        ("RDMA WRITE WITH IMM 5 B", 2),
        ("RDMA WRITE WITH IMM 260 B", 3),
        ("RDMA READ 768 B", 4),
        ("RDMA READ 7 B", 2),
        ("CMP AND SWP 8 B", 2),
        ("FETCH AND ADD 8 B", 2),
    ]


def test_a_message_acknowledged_together_with_a_later_one_ends_with_that_ack(
    read: Reading,
) -> None:
    scene = adapter()
    for psn in (5, 6, 7):
        scene.request("RC_SEND_ONLY", psn, b"x", after=100)
    scene.ack(7, after=1000)
    index = read(scene)
    assert of_packets(index) == [1, 2, 3, 3]
    assert [one.acknowledged_by for one in index.transfers] == [4, 4, 0]
    assert [one.duration_ns for one in index.transfers] == [1200, 1100, 1000]
    story = read_story(index, index.transfers[0])
    assert [row.label for row in story.rows] == ["RC SEND Only PSN 5", "ACK PSN 7"]
    assert "packet 4 acknowledges it together with a later one" in text.render(story)


def test_what_is_sent_again_belongs_to_the_transfer_it_was_first_sent_for(read: Reading) -> None:
    scene = adapter()
    scene.request("RC_SEND_FIRST", 5, b"x" * 256, after=10)
    scene.request("RC_SEND_LAST", 6, b"x", after=10)
    scene.request("RC_SEND_ONLY", 7, b"x", after=10)
    scene.ack(6, syndrome=0x60, after=10)  # 6 was lost behind where this was captured
    scene.request("RC_SEND_LAST", 6, b"x", after=10)
    scene.request("RC_SEND_ONLY", 7, b"x", after=10)
    scene.ack(7, after=10)
    index = read(scene)
    assert of_packets(index) == [1, 1, 2, 1, 1, 2, 2]
    assert [one.flag_names for one in index.transfers] == [["retry", "nak"], ["retry"]]
    assert index.transfers[0].what == "SEND 257 B"


def test_a_message_whose_first_packet_comes_late_is_one_transfer(read: Reading) -> None:
    scene = adapter()
    scene.request("RC_SEND_ONLY", 4, b"x", after=10)
    scene.request("RC_SEND_LAST", 6, b"x", after=10)  # 5 was lost before it was captured
    scene.request("RC_SEND_FIRST", 5, b"x" * 256, after=10)
    scene.request("RC_SEND_LAST", 6, b"x", after=10)
    assert of_packets(read(scene)) == [1, 2, 2, 2]


def test_a_read_asked_for_again_from_where_it_ended_is_one_transfer(read: Reading) -> None:
    scene = adapter()
    payload = b"x" * 256
    scene.request("RC_RDMA_READ_REQUEST", 5, RETH(va=0x1000, rkey=7, dmalen=768), after=10)
    scene.response("RC_RDMA_READ_RESPONSE_FIRST", 5, AETH() / payload, after=10)
    scene.request("RC_RDMA_READ_REQUEST", 6, RETH(va=0x1100, rkey=7, dmalen=512), after=10)
    scene.response("RC_RDMA_READ_RESPONSE_FIRST", 6, AETH() / payload, after=10)
    scene.response("RC_RDMA_READ_RESPONSE_LAST", 7, AETH() / payload, after=10)
    scene.request("RC_RDMA_READ_REQUEST", 8, RETH(va=0x1000, rkey=7, dmalen=256), after=10)
    assert of_packets(read(scene)) == [1, 1, 1, 1, 1, 2]


def test_connections_between_the_same_hosts_are_told_apart(read: Reading) -> None:
    scene = adapter()
    for psn in (100, 101):
        scene.request("RC_SEND_ONLY", psn, b"x", qpn=0x51, after=10)
        scene.request("RC_SEND_ONLY", psn + 900, b"x", qpn=0x52, after=10)
        scene.ack(psn + 900, qpn=0x42, after=10)
        scene.ack(psn, qpn=0x41, after=10)
    index = read(scene)
    assert of_packets(index) == [1, 2, 2, 1, 3, 4, 4, 3]
    assert [(one.source_qpn, one.target_qpn) for one in index.transfers] == [
        (0x41, 0x51),
        (0x42, 0x52),
    ] * 2


def test_both_directions_of_a_connection_know_their_qps(read: Reading) -> None:
    scene = adapter()
    scene.request("RC_SEND_ONLY", 5, b"x", qpn=0x51, after=10)
    scene.ack(5, qpn=0x41, after=10)
    bth = BTH(opcode="RC_SEND_ONLY", dqpn=0x41, psn=900)
    scene.frame(scene.below(True) / bth / b"x", back=True, after=10)
    index = read(scene)
    assert of_packets(index) == [1, 1, 2]
    assert (index.transfers[1].source_qpn, index.transfers[1].target_qpn) == (0x51, 0x41)


def test_an_answer_to_nothing_belongs_to_no_transfer(read: Reading) -> None:
    scene = adapter()
    scene.ack(5)
    index = read(scene)
    assert (index.transfers, index.unassigned) == ([], 1)
    assert "1 packet belongs to no transfer" in listing.render(index, [])


def test_messages_of_connection_management_are_a_conversation(read: Reading) -> None:
    scene = adapter()
    for transaction, back, message in (
        (1, False, REQ()),
        (1, True, REP()),
        (1, False, RTU()),
        (2, False, DREQ()),
    ):
        mad = DETH() / MAD(transaction_id=transaction) / message
        bth = BTH(opcode="UD_SEND_ONLY", dqpn=1, psn=transaction)
        scene.frame(scene.below(back) / bth / mad, back=back, after=10)
    index = read(scene)
    assert of_packets(index) == [1, 1, 1, 2]
    assert [one.what for one in index.transfers] == ["CM REQ", "CM DREQ"]
    story = read_story(index, index.transfers[0])
    assert [row.label for row in story.rows] == ["CM REQ PSN 1", "CM REP PSN 1", "CM RTU PSN 1"]
    assert [row.source < row.target for row in story.rows] == [True, False, True]


def test_datagrams_are_transfers_each_and_congestion_is_a_conversation(read: Reading) -> None:
    scene = adapter()
    for psn in (1, 1):
        scene.request("UD_SEND_ONLY", psn, DETH(srcqp=9) / bytes(8), after=10)
    for _ in range(3):
        scene.frame(scene.below(True) / BTH(dqpn=9, becn=1) / CNPPadding(), back=True, after=10)
    index = read(scene)
    assert [one.what for one in index.transfers] == ["UD SEND 8 B", "UD SEND 8 B", "CNP"]
    assert index.transfers[0].source_qpn == 9
    assert read_story(index, index.transfers[2]).rows[0].count == 3


def test_a_host_has_its_name_also_where_nothing_comes_back_from_it(read: Reading) -> None:
    scene = Scene()
    for transfer, back in ((1, False), (2, True)):
        scene.transfer = transfer
        bth = BTH(opcode="UC_SEND_ONLY", dqpn=transfer, psn=1)
        scene.frame(scene.below(back) / bth / b"x", back=back, after=10)
    ends = [(one.source_text, one.target_text) for one in read(scene).transfers]
    assert ends == [("host0", "host1 0x000001"), ("host1", "host0 0x000002")]


# --- lists ---


def many() -> Scene:
    """Four transfers: 2 takes longest, 3 is refused, 4 is sent again."""
    scene = adapter()
    for psn, wait, syndrome in ((5, 100, 0x1F), (6, 9000, 0x1F), (7, 200, 0x2C), (8, 300, 0x1F)):
        for _ in range(2 if psn == 8 else 1):
            scene.request("RC_SEND_ONLY", psn, bytes(psn), after=10)
        scene.ack(psn, after=wait, syndrome=syndrome)
    return scene


def test_lists_are_sorted_and_chosen_from(read: Reading) -> None:
    index = read(many())

    def numbers(**how: Any) -> list[int]:
        return [one.number for one in listing.choose(index.transfers, **how)]

    assert numbers() == [1, 2, 3, 4]
    assert numbers(sort="duration") == [2, 3, 4, 1]  # 3 was answered with 4
    assert numbers(sort="bytes") == [4, 3, 2, 1]
    assert numbers(sort="records") == [4, 1, 2, 3]
    assert numbers(slowest=2) == [2, 3]
    assert numbers(slowest=3, sort="start") == [2, 3, 4]
    assert numbers(only=[Mark.RNR]) == [3]
    assert numbers(only=[Mark.RETRY, Mark.RNR]) == [3, 4]


def test_a_list_has_a_line_for_each_transfer(read: Reading) -> None:
    index = read(trace_scenes.dropped())
    shown = listing.render(index, index.transfers).splitlines()
    assert shown[0].endswith("x.pcapng: 1 transfer; 6 packets in 67.1 ms")
    assert shown[2].split() == [
        *("#", "TRANSFER", "FROM", "TO", "WHAT", "START", "DURATION"),
        *("QUEUE", "TRANSPORT", "FLAGS"),
    ]
    assert shown[3].split() == [
        *("1", "0x100110000000001", "host0", "0x010011", "host1", "0x020047", "SEND", "8", "B"),
        *("0", "ns", "67.1", "ms", "3", "3", "retry,", "dropped"),
    ]


def test_an_empty_file_says_so(read: Reading) -> None:
    index = read(Scene())
    assert listing.render(index, []).endswith("x.pcapng: no packets")
    with pytest.raises(IndexError):
        index.owner(1)


def test_near_transfers_are_found_for_an_id_that_is_none(read: Reading) -> None:
    scene = Scene()
    for number in (10, 20, 30, 40, 50):
        scene.transfer = number
        scene.wqe(trace_scenes.SEND, 8)
    index = read(scene)
    assert [one.id for one in index.near(29)] == [20, 30, 40]
    assert [one.id for one in index.near(1000)] == [30, 40, 50]


# --- any file ---


def test_a_damaged_file_gives_all_before_the_damage(read: Reading) -> None:
    whole = trace_scenes.write().bytes()
    index = read(whole[: len(whole) * 2 // 3])
    assert index.damage is not None
    assert "ends too early" in str(index.damage)
    [transfer] = index.transfers
    story = read_story(index, transfer)
    assert sum(row.count for row in story.rows) == index.packets > 5


def test_what_is_no_capture_is_refused(read: Reading) -> None:
    with pytest.raises(PcapngError, match="not a pcapng or pcap file"):
        read(b"root:x:0:0:root:/root:/bin/sh\n")


def records() -> st.SearchStrategy[tuple[Any, ...]]:
    """Anything: real headers, random ones, and no headers at all."""
    ports = st.sampled_from(["host0/1", "host1/1", "switch0/1", "eth0", ""])
    ours = st.builds(
        lambda level, kind, direction, flags, transfer, host, data: (
            record.pack(level, kind, direction, flags, transfer, 0, host) + data
        ),
        st.integers(0, 6),
        st.integers(0, 7),
        st.integers(0, 3),
        st.integers(0, 0x3FF),
        st.integers(0, 3),
        st.integers(0, 2),
        st.binary(max_size=90),
    )
    roce = st.builds(
        _roce,
        st.booleans(),
        st.sampled_from(sorted(OPCODES)),
        st.integers(0, 3),
        st.integers(0, 6),
        st.binary(max_size=60),
    )
    cooked = st.builds(
        lambda frame, index: frame[12:14] + bytes((0, 0, 0, 0, 0, index)) + bytes(12) + frame[14:],
        roce,
        st.integers(1, 3),
    )
    linktypes = st.sampled_from([LINKTYPE_NUPA, LINKTYPE_ETHERNET, 101, 113, 247, 276, 1234])
    times, flags, ids = st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)
    options = (ports, times, flags, ids, st.sampled_from(["", "nupa: retry, dropped", "hello"]))
    return (
        st.tuples(ours, st.just(LINKTYPE_NUPA), *options)
        | st.tuples(roce, st.just(LINKTYPE_ETHERNET), *options)
        | st.tuples(cooked, st.just(fast.LINKTYPE_SLL2), *options)
        | st.tuples(st.binary(max_size=120), linktypes, *options)
    )


_BELOW = {back: bytes(Scene().below(back)) for back in (False, True)}


def _roce(back: bool, opcode: int, qpn: int, psn: int, rest: bytes) -> bytes:
    """A frame with a BTH, lengths right."""
    below = bytearray(_BELOW[back])
    bth = bytes([opcode, 0, 0xFF, 0xFF, 0]) + qpn.to_bytes(3, "big") + bytes(1)
    above = bth + psn.to_bytes(3, "big") + rest
    below[16:18] = (28 + len(above)).to_bytes(2, "big")
    below[36:38] = (0x12B7).to_bytes(2, "big")
    below[38:40] = (8 + len(above)).to_bytes(2, "big")
    return bytes(below) + above


def capture_of(packets: Iterable[tuple[Any, ...]]) -> bytes:
    file = io.BytesIO()
    writer = Writer(file)
    numbers: dict[tuple[str, int], int] = {}
    now = trace_scenes.START_NS
    for data, linktype, port, after, flags, packet_id, comment in packets:
        key = (port, linktype)
        if key not in numbers:
            numbers[key] = writer.add_interface(port, linktype)
        now += after
        writer.write(numbers[key], now, data, flags=flags, packet_id=packet_id, comment=comment)
    return file.getvalue()


@given(packets=st.lists(records(), min_size=1, max_size=12), everything=st.booleans())
def test_any_capture_gives_diagrams_with_its_records_in_order(
    packets: list[tuple[Any, ...]], everything: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("trace") / "x.pcapng"
    file.write_bytes(capture_of(packets))
    index = read_index(file)
    assert index.damage is None
    assert index.packets == len(packets)
    listing.render(index, index.transfers)
    listing.to_json(index, index.transfers)
    told = 0
    for transfer in index.transfers:
        story = read_story(index, transfer, everything=everything)
        times = [row.time_ns for row in story.rows]
        assert times == sorted(times)
        assert all(0 <= place < len(story.actors) for row in story.rows for place in row.seen)
        owned = index.packets_of(transfer)
        shown = [event.packet for row in story.rows for event in row.events]
        assert set(shown) <= set(owned)
        assert sum(transfer.counts) == len(owned) - bool(transfer.acknowledged_by)
        told += sum(transfer.counts)
        assert max(map(len, text.render(story, width=200).splitlines())) <= 200
        svg.render(story)
        story.to_json()
    assert told + index.unassigned == len(packets)


# --- limits and cost ---


def test_a_diagram_has_a_limit_and_says_what_it_leaves_out(
    read: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = read(trace_scenes.write())
    monkeypatch.setattr("nupa.diagram.draw.story.RECORDS_MAX", 19)
    story = read_story(index, index.transfers[0])
    assert (story.left_out, sum(row.count for row in story.rows)) == (1, 19)
    assert "1 record more, not shown" in text.render(story)


def calls_of(function: Callable[[], object]) -> int:
    """How many Python functions it calls."""
    count = 0

    def profile(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def repeated(scene: Scene, times: int) -> bytes:
    """The packets of a scene, again and again, each time as another transfer."""
    packets = list(Reader(io.BytesIO(scene.bytes())))
    file = io.BytesIO()
    writer = Writer(file)
    numbers = {
        packet.interface.number: writer.add_interface(
            packet.interface.name, packet.interface.linktype
        )
        for packet in packets
    }
    for turn in range(times):
        for packet in packets:
            data, transfer = packet.data, packet.packet_id + turn
            if packet.interface.linktype == LINKTYPE_NUPA:
                data = data[:8] + transfer.to_bytes(8, "big") + data[16:]
            number = numbers[packet.interface.number]
            writer.write(number, packet.ts_ns + turn * 5000, data, packet_id=transfer)
    return file.getvalue()


def test_the_index_calls_no_function_for_most_records(tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    scene = trace_scenes.all_levels()
    file.write_bytes(repeated(scene, 200))
    index = read_index(file)
    assert len(index.transfers) == 200
    assert index.packets == 200 * 48
    assert calls_of(lambda: read_index(file)) < index.packets / 2


def test_a_story_of_no_records_is_a_title() -> None:
    from nupa.diagram.find.transfer import Transfer

    story = tell("x.pcapng", Transfer(5, 1, 0), [], 0)
    assert text.render(story).splitlines()[0] == "transfer 0x5: ?"
    assert svg.render(story).startswith("<svg")
