# SPDX-License-Identifier: BSD-3-Clause
"""Captures of a fabric in this process: files, lines, objects, ends, statistics."""

from __future__ import annotations

import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nupa._engine import ffi, lib
from nupa.capture.filter import Filter
from nupa.capture.lines import lines, objects
from nupa.capture.live import Live
from nupa.capture.loop import Capture
from nupa.capture.sinks import FileSink, LineSink
from nupa.capture.view import View
from nupa.fabric import Fabric
from nupa.packet.pcapng.reader import Packet, PcapngError, Reader, Writer
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables.record import LINKTYPE_ETHERNET, LINKTYPE_NUPA, Flag, Kind, Level, pack
from tests.unit.conftest import Pair
from tests.unit.core.test_watch import send
from tests.unit.packet.encode import cxl_mem_bytes, tlp_bytes
from tests.unit.packet.split import PcieLink, cxl_mem_messages, pcie_tlps


@pytest.fixture
def stop() -> Iterator[tuple[int, int]]:
    """A pipe; a capture polls its first end."""
    read_fd, write_fd = os.pipe()
    yield read_fd, write_fd
    os.close(read_fd)
    os.close(write_fd)


def packets_in(data: bytes) -> list[Packet]:
    return list(Reader(io.BytesIO(data)))


def test_what_was_recorded_before_the_end_is_in_the_file(
    fabric: Fabric, pair: Pair, stop: tuple[int, int]
) -> None:
    file = io.BytesIO()
    with Live(fabric, ["any"], ["transport,net"]) as live:
        capture = Capture(FileSink(file, interfaces=live.interfaces))
        send(pair, count=10)
        os.write(stop[1], b"\0")
        capture.from_fabric(live, stop[0])
        capture.close()
    assert (capture.seen, capture.taken, capture.lost) == (20, 20, 0)
    with Reader(io.BytesIO(file.getvalue())) as reader:
        packets = list(reader)
        statistics = reader.statistics
    assert [packet.interface.name for packet in packets] == ["host0/1", "host1/1"] * 10
    assert {packet.direction for packet in packets} == {2}
    assert len({packet.packet_id for packet in packets}) == 10
    assert [packet.ts_ns for packet in packets] == sorted(packet.ts_ns for packet in packets)
    assert [statistics[i].received for i in (0, 1)] == [10, 10]
    assert [statistics[i].dropped for i in (0, 1)] == [0, 0]


def test_each_port_and_link_type_has_an_interface(fabric: Fabric) -> None:
    with Live(fabric, ["any"], ["queue,transport"], 100) as live:
        found = [(interface.name, interface.linktype) for interface in live.interfaces]
        assert {interface.snaplen for interface in live.interfaces} == {100}
    assert Counter(found) == Counter(
        (host, link)
        for host in ("host0/1", "host1/1")
        for link in (LINKTYPE_ETHERNET, LINKTYPE_NUPA)
    )
    with Live(fabric, ["switch0/2"], ["net"]) as live:
        assert [interface.name for interface in live.interfaces] == ["switch0/2"]


def test_a_capture_ends_by_itself_when_it_has_enough(
    fabric: Fabric, pair: Pair, stop: tuple[int, int]
) -> None:
    file = io.BytesIO()
    with Live(fabric, ["any"], ["transport"]) as live:
        sink = FileSink(file, interfaces=live.interfaces)
        capture = Capture(sink, Filter("opcode == RC_ACKNOWLEDGE"), 3)
        send(pair, count=10)
        capture.from_fabric(live, stop[0])
        capture.close()
    assert capture.taken == len(packets_in(file.getvalue())) == 3
    assert {packet.interface.name for packet in packets_in(file.getvalue())} == {"host1/1"}


def test_a_capture_ends_at_its_deadline(fabric: Fabric, stop: tuple[int, int]) -> None:
    now_s = iter(range(1000))
    with Live(fabric, ["any"], ["transport"]) as live:
        capture = Capture(LineSink(io.StringIO()))
        capture.from_fabric(live, stop[0], deadline=100.0, clock=lambda: float(next(now_s)))
    assert capture.seen == 0
    assert 100 <= next(now_s) < 200


