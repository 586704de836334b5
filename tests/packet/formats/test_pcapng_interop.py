# SPDX-License-Identifier: BSD-3-Clause
"""Our pcapng files in scapy, tshark and capinfos, and theirs in our reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import PcapNgReader, rdpcap, wrpcapng

from nupa.packet.pcapng.blocks import INBOUND, OUTBOUND
from nupa.packet.pcapng.reader import Option, Reader, Writer
from nupa.packet.scapy import cxl_mem, queue, tlp
from nupa.packet.scapy.link import Nupa
from nupa.packet.tables.record import LINKTYPE_ETHERNET, LINKTYPE_NUPA, Level
from tests.packet.shark import run

TIME_NS = 1_700_000_000_123_456_789


def records() -> list[Packet]:
    return [
        Nupa(transfer=5, sequence=1) / tlp.TLP(td=1) / tlp.MemWrite64(address=1 << 40) / b"abcd",
        Nupa(transfer=5) / cxl_mem.CxlMem() / cxl_mem.M2SReq(opcode="MemRd", tag=9),
        Nupa(transfer=5) / queue.WQE(segments=[queue.DataSegment(length=8)]),
    ]


def frame() -> Packet:
    ether = Ether(src="02:00:0a:00:00:01", dst="02:00:0a:00:00:02")
    return ether / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=49152, dport=7) / b"hello"


def write_ours(file: Path) -> list[Packet]:
    """Writes records of both link types in turn; returns what scapy must read."""
    packets: list[Packet] = []
    with Writer(file, system="test") as writer:
        numbers = [
            writer.add_interface("h0/1", LINKTYPE_NUPA, description="records"),
            writer.add_interface("h0/1", LINKTYPE_ETHERNET, snaplen=1000),
        ]
        for i, packet in enumerate([*records(), frame()]):
            packets.append(packet)
            writer.write(
                numbers[packet.name == "Ethernet"],
                TIME_NS + i,
                bytes(packet),
                flags=OUTBOUND if i % 2 else INBOUND,
                packet_id=5,
                comment=f"number {i}",
            )
        writer.statistics(0, TIME_NS + 9, received=10, dropped=7)
        writer.statistics(1, TIME_NS + 9, received=1, dropped=0)
    return packets


def test_scapy_reads_what_we_write(tmp_path: Path) -> None:
    written = write_ours(tmp_path / "x.pcapng")
    with PcapNgReader(str(tmp_path / "x.pcapng")) as reader:
        found = list(reader)
    assert [bytes(packet) for packet in found] == [bytes(packet) for packet in written]
    assert [type(packet) for packet in found] == [Nupa, Nupa, Nupa, Ether]
    assert [packet.lastlayer().name for packet in found[:2]] == ["Raw", "M2S Req"]
    assert found[0][tlp.MemWrite64].address == 1 << 40
    assert found[2].segments[0].length == 8
    assert [int(packet.time * 10**9) for packet in found] == [TIME_NS + i for i in range(4)]
    assert found[0].comments == [b"number 0"]


def test_we_read_what_scapy_writes(tmp_path: Path) -> None:
    file = str(tmp_path / "x.pcapng")
    packets = records()
    for i, packet in enumerate(packets):
        packet.time = 1000 + i
    wrpcapng(file, packets)
    with Reader(file) as reader:
        found = list(reader)
        assert {i.linktype for i in reader.interfaces} == {LINKTYPE_NUPA}
    assert [packet.data for packet in found] == [bytes(packet) for packet in packets]
    assert [packet.ts_ns // 10**9 for packet in found] == [1000, 1001, 1002]
    again = rdpcap(file)
    assert [bytes(packet) for packet in again] == [bytes(packet) for packet in packets]
    assert [type(packet) for packet in again] == [Nupa] * 3


def test_a_capture_read_by_scapy_and_written_by_it_is_the_same_to_us(tmp_path: Path) -> None:
    first, second = tmp_path / "1.pcapng", tmp_path / "2.pcapng"
    written = write_ours(first)[:3]
    wrpcapng(str(second), rdpcap(str(first))[:3])
    with Reader(second) as reader:
        assert [packet.data for packet in reader] == [bytes(packet) for packet in written]


def test_tshark_shows_times_interfaces_directions_transfers_and_comments(tmp_path: Path) -> None:
    write_ours(tmp_path / "x.pcapng")
    fields = "frame.time_epoch frame.interface_name frame.packet_flags_direction frame.packet_id"
    shown = run(
        tmp_path,
        *("tshark", "-n", "-r", tmp_path / "x.pcapng", "-T", "fields"),
        *(part for field in (*fields.split(), "frame.comment") for part in ("-e", field)),
    )
    rows = [line.split("\t") for line in shown.splitlines()]
    for i, (time, name, direction, packet_id, comment) in enumerate(rows):
        assert time == f"{TIME_NS // 10**9}.{TIME_NS % 10**9 + i}"
        assert (name, comment) == ("h0/1", f"number {i}")
        assert int(direction, 0) == (OUTBOUND if i % 2 else INBOUND)
        assert int(packet_id, 0) == 5
    assert len(rows) == 4


def test_capinfos_finds_nothing_wrong(tmp_path: Path) -> None:
    write_ours(tmp_path / "x.pcapng")
    shown = run(tmp_path, "capinfos", tmp_path / "x.pcapng")
    assert "cut short" not in shown
    for expected in (
        "File timestamp precision:  nanoseconds (9)",
        "Number of packets:   4",
        "Capture oper-sys:    test",
        "Number of interfaces in file: 2",
        "Encapsulation = USER 11",
        "Encapsulation = Ethernet",
        "Capture length = 1000",
        "Number of stat entries = 1",
    ):
        assert expected in shown


def test_tshark_counts_what_the_capture_lost(tmp_path: Path) -> None:
    write_ours(tmp_path / "x.pcapng")
    # Read as a file of blocks: what the statistics blocks themselves say.
    shown = run(
        tmp_path,
        *("tshark", "-n", "-r", tmp_path / "x.pcapng", "-X", "read_format:MIME Files Format"),
        *("-T", "fields", "-e", "pcapng.options.option.data.interface.received"),
        *("-e", "pcapng.options.option.data.interface.dropped"),
    )
    assert shown.split() == ["10,1", "7,0"]


@pytest.mark.parametrize("kind", ["pcapng", "nsecpcap"])
def test_what_editcap_makes_of_ours_is_read(kind: str, tmp_path: Path) -> None:
    with Writer(tmp_path / "in.pcapng") as writer:
        number = writer.add_interface("h0/1", LINKTYPE_NUPA)
        for packet in records():
            writer.write(number, TIME_NS, bytes(packet), packet_id=3, comment="kept")
    run(tmp_path, "editcap", "-F", kind, tmp_path / "in.pcapng", tmp_path / "out")
    with Reader(tmp_path / "out") as reader:
        found = list(reader)
    assert [packet.data for packet in found] == [bytes(packet) for packet in records()]
    assert {packet.ts_ns for packet in found} == {TIME_NS}


def test_options_unknown_to_wireshark_do_no_harm(tmp_path: Path) -> None:
    with Writer(tmp_path / "x.pcapng") as writer:
        number = writer.add_interface("h0/1", LINKTYPE_NUPA, options=[Option(40000, b"mine")])
        writer.write(number, 0, bytes(records()[0]), options=[Option(40001, b"odd")])
    assert "packets:   1" in run(tmp_path, "capinfos", tmp_path / "x.pcapng")
    with Reader(tmp_path / "x.pcapng") as reader:
        [packet] = reader
    assert packet.options == (Option(40001, b"odd"),)
    assert Level(Nupa(packet.data).level) == Level.TLP
