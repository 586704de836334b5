# SPDX-License-Identifier: BSD-3-Clause
"""Any file becomes lists and diagrams: damaged, arbitrary, large."""

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
from nupa.diagram.draw.diagram import diagram_of, read_diagram
from nupa.diagram.find.index import read_index
from nupa.packet.decode import fast
from nupa.packet.pcapng.reader import PcapngError, Reader, Writer
from nupa.packet.tables import record
from nupa.packet.tables.opcodes import OPCODES
from nupa.packet.tables.record import LINKTYPE_ETHERNET, LINKTYPE_NUPA
from tests.packet.trace import scenes
from tests.packet.trace.scenes import Reading, Scene


def test_a_damaged_file_gives_all_before_the_damage(read: Reading) -> None:
    whole = scenes.write().bytes()
    index = read(whole[: len(whole) * 2 // 3])
    assert index.damage is not None
    assert "ends too early" in str(index.damage)
    [transfer] = index.transfers
    diagram = read_diagram(index, transfer)
    assert sum(row.count for row in diagram.rows) == index.packets > 5


def test_what_is_no_capture_is_refused(read: Reading) -> None:
    with pytest.raises(PcapngError, match="not a pcapng or pcap file"):
        read(b"root:x:0:0:root:/root:/bin/sh\n")


def records() -> st.SearchStrategy[tuple[Any, ...]]:
    """Returns any packets: with real headers, random ones, and none."""
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
    """Makes a frame with a BTH and right lengths."""
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
    now = scenes.START_NS
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
    counted = 0
    for transfer in index.transfers:
        diagram = read_diagram(index, transfer, everything=everything)
        times = [row.time_ns for row in diagram.rows]
        assert times == sorted(times)
        assert all(0 <= place < len(diagram.actors) for row in diagram.rows for place in row.seen)
        owned = index.packets_of(transfer)
        shown = [event.packet for row in diagram.rows for event in row.events]
        assert set(shown) <= set(owned)
        assert sum(transfer.counts) == len(owned) - bool(transfer.acknowledged_by)
        counted += sum(transfer.counts)
        assert max(map(len, text.render(diagram, width=200).splitlines())) <= 200
        svg.render(diagram)
        diagram.to_json()
    assert counted + index.unassigned == len(packets)


# --- limits and cost ---


def test_a_diagram_has_a_limit_and_says_what_it_leaves_out(
    read: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = read(scenes.write())
    monkeypatch.setattr("nupa.diagram.draw.diagram.RECORDS_MAX", 19)
    diagram = read_diagram(index, index.transfers[0])
    assert (diagram.left_out, sum(row.count for row in diagram.rows)) == (1, 19)
    assert "1 record more, not shown" in text.render(diagram)


def calls_of(function: Callable[[], object]) -> int:
    """Counts the Python functions that *function* calls."""
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
    """Repeats the packets of a scene, each time as another transfer."""
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
    scene = scenes.all_levels()
    file.write_bytes(repeated(scene, 200))
    index = read_index(file)
    assert len(index.transfers) == 200
    assert index.packets == 200 * 48
    assert calls_of(lambda: read_index(file)) < index.packets / 2


def test_a_story_of_no_records_is_a_title() -> None:
    from nupa.diagram.find.transfer import Transfer

    diagram = diagram_of("x.pcapng", Transfer(5, 1, 0), [], 0)
    assert text.render(diagram).splitlines()[0] == "transfer 0x5: ?"
    assert svg.render(diagram).startswith("<svg")