def test_who_reads_along_sees_packets_while_the_capture_goes_on(
    fabric: Fabric, pair: Pair, stop: tuple[int, int]
) -> None:
    """A sink that ends the capture as soon as its reader has a packet."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    seen = bytearray()
    with (
        os.fdopen(write_fd, "wb") as file,
        os.fdopen(read_fd, "rb") as reader,
        Live(fabric, ["any"], ["transport"]) as live,
    ):
        capture = Capture(FileSink(file, interfaces=live.interfaces))
        send(pair)

        def tick() -> None:
            seen.extend(reader.read() or b"")
            if len(seen) > 400:  # more than headers
                os.write(stop[1], b"\0")

        capture.from_fabric(live, stop[0], tick=tick)
    assert len(packets_in(bytes(seen))) == 2


def test_a_file_that_fills_its_disk_is_an_error_that_names_it() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is missing")
    with pytest.raises(PcapngError, match="/dev/full: cannot be written: No space left"):
        FileSink("/dev/full")


def test_packets_of_a_file_go_to_another_with_all_that_is_known_of_them() -> None:
    source, target = io.BytesIO(), io.BytesIO()
    writer = Writer(source)
    first = writer.add_interface("a/1", LINKTYPE_ETHERNET)
    second = writer.add_interface("b/1", LINKTYPE_ETHERNET)
    for i in range(10):
        writer.write((first, second)[i % 2], i, bytes(60), flags=2, packet_id=i, comment=f"c{i}")
    writer.statistics(first, 10, 12, 7)
    capture = Capture(FileSink(target), Filter("host == b"))
    capture.from_file(Reader(io.BytesIO(source.getvalue())))
    capture.close()
    assert (capture.seen, capture.taken, capture.lost) == (10, 5, 7)
    copied = packets_in(target.getvalue())
    assert [packet.packet_id for packet in copied] == [1, 3, 5, 7, 9]
    assert [packet.comments for packet in copied] == [[f"c{i}"] for i in (1, 3, 5, 7, 9)]


def _indexed(packet: dict[str, int], data: bytes, options: bytes = b"") -> list[tuple[int, ...]]:
    """Returns the record that nupa_watch_index makes of one packet on port 1 of two: offset,
    captured bytes, interface, flags, offset and length of the options."""
    head = ffi.new("struct nupa_watch_packet *", {"captured_bytes": len(data), **packet})
    head.original_bytes = len(data)
    body = options + bytes(ffi.buffer(head)) + data + bytes(-len(data) % 8)
    places = [(0, len(options) if options and i else 0) for i in range(256)]
    records = ffi.new("struct nupa_pcapng_record[]", 4)
    place = ffi.new("size_t *", len(options))
    count = lib.nupa_watch_index(
        body,
        len(body),
        ffi.new("uint32_t[]", [0xFFFFFFFF, 0xFFFFFFFF, 0, 1]),
        2,
        ffi.new("struct nupa_watch_options[]", places),
        records,
        4,
        place,
    )
    assert place[0] == len(body)
    found = [records[i] for i in range(count)]
    return [
        (r.offset, r.captured_bytes, r.interface, r.flags, r.options_offset, r.options_bytes)
        for r in found
    ]


def test_flags_become_a_comment_where_the_link_type_has_no_place_for_them() -> None:
    size = ffi.sizeof("struct nupa_watch_packet")
    ethernet = {"port": 1, "level": 3, "direction": 2}
    at = 8 + size
    assert _indexed(ethernet | {"flags": Flag.FIRST}, b"x" * 9, b"options!") == [
        (at, 9, 0, 2, 0, 0)
    ]
    assert _indexed(ethernet | {"flags": Flag.DROPPED}, b"x", b"options!") == [(at, 1, 0, 2, 0, 8)]
    # A wrong CRC has a bit of its own in epb_flags.
    assert _indexed(ethernet | {"flags": Flag.CORRUPT}, b"x") == [(size, 1, 0, 1 << 24 | 2, 0, 0)]
    nupa = {"port": 1, "level": 2, "direction": 1, "flags": Flag.DROPPED}
    assert _indexed(nupa, b"x", b"options!") == [(at, 1, 1, 1, 0, 0)]


@pytest.mark.parametrize("packet", [{"port": 0, "level": 3}, {"port": 2, "level": 3}])
def test_packets_of_ports_that_are_not_watched_are_left_out(packet: dict[str, int]) -> None:
    assert _indexed(packet, b"x") == []


def test_a_packet_that_claims_more_than_there_is_ends_the_buffer() -> None:
    assert _indexed({"port": 1, "level": 3, "captured_bytes": 1 << 30}, b"x") == []
    assert _indexed({"port": 1, "level": 3, "captured_bytes": 0xFFFFFFFF}, b"x") == []


@pytest.fixture
def view() -> View:
    """Records of each kind, of NUPA's link type."""
    file = io.BytesIO()
    writer = Writer(file)
    port = writer.add_interface("host0/1", LINKTYPE_NUPA)
    tlp = next(iter(pcie_tlps("write", 1 << 40, 4, PcieLink())))
    reads = list(pcie_tlps("read", 1 << 40, 4, PcieLink(), 5))
    message, answer = cxl_mem_messages("load", 0x1000, 64)
    bodies = [
        (Level.TLP, Kind.PCIE_TLP, tlp_bytes(tlp, b"data")),
        (Level.TLP, Kind.PCIE_TLP, tlp_bytes(reads[1], b"data")),
        (Level.TLP, Kind.CXL_MEM, cxl_mem_bytes(message)),
        (Level.TLP, Kind.CXL_MEM, cxl_mem_bytes(answer, bytes(64))),
        (Level.QUEUE, Kind.DOORBELL, queue_tables.DOORBELL.encode(number=0x11, index=6)),
        (
            Level.QUEUE,
            Kind.WQE,
            queue_tables.WQE.encode(bytes=40, opcode=2, number=0x11, length=4, wr_id=7),
        ),
        (Level.QUEUE, Kind.CQE, queue_tables.CQE.encode(status=12, qpn=0x11, wr_id=7)),
    ]
    for level, kind, body in bodies:
        flags = Flag.FIRST | Flag.POISON
        data = pack(level, kind, 2, flags, transfer=0x99) + body
        writer.write(port, 1, data, flags=2, packet_id=0x99)
    (batch,) = Reader(io.BytesIO(file.getvalue())).batches()
    return View(batch)


