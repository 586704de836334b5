# SPDX-License-Identifier: BSD-3-Clause
"""The index finds the packets of a transfer, by ids or by QPs and PSNs."""

from __future__ import annotations

import io
from typing import Any

import pytest

from nupa.diagram.draw import listing, text
from nupa.diagram.draw.diagram import read_diagram
from nupa.diagram.find.index import Index
from nupa.diagram.find.transfer import Mark
from nupa.packet.pcapng.reader import Writer
from nupa.packet.scapy.cm import DREQ, MAD, REP, REQ, RTU
from nupa.packet.scapy.transport import AETH, BTH, DETH, RETH, CNPPadding
from nupa.packet.tables.record import LINKTYPE_ETHERNET
from tests.packet.trace import scenes
from tests.packet.trace.scenes import Reading, Scene
from tests.unit.packet import roce_dialogues


def adapter() -> Scene:
    """Returns a capture that does not say which packets belong together."""
    return Scene(names_transfers=False)


def of_packets(index: Index) -> list[int | None]:
    """Returns the number of its transfer for each packet."""
    owners = (index.owner(packet) for packet in range(1, index.packets + 1))
    return [owner.number if owner else None for owner in owners]


# --- by ids ---


def test_records_with_one_id_are_one_transfer_at_all_levels(read: Reading) -> None:
    [transfer] = read(scenes.all_levels()).transfers
    assert transfer.id == scenes.TRANSFER
    assert transfer.counts[1:] == [40, 3, 5, 0, 0]
    assert transfer.what == "RDMA WRITE 4 KiB"
    assert (transfer.source_text, transfer.target_text) == ("host0 0x010011", "host1 0x020047")


def test_each_scene_is_said_what_it_is(read: Reading) -> None:
    assert {name: read(scene()).transfers[0].what for name, scene in scenes.SCENES.items()} == {
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
    assert index.transfers[0].source_qpn == scenes.SOURCE_QPN


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
    diagram = read_diagram(index, index.transfers[0])
    assert [row.label for row in diagram.rows] == ["RC SEND Only PSN 5", "ACK PSN 7"]
    assert "packet 4 acknowledges it together with a later one" in text.render(diagram)


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
    diagram = read_diagram(index, index.transfers[0])
    assert [row.label for row in diagram.rows] == ["CM REQ PSN 1", "CM REP PSN 1", "CM RTU PSN 1"]
    assert [row.source < row.target for row in diagram.rows] == [True, False, True]


def test_datagrams_are_transfers_each_and_congestion_is_a_conversation(read: Reading) -> None:
    scene = adapter()
    for psn in (1, 1):
        scene.request("UD_SEND_ONLY", psn, DETH(srcqp=9) / bytes(8), after=10)
    for _ in range(3):
        scene.frame(scene.below(True) / BTH(dqpn=9, becn=1) / CNPPadding(), back=True, after=10)
    index = read(scene)
    assert [one.what for one in index.transfers] == ["UD SEND 8 B", "UD SEND 8 B", "CNP"]
    assert index.transfers[0].source_qpn == 9
    assert read_diagram(index, index.transfers[2]).rows[0].count == 3


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
    """Writes four transfers: 2 takes longest, 3 is refused, 4 is sent again."""
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
    index = read(scenes.dropped())
    shown = listing.render(index, index.transfers).splitlines()
    assert shown[0].endswith("x.pcapng: 1 transfer; 6 packets in 67.1 ms")
    assert shown[2].split() == [
        *("#", "TRANSFER", "FROM", "TO", "WHAT", "START", "DURATION"),
        *("QUEUE", "RECORDS", "PACKETS", "FLAGS"),
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
        scene.wqe(scenes.SEND, 8)
    index = read(scene)
    assert [one.id for one in index.near(29)] == [20, 30, 40]
    assert [one.id for one in index.near(1000)] == [30, 40, 50]
