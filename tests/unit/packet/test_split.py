# SPDX-License-Identifier: BSD-3-Clause
"""Splitting against a model of bytes: those that are accessed, and those that may share a TLP."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given
from scapy.packet import Raw

from nupa.packet.scapy import cxl_mem, tlp
from nupa.packet.tables.cxl_mem import MemChannel
from tests.unit.packet.encode import cxl_mem_bytes, tlp_bytes
from tests.unit.packet.split import PcieLink, Tlp, cxl_mem_messages, pcie_tlps

SIZES = [128, 256, 512, 1024, 2048, 4096]
links = st.builds(
    PcieLink,
    mps=st.sampled_from(SIZES),
    mrrs=st.sampled_from(SIZES),
    rcb=st.sampled_from([64, 128]),
    tags=st.sampled_from([32, 256, 768]),
)
# Around page boundaries and 4 GiB, where mistakes are.
addresses = st.one_of(
    st.integers(0, 1 << 16),
    st.integers((1 << 32) - 9000, (1 << 32) + 9000),
    st.integers(0, (1 << 64) - 20000),
)
contents = st.integers(1, 6000).map(lambda n: random.Random(n).randbytes(n))
lengths = st.one_of(st.integers(1, 16), st.integers(1, 12000))


def enabled_bytes(request: Tlp) -> list[int]:
    """Returns the addresses that a request's byte enables name (PCIe 6.0, 2.2.5)."""
    start = request.address - request.address % 4
    found = []
    for word in range(request.dw):
        enables = 0xF
        if word == 0:
            enables = request.first_be
        elif word == request.dw - 1:
            enables = request.last_be
        found += [start + 4 * word + byte for byte in range(4) if enables >> byte & 1]
    return found


def assert_request_is_allowed(request: Tlp, limit: int) -> None:
    start = request.address - request.address % 4
    assert 1 <= request.dw <= 1024
    assert 4 * request.dw <= limit
    assert start // 4096 == (start + 4 * request.dw - 1) // 4096
    if request.dw == 1:
        assert request.last_be == 0
    else:
        assert request.first_be != 0 != request.last_be


@given(address=addresses, length=lengths, link=links)
def test_a_write_touches_each_byte_once(address: int, length: int, link: PcieLink) -> None:
    found = []
    for write in pcie_tlps("write", address, length, link):
        assert (write.kind, write.tag) == ("MWr", 0)
        assert_request_is_allowed(write, link.mps)
        found += enabled_bytes(write)
    assert found == list(range(address, address + length))


@given(address=addresses, length=lengths, link=links, data=st.data())
def test_a_read_asks_for_each_byte_once_and_gets_it_within_the_links_limits(
    address: int, length: int, link: PcieLink, data: st.DataObject
) -> None:
    tag = data.draw(st.integers(0, link.tags - 1))
    last: Tlp | None = None
    asked: list[int] = []
    got: list[int] = []
    wanted: list[int] = []
    for packet in pcie_tlps("read", address, length, link, tag):
        if packet.kind == "MRd":
            assert got == asked
            assert_request_is_allowed(packet, link.mrrs)
            lowest = 256 if link.tags == 768 else 0
            assert packet.tag - lowest == ((last.tag - lowest + 1) % link.tags if last else tag)
            last, wanted = packet, enabled_bytes(packet)
            asked += wanted
            continue
        assert last is not None
        assert (packet.kind, packet.tag) == ("CplD", last.tag)
        # 2.3.1.1: whole DWs, at most MPS of them
        assert 4 * packet.dw <= link.mps
        assert packet.dw == (packet.address % 4 + packet.length + 3) // 4
        # 2.2.9: what is left of this request, and where this begins
        assert packet.byte_count == len(wanted)
        assert packet.address == wanted[0]
        assert packet.lower_address == packet.address % 128
        # only the last one may end elsewhere than at an RCB
        here, wanted = wanted[: packet.length], wanted[packet.length :]
        assert not wanted or (here[-1] + 1) % link.rcb == 0
        got += here
    assert asked == got == list(range(address, address + length))


@given(address=addresses, link=links)
def test_a_request_inside_one_rcb_has_one_completion(address: int, link: PcieLink) -> None:
    room = link.rcb - address % link.rcb
    packets = list(pcie_tlps("read", address, min(room, link.mrrs), link))
    assert [packet.kind for packet in packets] == ["MRd", "CplD"]


