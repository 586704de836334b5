# SPDX-License-Identifier: BSD-3-Clause
"""DOE mailboxes and CDAT, read as software reads them, and beside Linux' copy of QEMU's."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function import doe
from nupa.cxl.function.port import upstream_port
from nupa.cxl.media import cdat
from nupa.cxl.media.cdat import Cdat, CdatError, DataType, Dslbis, Dsmas, Sslbis, SslbisEntry
from nupa.cxl.media.performance import (
    MediaSpeed,
    Range,
    bandwidth_mbps,
    device_cdat,
    latency_ps,
    switch_cdat,
)
from nupa.cxl.registers.block import Registers
from nupa.topology.topology import SPEEDS_MTPS, WIDTHS_LANES, LinkConfig

MEMORY_BYTES = 256 << 20
TABLE = device_cdat([Range(0, MEMORY_BYTES)], LinkConfig(8))
PORTS = json.loads((Path(__file__).parents[3] / "data/linux_guest.json").read_text())["before"]
GO, ABORT = 1 << 31, 1
ERROR, READY, BUSY = 1 << 2, 1 << 31, 1


class Software:
    """A driver of the capability (PCIe 6.0 6.30.2)."""

    def __init__(self, table: Cdat = TABLE) -> None:
        self.device = Type3(MEMORY_BYTES)
        doe.attach(self.device.config, {cdat.TABLE_ACCESS: table.answer})

    @property
    def registers(self) -> Registers:
        return self.device.config["doe"]

    def send(self, *dwords: int) -> int:
        """Send an object, and return the status."""
        for dword in dwords:
            self.registers.write(0x10, 4, dword)
        self.registers.write(0x08, 4, GO)
        return self.registers.read(0x0C, 4)

    def receive(self) -> list[int]:
        dwords = []
        while self.registers.read(0x0C, 4) & READY:
            dwords.append(self.registers.read(0x14, 4))
            self.registers.write(0x14, 4, 0)
        return dwords

    def ask(self, vendor: int, kind: int, payload: int) -> list[int]:
        self.send(vendor | kind << 16, 3, payload)
        return self.receive()

    def table(self) -> bytes:
        image, handle = b"", 0
        while handle != cdat.LAST_ENTRY:
            head, length, answer, *entry = self.ask(*cdat.TABLE_ACCESS, handle << 16)
            assert head == 0x1E98 | 2 << 16
            assert length == len(entry) + 3
            image += struct.pack(f"<{len(entry)}I", *entry)
            handle = answer >> 16
        return image


def test_discovery_lists_each_protocol_once() -> None:
    software, found, index = Software(), [], 0
    while True:
        _, _, answer = software.ask(1, 0, index)
        found.append((answer & 0xFFFF, answer >> 16 & 0xFF))
        index = answer >> 24
        if not index:
            break
    assert found == [(1, 0), (0x1E98, 2)]
    assert software.ask(1, 0, 2)[2] == 0x00FFFFFF


def test_the_table_that_is_read_is_the_one_that_was_made() -> None:
    image = Software().table()
    assert image == bytes(TABLE)
    assert sum(image) & 0xFF == 0
    assert cdat.parse(image).structures == TABLE.structures


def test_a_request_of_no_entry_or_protocol_is_dropped_in_silence() -> None:
    software = Software()
    for vendor, kind, payload in ((0x1E98, 3, 0), (7, 0, 0), (0x1E98, 2, 1), (0x1E98, 2, 7 << 16)):
        assert software.ask(vendor, kind, payload) == []
        assert software.registers.read(0x0C, 4) == 0
    assert software.ask(0x1E98, 2, 6 << 16)


def test_a_length_that_is_not_the_objects_is_an_error_until_an_abort() -> None:
    software = Software()
    for dwords in ((), (1,), (1, 4, 0), (1, 2, 0), (1, 0, 0)):
        assert software.send(*dwords) == ERROR
        assert software.send(1, 3, 0) == ERROR
        software.registers.write(0x08, 4, ABORT)
        assert software.registers.read(0x0C, 4) == 0
    assert software.send(1, 3, 0) == READY | BUSY


def test_one_dword_more_than_an_object_may_have_is_an_error() -> None:
    software = Software()
    for i in range(doe.DWORDS_MAX):
        software.registers.write(0x10, 4, doe.DWORDS_MAX if i == 1 else 9)
    assert software.registers.read(0x0C, 4) == 0
    software.registers.write(0x10, 4, 0)
    assert software.registers.read(0x0C, 4) == ERROR


def test_objects_sent_while_an_answer_waits_are_dropped() -> None:
    software = Software()
    software.send(1, 3, 0)
    software.send(1, 3, 1)
    assert software.receive()[2] == 0x0100_0001
    assert software.receive() == []
    software.registers.write(0x14, 4, 0)
    assert software.registers.read(0x0C, 4) == 0


def test_a_reset_forgets_what_was_written_and_what_waits() -> None:
    software = Software()
    software.send(1, 3, 0)
    software.device.reset(hot=True)
    assert software.receive() == []
    software.registers.write(0x10, 4, 1)
    software.device.reset(hot=True)
    assert software.send(1, 3, 0) == READY | BUSY


@given(st.lists(st.tuples(st.sampled_from([0x08, 0x0C, 0x10, 0x14]), st.integers(0, 2**32 - 1))))
def test_an_abort_recovers_the_mailbox_from_any_writes(writes: list[tuple[int, int]]) -> None:
    software = Software()
    for offset, value in writes:
        software.registers.write(offset, 4, value)
    software.registers.write(0x08, 4, ABORT)
    assert software.ask(1, 0, 1)[2] == 0x0002_1E98


def test_a_switch_has_a_doe_mailbox_too() -> None:
    port = upstream_port()
    table = switch_cdat(LinkConfig(16), {0: LinkConfig(8)})
    doe.attach(port.config, {cdat.TABLE_ACCESS: table.answer})
    assert port.config["doe"].read(0, 2) == 0x2E


# The tables


def test_linux_copies_of_qemus_tables_are_understood_to_the_last_byte() -> None:
    for name in ("endpoint3", "port2"):
        image = bytes.fromhex(PORTS[name]["CDAT"])
        assert bytes(cdat.parse(image)) == image


def test_ours_says_the_same_as_qemus_of_the_same_device() -> None:
    theirs = cdat.parse(bytes.fromhex(PORTS["endpoint3"]["CDAT"])).structures
    wires = latency_ps(LinkConfig(16))
    speed = MediaSpeed(150_000 - wires, 250_000 - wires, 16_000, 16_000)
    ours = device_cdat([Range(0, MEMORY_BYTES, speed=speed)], LinkConfig(16)).structures
    assert [value(item) for item in ours] == [value(item) for item in theirs]


def test_ours_has_the_ports_of_qemus_switch() -> None:
    theirs = cdat.parse(bytes.fromhex(PORTS["port2"]["CDAT"])).structures
    ours = switch_cdat(LinkConfig(16), {0: LinkConfig(16), 1: LinkConfig(16)}).structures
    for mine, other in zip(ours, theirs, strict=True):
        assert isinstance(mine, Sslbis)
        assert isinstance(other, Sslbis)
        assert mine.data == other.data
        assert {pair[:2] for pair in mine.pairs} - {(0, 1)} == {pair[:2] for pair in other.pairs}


def value(item: cdat.Structure) -> tuple[object, ...]:
    """Returns its value, in any base unit."""
    if isinstance(item, Dslbis):
        return (*item[:3], *(entry * item.base for entry in item.entries))
    return tuple(item)


def test_a_wider_and_a_faster_link_carry_more_in_less_time() -> None:
    for width in WIDTHS_LANES[:-1]:
        for speed in SPEEDS_MTPS.values():
            assert bandwidth_mbps(LinkConfig(width, speed)) < bandwidth_mbps(
                LinkConfig(2 * width, speed)
            )
            assert latency_ps(LinkConfig(width, speed)) > latency_ps(LinkConfig(2 * width, speed))
    assert bandwidth_mbps(LinkConfig(16, SPEEDS_MTPS["gen6"])) == 120_000
    assert bandwidth_mbps(LinkConfig(16, SPEEDS_MTPS["gen5"])) == 59_308
    assert latency_ps(LinkConfig(16, SPEEDS_MTPS["gen5"])) == 1063


def test_the_slower_link_of_a_path_says_what_it_carries() -> None:
    narrow, wide = LinkConfig(4), LinkConfig(16)
    latency, bandwidth = switch_cdat(wide, {0: wide, 5: narrow}, switch_ps=1000).structures
    assert isinstance(latency, Sslbis)
    assert isinstance(bandwidth, Sslbis)
    assert bandwidth.pairs == (
        SslbisEntry(0x100, 0, bandwidth_mbps(wide)),
        SslbisEntry(0x100, 5, bandwidth_mbps(narrow)),
        SslbisEntry(0, 5, bandwidth_mbps(narrow)),
    )
    assert latency.pairs[1].value == 1000 + latency_ps(wide) + latency_ps(narrow)
    with pytest.raises(ValueError, match="downstream"):
        switch_cdat(wide, {})


def test_memory_is_no_faster_than_its_link() -> None:
    items = device_cdat([Range(0, 1 << 30, cache_bytes=1 << 20)], LinkConfig(1)).structures
    found = {x.data: x.base * x.entries[0] for x in items if isinstance(x, Dslbis)}
    assert found[DataType.READ_BANDWIDTH] == bandwidth_mbps(LinkConfig(1))
    assert [cdat.TYPES[type(item)] for item in items] == [0, 1, 1, 1, 1, 2, 4]


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8), st.booleans())
def test_scaled_values_fit_and_are_off_by_less_than_a_unit(values: list[int], up: bool) -> None:
    base, entries = cdat.scaled(values, up=up)
    assert all(0 < entry <= 0xFFFE for entry in entries)
    if base == 1:
        assert entries == values
    for exact, entry in zip(values, entries, strict=True):
        assert abs(entry * base - exact) < base


@given(st.binary(max_size=120))
def test_bytes_that_are_no_table_are_refused(image: bytes) -> None:
    whole = bytes(TABLE)
    for wrong in (image, whole[:-1], whole + image[:1] + b"\0", whole[:16] + image + whole[16:]):
        try:
            table = cdat.parse(wrong)
        except CdatError:
            continue
        assert cdat.parse(bytes(table)).structures == table.structures


def test_a_structure_of_a_wrong_length_is_refused() -> None:
    for body in (b"\0\0\x03\0", b"\0\0\x08\0" + bytes(4), b"\x07\0\x04\0", b"\0\0\x05\0", b"\0\0"):
        head = struct.pack("<IBB6xI", 16 + len(body), 2, 0, 0)
        head = head[:5] + bytes([-(sum(head) + sum(body)) & 0xFF]) + head[6:]
        with pytest.raises(CdatError, match="structure"):
            cdat.parse(head + body)


def test_the_sequence_is_in_the_header() -> None:
    table = Cdat([Dsmas(0, 0, 0, 64)], sequence=9)
    assert cdat.parse(bytes(table)).sequence == 9
