# SPDX-License-Identifier: BSD-3-Clause
"""Packets of one pcapng file copied to another, a batch at once, without loss."""

from __future__ import annotations

import io
import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.packet.pcapng.blocks import BLOCK_BYTES_MAX
from nupa.packet.pcapng.reader import Batch, Option, Packet, PcapngError, Reader, Writer

packets = st.builds(
    dict,
    ts_ns=st.integers(0, 2**64 - 1),
    data=st.binary(max_size=60),
    original_bytes=st.integers(0, 2**32 - 1),
    flags=st.integers(0, 2**32 - 1),
    packet_id=st.integers(0, 2**64 - 1),
    drops=st.integers(0, 2**64 - 1),
    comment=st.text(st.characters(codec="utf-8"), max_size=9),
    options=st.lists(
        st.builds(Option, st.sampled_from([7, 2989, 40000]), st.binary(max_size=9)), max_size=2
    ),
)


def batch_of(file: io.BytesIO) -> Batch:
    file.seek(0)
    [batch] = Reader(file).batches()
    return batch


def source(*rows: dict[str, object]) -> Batch:
    file = io.BytesIO()
    writer = Writer(file)
    for name in ("a", "b"):
        writer.add_interface(name, 158)
    for i, row in enumerate(rows):
        writer.write(i % 2, **row)  # type: ignore[arg-type]
    return batch_of(file)


def target(*snaplens: int) -> tuple[io.BytesIO, Writer]:
    file = io.BytesIO()
    writer = Writer(file)
    for number, snaplen in enumerate(snaplens):
        writer.add_interface(f"new{number}", 158, snaplen=snaplen)
    return file, writer


def without_interface(packet: Packet) -> tuple[object, ...]:
    others = tuple(o for o in packet.options if o.code not in (2, 4, 5))
    return packet._replace(interface=None, options=others)  # type: ignore[arg-type]


@given(rows=st.lists(packets, min_size=1, max_size=20), data=st.data())
def test_chosen_packets_are_copied_with_all_that_they_have(
    rows: list[dict[str, object]], data: st.DataObject
) -> None:
    batch = source(*rows)
    which = data.draw(st.none() | st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=30))
    file, writer = target(0, 0, 0)
    places = list(range(len(rows))) if which is None else which
    assert writer.copy(batch, [2, 1], which) == len(places)
    before, after = list(batch), list(batch_of(file))
    assert [without_interface(packet) for packet in after] == [
        without_interface(before[place]) for place in places
    ]
    assert [packet.interface.number for packet in after] == [2 - place % 2 for place in places]


def test_nothing_chosen_is_nothing_written() -> None:
    file, writer = target(0)
    before = file.getvalue()
    assert writer.copy(source({"ts_ns": 0, "data": b"x"}), [0, 0], []) == 0
    assert file.getvalue() == before


def test_packets_are_cut_to_the_new_interfaces_snap_length() -> None:
    file, writer = target(4, 0)
    writer.copy(source({"ts_ns": 1, "data": b"abcdefg"}, {"ts_ns": 2, "data": b"hijklmn"}), [0, 1])
    first, second = batch_of(file)
    assert (first.data, first.original_bytes) == (b"abcd", 7)
    assert (second.data, second.original_bytes) == (b"hijklmn", 7)


def test_options_of_a_file_of_the_other_endianness_are_turned() -> None:
    def block(kind: int, body: bytes) -> bytes:
        size = struct.pack(">I", 12 + len(body))
        return struct.pack(">I", kind) + size + body + size

    options = (
        struct.pack(">HHI", 2, 4, 0x01020304)
        + struct.pack(">HHI", 6, 4, 0x0A0B0C0D)
        + struct.pack(">HH", 1, 5)
        + b"hello\0\0\0"
        + struct.pack(">HHQ", 5, 8, 77)
        + bytes(4)
    )
    packet = struct.pack(">5I", 0, 0, 5, 2, 2) + b"xy\0\0" + options
    file = block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1))
    file += block(1, struct.pack(">HHI", 158, 0, 0)) + block(6, packet)
    out, writer = target(0)
    writer.copy(batch_of(io.BytesIO(file)), [0])
    [found] = batch_of(out)
    assert (found.data, found.ts_ns, found.flags, found.packet_id) == (b"xy", 5000, 0x01020304, 77)
    assert dict(found.options)[6] == struct.pack("<I", 0x0A0B0C0D)
    assert found.comments == ["hello"]


def test_a_long_packet_is_copied_and_so_is_what_stands_around_it() -> None:
    rows = [
        {"ts_ns": i, "data": bytes(size)} for i, size in enumerate([5, BLOCK_BYTES_MAX - 32, 7])
    ]
    file = io.BytesIO()
    writer = Writer(file)
    number = writer.add_interface("a", 1)
    for row in rows:
        writer.write(number, **row)  # type: ignore[arg-type]
    file.seek(0)
    out, writer = target(0)
    for batch in Reader(file).batches():
        writer.copy(batch, [0])
    out.seek(0)
    assert [len(packet.data) for packet in Reader(out)] == [5, BLOCK_BYTES_MAX - 32, 7]


@pytest.mark.parametrize(
    ("interfaces", "which", "message"),
    [
        ([0, 1], None, "no interface 1"),
        ([-1, 0], None, "no interface -1"),
        ([0], None, "packet 1 of the batch: its interface is not among"),
        ([0, 0], [0, 2], "packet 2 of the batch: there is no such record"),
    ],
)
def test_what_is_not_there_is_not_copied(
    interfaces: list[int], which: list[int] | None, message: str
) -> None:
    batch = source({"ts_ns": 0, "data": b"x"}, {"ts_ns": 0, "data": b"y"})
    _, writer = target(0)
    with pytest.raises(PcapngError, match=message):
        writer.copy(batch, interfaces, which)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("offset", 1 << 20, "outside the data"),
        ("captured_bytes", 0xFFFFFFFF, "outside the data"),
        ("options_offset", 1 << 20, "outside the data"),
        ("options_bytes", 0xFFFFFFFF, "outside the data"),
    ],
)
def test_records_that_point_elsewhere_are_refused(name: str, value: int, message: str) -> None:
    batch = source({"ts_ns": 0, "data": b"x"})
    setattr(batch.records[0], name, value)
    _, writer = target(0)
    with pytest.raises(PcapngError, match=message):
        writer.copy(batch, [0, 0])