def test_each_kind_of_record_has_a_line(view: View) -> None:
    told = [line.split(" Out ")[1] for line in lines(view)]
    assert {line.rpartition(" [")[2] for line in told} == {"poison] transfer 0x99"}
    assert [line.rpartition(" [")[0] for line in told] == [
        "MWr64 0x10000000000 tag 0x0 4 bytes",
        "CplD tag 0x5 status 0 4 bytes",
        "MemRd 0x1000 tag 0x0",
        "MemData tag 0x0",
        "doorbell SQ 0x11, 6 entries",
        "WQE SQ 0x11 #0 SEND 4 bytes wr_id 0x7",
        "CQE qp 0x11 #0 SEND RETRY_EXC_ERR 0 bytes wr_id 0x7",
    ]


def test_each_kind_of_record_has_an_object(view: View) -> None:
    found = [json.loads(json.dumps(entry)) for entry in objects(view)]
    assert [entry["kind"] for entry in found] == [
        *["pcie_tlp"] * 2,
        *["cxl_mem"] * 2,
        "doorbell",
        "wqe",
        "cqe",
    ]
    assert [entry.get("tlp_type") for entry in found[:2]] == ["MWr64", "CplD"]
    assert [entry.get("cxl_opcode") for entry in found[2:4]] == ["MemRd", "MemData"]
    assert found[5]["wr_opcode"] == "SEND"
    assert found[6]["status"] == "RETRY_EXC_ERR"
    assert all(entry["flags"] == ["first", "poison"] for entry in found)
    assert all("psn" not in entry for entry in found)


def test_a_line_is_one_line_for_any_packet(make_view: Callable[[list[bytes]], View]) -> None:
    data = [bytes([i]) * size for i in range(0, 256, 5) for size in (0, 1, 14, 24, 42, 64, 100)]
    view = make_view(data)
    told = list(lines(view))
    assert len(told) == len(data)
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{9} x/1 -   [^\n]+", line) for line in told)
    assert len(list(objects(view))) == len(data)


@pytest.fixture
def make_view() -> Callable[[list[bytes]], View]:
    def make(data: list[bytes]) -> View:
        file = io.BytesIO()
        writer = Writer(file)
        ports = [writer.add_interface("x/1", link) for link in (LINKTYPE_ETHERNET, LINKTYPE_NUPA)]
        for i, body in enumerate(data):
            writer.write(ports[i % 2], 0, body)
        (batch,) = Reader(io.BytesIO(file.getvalue())).batches()
        return View(batch)

    return make
