# SPDX-License-Identifier: BSD-3-Clause
"""pcapng files: of our writer and of others are read; damage is reported."""

from __future__ import annotations

import io
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

import nupa
from nupa.packet.pcapng.blocks import BLOCK_BYTES_MAX, INTERFACES_MAX
from nupa.packet.pcapng.reader import (
    Batch,
    Interface,
    Option,
    OtherBlock,
    Packet,
    PcapngError,
    Reader,
    Section,
    Statistics,
    Writer,
)


def block(order: str, kind: int, body: bytes, total: int | None = None) -> bytes:
    """Returns a block as the draft has it, written independently of the writer."""
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", 12 + len(body) if total is None else total)
    return struct.pack(order + "I", kind) + size + body + size


def options(order: str, *pairs: tuple[int, bytes]) -> bytes:
    parts = (
        struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)
        for code, value in pairs
    )
    return b"".join(parts) + bytes(4)


def section(order: str = "<", version: tuple[int, int] = (1, 0)) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, *version, -1))


def interface(order: str = "<", snaplen: int = 0, *pairs: tuple[int, bytes]) -> bytes:
    return block(order, 1, struct.pack(order + "HHI", 158, 0, snaplen) + options(order, *pairs))


def enhanced(
    order: str, ticks: int, data: bytes, *pairs: tuple[int, bytes], number: int = 0
) -> bytes:
    head = struct.pack(
        order + "5I", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data) + 7
    )
    tail = options(order, *pairs) if pairs else b""
    return block(order, 6, head + data + bytes(-len(data) % 4) + tail)


def read(data: bytes) -> list[Packet]:
    return list(Reader(io.BytesIO(data)))


packets = st.builds(
    dict,
    ts_ns=st.integers(0, 2**64 - 1),
    data=st.binary(max_size=100),
    flags=st.integers(0, 2**32 - 1),
    packet_id=st.integers(0, 2**64 - 1),
    drops=st.integers(0, 2**64 - 1),
    comment=st.text(st.characters(codec="utf-8"), max_size=20),
    options=st.lists(
        st.builds(Option, st.sampled_from([7, 2988, 2989, 40000]), st.binary(max_size=9)),
        max_size=3,
    ),
)


@given(rows=st.lists(packets, max_size=30), sizes=st.lists(st.integers(0, 150), max_size=30))
def test_what_is_written_is_read(rows: list[dict[str, object]], sizes: list[int]) -> None:
    file = io.BytesIO()
    with Writer(file, hardware="h", system="s", comment="c") as writer:
        for name in ("a/1", "b/1"):
            writer.add_interface(name, 158, description="d", speed_bps=10**9, capture_filter="x")
        for i, row in enumerate(rows):
            size = len(row["data"])  # type: ignore[arg-type]
            original = size + sizes[i] if i < len(sizes) else None
            writer.write(i % 2, original_bytes=original, **row)  # type: ignore[arg-type]
        writer.statistics(1, 99, 7, 3, start_ns=1 << 40, end_ns=(1 << 40) + 5, comment="end")
    file.seek(0)
    reader = Reader(file)
    found = list(reader)
    assert [i.name for i in reader.interfaces] == ["a/1", "b/1"]
    assert len(found) == len(rows)
    for i, (packet, row) in enumerate(zip(found, rows, strict=True)):
        assert packet.interface.number == i % 2
        size = len(row["data"])  # type: ignore[arg-type]
        assert packet.original_bytes == size + (sizes[i] if i < len(sizes) else 0)
        for name in ("ts_ns", "data", "flags", "packet_id", "drops"):
            assert getattr(packet, name) == row[name], name
        assert packet.direction == row["flags"] & 3  # type: ignore[operator]
        assert packet.comments == [row["comment"]][: bool(row["comment"])]
        others = [o for o in packet.options if o.code not in (1, 2, 4, 5)]
        assert others == row["options"]
    stats = reader.statistics[1]
    assert (stats.ts_ns, stats.received, stats.dropped) == (99, 7, 3)
    assert dict(stats.options)[2] == struct.pack("<II", 1 << 8, 0)
    assert reader.section is not None
    application = f"nupa {nupa.__version__}".encode()
    assert dict(reader.section.options) == {1: b"c", 2: b"h", 3: b"s", 4: application}