@given(address=addresses, link=links)
def test_nothing_is_read_by_a_flush(address: int, link: PcieLink) -> None:
    request, answer = pcie_tlps("read", address, 0, link)
    assert (request.dw, request.first_be, request.last_be) == (1, 0, 0)
    assert (answer.dw, answer.byte_count, answer.length) == (1, 1, 0)
    assert bytes(tlp.TLP(tlp_bytes(answer))[Raw]) == bytes(4)


def test_tags_of_ten_bits_never_have_their_upper_bits_zero() -> None:
    link = PcieLink(mps=128, mrrs=128, tags=768)
    requests = [t for t in pcie_tlps("read", 0, 800 * 128, link) if t.kind == "MRd"]
    assert {t.tag for t in requests} == set(range(256, 1024))
    packet = tlp.TLP(tlp_bytes(requests[-1]))
    assert packet.t9 << 9 | packet.t8 << 8 | packet.payload.tag == requests[-1].tag == 256 + 31


def test_tags_wrap() -> None:
    link = PcieLink(mps=128, mrrs=128, tags=32)
    tags = [t.tag for t in pcie_tlps("read", 0, 34 * 128, link, 30) if t.kind == "MRd"]
    assert tags == [*range(30, 32), *range(32)]


@given(
    kind=st.sampled_from(["fetch_add", "swap", "cas"]),
    size=st.sampled_from([4, 8]),
    slot=st.integers(0, 1000),
    operands=st.binary(min_size=16, max_size=16),
)
def test_an_atomic_is_a_request_with_its_operands_and_the_old_value(
    kind: str, size: int, slot: int, operands: bytes
) -> None:
    request, answer = pcie_tlps(kind, slot * size, size, PcieLink(), 9)  # type: ignore[arg-type]
    count = 2 if kind == "cas" else 1
    assert (request.dw, request.first_be, request.last_be) == (count * size // 4, 0, 0)
    assert (answer.kind, answer.length, answer.byte_count) == ("CplD", size, size)
    assert (answer.lower_address, request.tag, answer.tag) == (0, 9, 9)
    packet = tlp.TLP(tlp_bytes(request, operands[: count * size]))
    names = ("compare", "swap") if kind == "cas" else ("operand",)
    for i, name in enumerate(names):
        part = operands[i * size : (i + 1) * size]
        assert packet.getfieldval(name) == int.from_bytes(part, "little")


@pytest.mark.parametrize(
    ("kind", "address", "length", "link", "tag", "message"),
    [
        ("read", -1, 4, PcieLink(), 0, "lie outside"),
        ("read", (1 << 64) - 4, 8, PcieLink(), 0, "lie outside"),
        ("write", 0, -4, PcieLink(), 0, "lie outside"),
        ("erase", 0, 4, PcieLink(), 0, "none of read, write"),
        ("cas", 4, 8, PcieLink(), 0, "aligned"),
        ("fetch_add", 0, 16, PcieLink(), 0, "operands of"),
        ("read", 0, 4, PcieLink(mps=64), 0, "MPS 64"),
        ("read", 0, 4, PcieLink(mrrs=8192), 0, "MRRS 8192"),
        ("read", 0, 4, PcieLink(rcb=32), 0, "RCB 32"),
        ("read", 0, 4, PcieLink(tags=64), 0, "64 tags"),
        ("read", 0, 4, PcieLink(tags=32), 32, "the link has 32"),
    ],
)
def test_what_pcie_cannot_do_is_refused(
    kind: str, address: int, length: int, link: PcieLink, tag: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        list(pcie_tlps(kind, address, length, link, tag))  # type: ignore[arg-type]


@given(address=addresses, content=contents, link=links)
def test_packets_of_a_write_carry_each_byte_to_its_place(
    address: int, content: bytes, link: PcieLink
) -> None:
    memory: dict[int, int] = {}
    for write in pcie_tlps("write", address, len(content), link):
        at = write.address - address
        packet = tlp.TLP(tlp_bytes(write, content[at : at + write.length], requester=0x100))
        again = tlp.TLP(bytes(packet))
        assert isinstance(again.payload, tlp.MemWrite64 if write.address >> 32 else tlp.MemWrite32)
        data = bytes(again[Raw])
        assert len(data) == 4 * (again.length or 1024)
        memory |= {where: data[where - again.address] for where in enabled_bytes(write)}
    assert bytes(memory[address + i] for i in range(len(content))) == content
    assert len(memory) == len(content)


@given(address=addresses, content=contents, link=links)
def test_packets_of_a_read_are_reassembled_by_lower_address_and_byte_count(
    address: int, content: bytes, link: PcieLink
) -> None:
    got = b""
    for part in pcie_tlps("read", address, len(content), link, link.tags - 1):
        at = part.address - address
        data = content[at : at + part.length] if part.kind == "CplD" else b""
        packet = tlp.TLP(tlp_bytes(part, data, 0x100, 0x200))
        assert packet.t9 << 9 | packet.t8 << 8 | packet.payload.tag == part.tag
        if part.kind == "CplD":
            skip = packet.lower_address % 4
            size = min(packet.byte_count or 4096, 4 * (packet.length or 1024) - skip)
            got += bytes(packet[Raw])[skip : skip + size]
    assert got == content


def test_data_of_another_length_than_the_tlps_is_refused() -> None:
    write = next(pcie_tlps("write", 0, 8, PcieLink()))
    with pytest.raises(ValueError, match="with 7 bytes: it has 8"):
        tlp_bytes(write, bytes(7))


pool_addresses = st.integers(0, (1 << 52) - 20000)


@given(address=pool_addresses, length=st.integers(0, 4000), tag=st.integers(0, 0xFFFF))
def test_a_load_reads_each_line_once(address: int, length: int, tag: int) -> None:
    messages = list(cxl_mem_messages("load", address, length, tag))
    requests, answers = messages[::2], messages[1::2]
    lines = sorted({at - at % 64 for at in range(address, address + length)})
    assert [m.address for m in requests] == [m.address for m in answers] == lines
    assert {(m.channel, m.opcode) for m in requests} <= {(MemChannel.M2S_REQ, "MemRd")}
    assert {(m.channel, m.opcode) for m in answers} <= {(MemChannel.S2M_DRS, "MemData")}
    assert [m.tag for m in requests] == [m.tag for m in answers]
    assert [m.tag for m in requests] == [(tag + i) % 65536 for i in range(len(lines))]
    found = [m.address + m.data_at + i for m in answers for i in range(m.data_bytes)]
    assert found == list(range(address, address + length))


@given(address=pool_addresses, content=contents)
def test_a_store_writes_each_byte_once_and_partial_lines_by_enables(
    address: int, content: bytes
) -> None:
    memory: dict[int, int] = {}
    messages = list(cxl_mem_messages("store", address, len(content)))
    for request, answer in zip(messages[::2], messages[1::2], strict=True):
        at = request.address + request.data_at - address
        part = content[at : at + request.data_bytes]
        packet = cxl_mem.CxlMem(cxl_mem_bytes(request, part, ld_id=3))
        assert (packet.ld_id, packet.payload.address % 64) == (3, 0)
        line = bytes(packet[Raw])
        assert len(line) == 64
        whole = request.opcode == "MemWr"
        enables = (1 << 64) - 1 if whole else packet.byte_enables
        assert whole == (request.data_bytes == 64)
        touched = [i for i in range(64) if enables >> i & 1]
        assert not memory.keys() & {packet.payload.address + i for i in touched}
        memory |= {packet.payload.address + i: line[i] for i in touched}
        assert (answer.channel, answer.opcode) == (MemChannel.S2M_NDR, "Cmp")
        assert (answer.tag, answer.address) == (request.tag, request.address)
    assert memory == {address + i: byte for i, byte in enumerate(content)}


def test_an_atomic_reads_its_line_and_writes_it_back() -> None:
    messages = list(cxl_mem_messages("atomic", 0x1008, 8, 0xFFFF))
    assert [m.opcode for m in messages] == ["MemRd", "MemData", "MemWr", "Cmp"]
    assert [m.tag for m in messages] == [0xFFFF, 0xFFFF, 0, 0]
    assert {m.address for m in messages} == {0x1000}


@pytest.mark.parametrize(
    ("kind", "address", "length", "tag", "message"),
    [
        ("load", 1 << 52, 1, 0, "lie outside"),
        ("load", 0, 8, 0x10000, "16 bits"),
        ("atomic", 60, 8, 0, "two lines"),
        ("flush", 0, 8, 0, "none of load, store, atomic"),
    ],
)
def test_what_cxl_mem_cannot_do_is_refused(
    kind: str, address: int, length: int, tag: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        list(cxl_mem_messages(kind, address, length, tag))  # type: ignore[arg-type]
