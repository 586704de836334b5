# SPDX-License-Identifier: BSD-3-Clause
"""Diagrams of transfers: as text, compared with golden/, and as SVG."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nupa.diagram.draw import svg, text
from nupa.diagram.draw.diagram import Diagram, read_diagram
from nupa.diagram.find.index import read_index
from nupa.packet.pcapng.reader import INBOUND, OUTBOUND
from nupa.packet.scapy.transport import AETH, BTH, AtomicETH
from nupa.packet.tables import record
from tests.packet.trace import scenes
from tests.packet.trace.scenes import SCENES, Scene
from tests.unit.packet import split

GOLDEN = Path(__file__).with_name("golden")
SVG = "{http://www.w3.org/2000/svg}"
DiagramOf = Callable[..., Diagram]


@pytest.fixture
def diagram_of(tmp_path: Path) -> DiagramOf:
    """The diagram of the only transfer of a scene."""

    def made(scene: Scene, *, everything: bool = False) -> Diagram:
        file = tmp_path / "x.pcapng"
        file.write_bytes(scene.bytes())
        index = read_index(file)
        [transfer] = index.transfers
        return read_diagram(index, transfer, everything=everything)

    return made


def labels(diagram: Diagram) -> list[str]:
    return [row.label for row in diagram.rows]


@pytest.mark.parametrize("name", SCENES)
def test_the_diagram_is_the_golden_one(name: str, diagram_of: DiagramOf) -> None:
    drawn = text.render(diagram_of(SCENES[name]()), width=100)
    assert drawn + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("width", [80, 93, 120, 200])
def test_no_line_is_wider_than_the_terminal(name: str, width: int, diagram_of: DiagramOf) -> None:
    diagram = diagram_of(SCENES[name]())
    drawn = text.render(diagram, width=width)
    assert max(map(len, drawn.splitlines())) <= width
    plain = text.render(diagram, width=width, glyphs=text.ASCII)
    assert plain.isascii()
    assert max(map(len, plain.splitlines())) <= width + 1  # of the title's arrow


def test_colours_are_for_terminals_alone_and_change_no_character(diagram_of: DiagramOf) -> None:
    diagram = diagram_of(scenes.dropped())
    plain, coloured = text.render(diagram), text.render(diagram, colour=True)
    assert "\x1b" not in plain
    pieces = coloured.split("\x1b[")
    assert pieces[0] + "".join(piece.split("m", 1)[1] for piece in pieces[1:]) == plain


def test_a_send_goes_from_wqe_to_doorbell_to_packet_to_ack_to_cqe(diagram_of: DiagramOf) -> None:
    diagram = diagram_of(scenes.send())
    assert labels(diagram) == [
        "WQE SEND 8 B",
        "doorbell SQ 1",
        "RC SEND Only PSN 5",
        "CQE SUCCESS",
        "ACK PSN 5",
        "CQE SUCCESS",
    ]
    assert [actor.lines[0] for actor in diagram.actors] == ["host0", "host0/1", "host1/1", "host1"]
    assert [(row.source, row.target) for row in diagram.rows] == [
        (0, 1),
        (0, 1),
        (1, 2),
        (2, 3),
        (2, 1),
        (1, 0),
    ]


def test_packets_of_a_kind_are_folded_and_all_unfolds_them(diagram_of: DiagramOf) -> None:
    folded, unfolded = (
        diagram_of(scenes.write()),
        diagram_of(scenes.write(), everything=True),
    )
    [middle] = [row for row in folded.rows if row.count > 1]
    assert middle.label == "RC RDMA WRITE Middle × 14"
    assert middle.detail.startswith("PSN 101..114, 4096 B each, in ")
    assert all(row.count == 1 for row in unfolded.rows)
    packets = [event.packet for row in folded.rows for event in row.events]
    assert sorted(packets) == [row.events[0].packet for row in unfolded.rows] == [*range(1, 21)]


def test_the_levels_of_one_transfer_stand_in_one_diagram(diagram_of: DiagramOf) -> None:
    diagram = diagram_of(scenes.all_levels())
    assert {row.level for row in diagram.rows} == {"queue", "tlp", "transport"}
    read = next(row for row in diagram.rows if row.label == "MRd × 6")
    written = next(row for row in diagram.rows if row.label == "MWr × 12")
    names = [actor.lines[0] for actor in diagram.actors]
    assert (names[read.source], names[read.target]) == ("host0/1", "host0")
    assert (names[written.source], names[written.target]) == ("host1/1", "host1")


def test_what_is_lost_and_sent_again_is_drawn_so_and_the_gap_is_marked(
    diagram_of: DiagramOf,
) -> None:
    diagram = diagram_of(scenes.dropped())
    [lost] = [row for row in diagram.rows if row.is_lost]
    [again] = [row for row in diagram.rows if row.is_retry]
    assert lost.label == again.label == "RC SEND Only PSN 5"
    assert again.gap_ns == 67_108_864
    assert [row.gap_ns for row in diagram.rows if row.gap_ns] == [67_108_864]
    drawn = text.render(diagram, width=120)
    assert "──✗" in drawn
    assert "╌╌" in drawn
    assert "⋯ 67.1 ms ⋯" in drawn
    assert diagram.transfer.flag_names == ["retry", "dropped"]


def test_a_repeated_request_is_a_retry_also_where_no_flag_says_so(diagram_of: DiagramOf) -> None:
    scene = Scene(names_transfers=False)
    for after in (0, 500_000):
        scene.request("RC_SEND_ONLY", 5, b"8 bytes!", after=after)
    scene.ack(5, after=700)
    diagram = diagram_of(scene)
    assert [row.is_retry for row in diagram.rows] == [False, True, False]
    assert diagram.transfer.flag_names == ["retry"]


def test_a_refusal_says_why(diagram_of: DiagramOf) -> None:
    diagram = diagram_of(scenes.refused())
    assert labels(diagram)[-2:] == ["NAK: remote access error PSN 5", "CQE REM_ACCESS_ERR"]
    assert [row.is_error for row in diagram.rows] == [False, False, True, True]
    assert diagram.transfer.flag_names == ["nak", "error"]


def test_a_packet_seen_at_four_ports_is_one_arrow(diagram_of: DiagramOf) -> None:
    diagram = diagram_of(scenes.through_switch())
    request = diagram.rows[1]
    names = [actor.lines[0] for actor in diagram.actors]
    assert names == ["host0", "host0/1", "switch0/1", "switch0/2", "host1/1"]
    assert (request.source, request.target, request.seen) == (1, 4, (2, 3))
    each = diagram_of(scenes.through_switch(), everything=True)
    ways = [(row.source, row.target) for row in each.rows if "SEND Only" in row.label]
    assert ways == [(1, 4), (1, 2), (2, 3), (3, 4)]


def test_an_atomic_shows_its_operands_and_what_was_there(diagram_of: DiagramOf) -> None:
    details = [row.detail for row in diagram_of(scenes.atomic()).rows]
    assert details[1] == "@0x7f1234567000, 0x4 -> 0x9"
    assert details[2] == "was 0x4"


def test_pooled_memory_is_an_actor(diagram_of: DiagramOf) -> None:
    diagram = diagram_of(scenes.pooled())
    assert diagram.actors[-1].kind == "pool"
    assert [(row.label, row.source, row.target) for row in diagram.rows[1:3]] == [
        ("M2S MemWr × 2", 1, 2),
        ("S2M Cmp × 2", 2, 1),
    ]


def test_frames_of_the_netdev_are_a_conversation(diagram_of: DiagramOf) -> None:
    from scapy.layers.inet import IP, TCP
    from scapy.layers.l2 import Ether

    scene = Scene(names_transfers=False)
    there = Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=4000, dport=5201)
    back = Ether() / IP(src="10.0.0.2", dst="10.0.0.1") / TCP(sport=5201, dport=4000)
    for packet in (there, back):
        packet[TCP].flags = "S" if packet is there else "SA"
        scene.frame(packet, after=1000, back=packet is back)
    there[TCP].flags, back[TCP].flags = "PA", "A"
    for _ in range(3):
        scene.frame(there / bytes(1000), after=100)
        scene.frame(back, after=100, back=True)
    diagram = diagram_of(scene)
    assert labels(diagram) == ["TCP SYN 0 B", "TCP SYN ACK 0 B", "TCP × 3", "TCP ACK × 3"]
    assert diagram.rows[2].detail.startswith("1000 B each")
    assert diagram.transfer.source_text == "10.0.0.1:4000"


def test_a_frame_inside_a_record_is_shown_like_any(diagram_of: DiagramOf) -> None:
    scene = scenes.send()
    frame = bytes(scene.below(False))
    head = record.pack(record.Level.NET, record.Kind.ETHERNET, OUTBOUND, transfer=scenes.TRANSFER)
    number = scene.interface("host0/1", record.LINKTYPE_NUPA)
    scene.writer.write(number, scene.now_ns + 10, head + frame)
    diagram = diagram_of(scene)
    assert diagram.rows[-1].level == "net"
    assert diagram.rows[-1].label.startswith("UDP ")


def test_one_host_is_two_actors_where_it_talks_to_itself(diagram_of: DiagramOf) -> None:
    scene = Scene()
    scene.wqe(scenes.SEND, 8)
    packet = scene.below(False)
    packet["IP"].dst = "10.0.0.1"
    scene.frame(packet / BTH(opcode="RC_SEND_ONLY", dqpn=3, psn=1) / b"8 bytes!", after=9)
    answer = BTH(opcode="RC_ACKNOWLEDGE", dqpn=scenes.SOURCE_QPN, psn=1) / AETH(msn=1)
    scene.frame(packet / answer, after=9, ports=[("host0/1", INBOUND)])
    diagram = diagram_of(scene)
    there, back = diagram.rows[1:]
    assert (there.source, there.target) == (back.target, back.source)
    assert there.source != there.target


def test_of_a_host_that_talks_to_itself_tlps_are_beside_whose_memory_they_reach(
    diagram_of: DiagramOf,
) -> None:
    scene = Scene()
    scene.wqe(scenes.FETCH_ADD, 8)
    packet = scene.below(False)
    packet["IP"].dst = "10.0.0.1"
    operands = AtomicETH(va=0x1000, rkey=1, swap=1)
    scene.frame(packet / BTH(opcode="RC_FETCH_ADD", dqpn=3, psn=1) / operands, after=9)
    link = split.PcieLink()
    scene.tlps(split.pcie_tlps("fetch_add", 0x1000, 8, link), host=0, after=5)
    scene.tlps(split.pcie_tlps("write", 0x2000, 8, link), host=0, after=5)
    scene.cqe(4, after=9)
    scene.tlps(split.pcie_tlps("write", 0xC000, 64, link), host=0)
    diagram = diagram_of(scene)
    inside = [{row.source, row.target} for row in diagram.rows if row.level == "tlp"]
    assert [actor.lines[0] for actor in diagram.actors] == ["host0", "host0/1", "host0/1", "host0"]
    assert inside == [{2, 3}, {2, 3}, {0, 1}, {0, 1}]


# --- SVG ---


@pytest.mark.parametrize("name", SCENES)
def test_svg_is_well_formed_and_says_the_same(name: str, diagram_of: DiagramOf) -> None:
    diagram = diagram_of(SCENES[name]())
    drawn = svg.render(diagram)
    root = ElementTree.parse(io.BytesIO(drawn.encode())).getroot()
    shown = [element.text for element in root.iter(f"{SVG}text")]
    for row in diagram.rows:
        assert row.label in shown
        assert not row.detail or row.detail in shown
    assert [line for actor in diagram.actors for line in actor.lines if line not in shown] == []
    assert root.find(f"{SVG}title") is not None
    assert "prefers-color-scheme:dark" in drawn
    assert "href" not in drawn  # nothing from elsewhere
    assert svg.render(diagram_of(SCENES[name]())) == drawn


def test_what_is_drawn_in_svg_lies_inside_of_it(diagram_of: DiagramOf) -> None:
    for scene in SCENES.values():
        root = ElementTree.fromstring(svg.render(diagram_of(scene())))
        width, height = int(root.get("width", 0)), int(root.get("height", 0))
        for line in root.iter(f"{SVG}line"):
            assert min(float(line.get("x1", -1)), float(line.get("x2", -1))) >= 0
            assert max(float(line.get("x1", 0)), float(line.get("x2", 0))) <= width
            assert max(float(line.get("y1", 0)), float(line.get("y2", 0))) <= height
        for element in root.iter(f"{SVG}text"):
            half = len(element.text or "") * 3.3
            if element.get("text-anchor") == "middle":
                assert float(element.get("x", -1)) - half >= 0
                assert float(element.get("x", 0)) + half <= width


def test_names_from_a_file_break_neither_the_terminal_nor_xml(diagram_of: DiagramOf) -> None:
    scene = Scene()
    scene.wqe(scenes.SEND, 8, port="<b>\x1b[2J&\x00/1")
    diagram = diagram_of(scene)
    assert "\x1b" not in text.render(diagram)
    root = ElementTree.fromstring(svg.render(diagram))
    assert any("<b>?[2J&?" in (element.text or "") for element in root.iter(f"{SVG}text"))