def test_packets_are_cut_to_the_interfaces_snap_length() -> None:
    file = io.BytesIO()
    writer = Writer(file)
    writer.write(writer.add_interface("a", 1, snaplen=5), 0, b"0123456789")
    [packet] = read(file.getvalue())
    assert (packet.data, packet.original_bytes, packet.interface.snaplen) == (b"01234", 10, 5)


@pytest.mark.parametrize("order", "<>")
@given(
    ticks=st.integers(0, 2**50),
    code=st.one_of(st.none(), st.integers(0, 27), st.integers(0x80, 0xBF)),
    offset_s=st.one_of(st.none(), st.integers(0, 10**9)),
)
@example(ticks=2**50, code=27, offset_s=None)
@example(ticks=2**50, code=0x80 | 63, offset_s=5)
def test_times_of_any_resolution_and_endianness_are_nanoseconds(
    order: str, ticks: int, code: int | None, offset_s: int | None
) -> None:
    pairs = [(9, bytes((code,)))] if code is not None else []
    if offset_s is not None:
        pairs.append((14, struct.pack(order + "q", offset_s)))
    resolution = 6 if code is None else code
    if resolution & 0x80:
        ns = ticks * 10**9 // 2 ** (resolution & 0x7F)
    else:
        ns = ticks * 10**9 // 10**resolution
    ns += (offset_s or 0) * 10**9
    file = section(order) + interface(order, 0, *pairs) + enhanced(order, ticks, b"x")
    if ns >= 2**64:
        with pytest.raises(PcapngError, match="after 2554"):
            read(file)
        return
    [packet] = read(file)
    assert packet.ts_ns == ns
    assert (packet.data, packet.original_bytes) == (b"x", 8)


@pytest.mark.parametrize("order", "<>")
def test_every_kind_of_block_is_read(order: str) -> None:
    def pack(fmt: str, *values: int) -> bytes:
        return struct.pack(order + fmt, *values)

    file = (
        section(order)
        + interface(order, 3, (2, b"eth0"), (9, b"\x09"))
        + interface(order, 0, (2, b"eth1"), (9, b"\x09"))
        + enhanced(order, 5, b"abc", (2, pack("I", 2)), (1, b"hello"), number=1)
        + block(order, 3, pack("I", 7) + b"simple!"[:3])
        + block(
            order,
            2,
            pack("HHIIII", 1, 9, 0, 6, 2, 2) + b"ob\0\0" + options(order, (2, pack("I", 1))),
        )
        + block(order, 4, b"names")
        + block(order, 5, pack("III", 1, 0, 77) + options(order, (4, pack("Q", 3))))
        + section("<" if order == ">" else ">")
    )
    found = list(Reader(io.BytesIO(file)).blocks())
    kinds = [type(x) for x in found]
    assert kinds == [Section, Interface, Interface, Batch, OtherBlock, Statistics, Section]
    batch = found[3]
    assert isinstance(batch, Batch)
    a, b, c = batch
    assert (a.ts_ns, a.data, a.interface.name, a.direction, a.comments) == (
        5,
        b"abc",
        "eth1",
        2,
        ["hello"],
    )
    assert (b.ts_ns, b.data, b.original_bytes, b.interface.name) == (0, b"sim", 7, "eth0")
    assert (c.ts_ns, c.data, c.flags, c.interface.name) == (6, b"ob", 1, "eth1")
    assert found[4] == OtherBlock(4, b"names\0\0\0")
    assert isinstance(found[5], Statistics)
    assert (found[5].ts_ns, found[5].received, found[5].dropped) == (77, 3, None)
    assert [x.big_endian for x in found if isinstance(x, Section)] == [order == ">", order == "<"]


def test_interfaces_are_counted_anew_in_each_section() -> None:
    one = section() + interface("<", 0, (2, b"one")) + enhanced("<", 1, b"1")
    two = section(">") + interface(">", 0, (2, b"two")) + enhanced(">", 2, b"2")
    assert [(p.data, p.interface.name, p.ts_ns) for p in read(one + two)] == [
        (b"1", "one", 1000),
        (b"2", "two", 2000),
    ]


def with_a_packet(*pairs: tuple[int, bytes]) -> bytes:
    return section() + interface() + enhanced("<", 1, b"data", *pairs)


GOOD = with_a_packet()
EPB = len(section() + interface())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are not a block"),
        (b"\xd4\xc3\xb2\xa1" + bytes(20), "pcap file has version 0.0"),
        (b"#!/bin/sh\necho hello", "not a pcapng or pcap file: it begins with 23212f62"),
        (GOOD[:10], "10 bytes are not a block"),
        (section()[:20], "the section header is incomplete"),
        (section()[:8] + b"what" + section()[12:], "byte order magic is 77686174"),
        (section(version=(2, 0)), "version 2.0; 1.x"),
        (GOOD[:-1], f"at byte {EPB}: a block of type 0x6 has 36 bytes, of which 35 are there"),
        (GOOD[:-4] + b"\x28\0\0\0", f"at byte {EPB}: .*lengths at its two ends differ"),
        (GOOD + b"\6\0\0\0\x0e\0\0\0" + bytes(8), "length is invalid for a block"),
        (GOOD + b"\6\0\0\0\x08\0\0\0" + bytes(8), "length is invalid for a block"),
        (GOOD + b"\7\0\0\0\x0e\0\0\0" + bytes(8), "has 14 bytes; blocks have 12 or more"),
        (GOOD + block("<", 7, b"", total=BLOCK_BYTES_MAX + 4), "the limit is 16 MiB"),
        (GOOD + block("<", 6, b"", total=BLOCK_BYTES_MAX + 4), "longer than 16 MiB"),
        (section() + enhanced("<", 0, b""), "its interface was not described"),
        (GOOD + enhanced("<", 0, b"", number=1), "its interface was not described"),
        (GOOD + block("<", 6, bytes(16)), "too short for its type"),
        (GOOD + block("<", 3, b""), "too short for its type"),
        (GOOD + block("<", 3, struct.pack("<I", 5) + b"abcd"), "longer than the block"),
        (GOOD + block("<", 6, bytes(12) + b"\5\0\0\0" + bytes(8)), "longer than the block"),
        (GOOD + block("<", 6, bytes(12) + b"\xff" * 4 + bytes(8)), "longer than the block"),
        (GOOD + block("<", 6, bytes(20) + b"\1\0\5\0abcd"), "longer than the room for options"),
        (with_a_packet((2, b"12")), "the length of an option is wrong for its code"),
        (with_a_packet((5, b"1234")), "the length of an option is wrong for its code"),
        (section() + interface("<", 0, (9, b"\x1c")), "10.-28 s"),
        (section() + interface("<", 0, (9, b"\xc0")), "2.-64 s"),
        (section() + interface("<", 0, (9, b"\x06\x06")), "option 9 has 2 bytes"),
        (section() + interface("<", 0, (14, b"1")), "option 14 has 1 bytes"),
        (section() + block("<", 1, b"1234"), "is damaged"),
        (section() + block("<", 1, bytes(8) + b"\2\0\x09\0abcd"), "option 2 has 9 bytes, 4 are"),
        (section() + block("<", 5, bytes(12)), "no interface 0"),
        (GOOD + block("<", 5, bytes(12) + options("<", (4, b"1"))), "option 4 has 1 bytes"),
        (GOOD + b"abc", "3 bytes are not a block"),
    ],
)
def test_damage_is_named_with_its_place(data: bytes, message: str) -> None:
    with pytest.raises(PcapngError, match=message):
        read(data)


def test_what_comes_before_the_damage_is_read() -> None:
    reader = Reader(io.BytesIO(GOOD + GOOD[EPB:] + b"junk"))
    packets = iter(reader)
    assert [next(packets).data for _ in range(2)] == [b"data", b"data"]
    with pytest.raises(PcapngError, match="at byte"):
        next(packets)


def test_one_interface_more_than_possible_is_refused() -> None:
    file = io.BytesIO()
    writer = Writer(file)
    for _ in range(INTERFACES_MAX):
        writer.add_interface("", 1)
    with pytest.raises(PcapngError, match="has 65536, which is the limit"):
        writer.add_interface("", 1)
    with pytest.raises(PcapngError, match="interface 65536; at most 65536"):
        read(file.getvalue() + interface())
    assert read(file.getvalue()) == []


def test_a_packet_of_the_greatest_length_is_written_and_read_and_none_longer() -> None:
    file = io.BytesIO()
    writer = Writer(file)
    number = writer.add_interface("a", 1)
    most = BLOCK_BYTES_MAX - 32
    writer.write(number, 0, bytes(most))
    writer.write(number, 1, b"after")
    with pytest.raises(PcapngError, match="blocks have 16777216"):
        writer.write(number, 0, bytes(most + 1))
    first, second = read(file.getvalue())
    assert (len(first.data), second.data) == (most, b"after")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: w.write(1, 0, b""), "no interface 1"),
        (lambda w: w.write(-1, 0, b""), "no interface -1"),
        (lambda w: w.statistics(1, 0, 0, 0), "no interface 1"),
        (lambda w: w.write(0, 1 << 64, b""), "times have 64 bits"),
        (lambda w: w.write(0, -1, b""), "times have 64 bits"),
        (lambda w: w.write(0, 0, b"", 1 << 32), "sizes 32"),
        (lambda w: w.write(0, 0, b"", comment="x" * 65536), "65535 bytes"),
        (lambda w: w.write(0, 0, b"", options=[Option(0, b"")]), "codes are 1 to 65535"),
        (lambda w: w.add_interface("x", 65536), "16 bits"),
    ],
)
def test_what_the_format_has_no_room_for_is_refused(call: object, message: str) -> None:
    file = io.BytesIO()
    writer = Writer(file)
    writer.add_interface("a", 1)
    before = file.getvalue()
    with pytest.raises(PcapngError, match=message):
        call(writer)  # type: ignore[operator]
    assert file.getvalue() == before


@given(
    cuts=st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=4)), max_size=6),
    end=st.integers(0, 400),
)
def test_damaged_files_give_packets_or_an_error_and_nothing_else(
    cuts: Sequence[tuple[int, bytes]], end: int
) -> None:
    data = bytearray(
        with_a_packet((1, b"comment"), (2, b"1234"), (5, b"12345678"))
        + block("<", 5, bytes(12) + options("<", (4, bytes(8))))
        + section(">")
        + interface(">", 10, (9, b"\x89"), (14, bytes(8)))
        + enhanced(">", 9, b"again", (2988, b"custom"))
    )
    for at, noise in cuts:
        data[at : at + len(noise)] = noise
    try:
        found = read(bytes(data[: len(data) - end % len(data)]))
    except PcapngError:
        return
    assert all(isinstance(packet.data, bytes) and packet.comments is not None for packet in found)


@given(noise=st.binary(max_size=200))
def test_noise_behind_a_header_gives_an_error_and_nothing_else(noise: bytes) -> None:
    try:
        read(section() + interface() + noise)
    except PcapngError:
        return


def test_a_pipe_is_read_as_it_is_written() -> None:
    inside, outside = os.pipe()
    seen = threading.Semaphore(0)
    done: list[bytes] = []

    def follow() -> None:
        with open(inside, "rb") as file:  # noqa: PTH123
            for packet in Reader(file):
                done.append(packet.data)
                seen.release()

    thread = threading.Thread(target=follow)
    thread.start()
    with open(outside, "wb") as file:  # noqa: PTH123
        writer = Writer(file)
        number = writer.add_interface("a", 1)
        for i in range(3):
            writer.write(number, i, bytes((i,)))
            writer.flush()
            assert seen.acquire(timeout=20), "the reader waits for more than a whole packet"
    thread.join(20)
    assert done == [b"\0", b"\1", b"\2"]


def test_a_file_longer_than_a_piece_is_read_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.pcapng"
    with Writer(path) as writer:
        number = writer.add_interface("a", 1)
        for i in range(40_000):
            writer.write(number, i, i.to_bytes(4, "big") + bytes(i % 90), packet_id=i)
    with Reader(path) as reader:
        batches = 0
        at = 0
        for batch in reader.batches():
            batches += 1
            assert len(batch.data) < 1 << 22
            for ts_ns, packet_id, _, offset, size, *_ in batch.rows():
                assert ts_ns == packet_id == at
                assert int.from_bytes(batch.data[offset : offset + 4], "big") == at
                assert size == 4 + at % 90
                at += 1
        assert (at, batches > 4) == (40_000, True)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read1(self, _size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(PcapngError, match="Input/output error"):
        list(Reader(Broken()))
    with pytest.raises(PcapngError, match="none: cannot be opened: No such file"):
        Reader(tmp_path / "none")
    with pytest.raises(PcapngError, match="cannot be opened: Is a directory"):
        Writer(tmp_path)
