# SPDX-License-Identifier: BSD-3-Clause
"""scapy's layers of NUPA's link type against the tables, and against random bytes."""

from __future__ import annotations

import doctest
import importlib
import ipaddress
import zlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from scapy.config import conf
from scapy.error import Scapy_Exception
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from nupa.packet.scapy import cxl_cache, cxl_mem, queue, tlp
from nupa.packet.scapy.link import Nupa
from nupa.packet.tables import cxl_cache as cache_tables
from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables import pcie as pcie_tables
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables import record
from nupa.packet.tables.layout import Layout
from nupa.verbs import enums as e


def values_of(layout: Layout, **fixed: int) -> st.SearchStrategy[dict[str, int]]:
    """Returns any values of the fields of *layout*, except the *fixed* ones."""
    return st.fixed_dictionaries(
        {
            field.name: st.just(fixed[field.name])
            if field.name in fixed
            else st.integers(0, (1 << field.bits) - 1).map(lambda v, s=field.shift: v << s)
            for field in layout.fields
        }
    )


def as_fields(layout: Layout, values: dict[str, int]) -> dict[str, Any]:
    """Returns *values* as scapy's fields take them."""
    ipv6 = {field.name for field in layout.fields if field.kind == "ipv6"}
    return {
        name: str(ipaddress.IPv6Address(value)) if name in ipv6 else value
        for name, value in values.items()
    }


def assert_has(packet: Packet, layout: Layout, values: dict[str, int]) -> None:
    for name, value in as_fields(layout, values).items():
        assert packet.getfieldval(name) == value, name


PLAIN: list[tuple[type[Packet], Layout]] = [
    (cxl_mem.M2SReq, cxl_tables.M2S_REQ),
    (cxl_mem.M2SBIRsp, cxl_tables.M2S_BIRSP),
    (cxl_mem.S2MBISnp, cxl_tables.S2M_BISNP),
    (cxl_mem.S2MNDR, cxl_tables.S2M_NDR),
    (cxl_cache.CxlCache, cache_tables.CXL_CACHE),
    *(
        (layer, cache_tables.MESSAGES[channel])
        for channel, layer in cxl_cache.LAYERS.items()
        if channel != cache_tables.CacheChannel.D2H_DATA
    ),
    (queue.Doorbell, queue_tables.DOORBELL),
    (queue.CQE, queue_tables.CQE),
    (tlp.MemRead32, pcie_tables.MEM32),
    (tlp.MemRead64, pcie_tables.MEM64),
    (tlp.Completion, pcie_tables.COMPLETION),
    (tlp.Message, pcie_tables.MESSAGE),
]


@pytest.mark.parametrize(("layer", "layout"), PLAIN, ids=lambda x: getattr(x, "__name__", ""))
@given(data=st.data())
def test_a_layer_is_built_as_its_table_says_and_dissected_to_the_same(
    layer: type[Packet], layout: Layout, data: st.DataObject
) -> None:
    values = data.draw(values_of(layout))
    built = bytes(layer(**values))
    assert built == layout.encode(**values)
    assert layout.decode(built) == values
    assert_has(layer(built), layout, values)
    assert bytes(layer(built)) == built


@given(
    first=values_of(pcie_tables.TLP, length=0),
    choice=st.sampled_from(sorted(tlp.LAYERS.items(), key=lambda item: item[1])),
    words=st.integers(1, 40),
    data=st.data(),
)
def test_a_tlp_is_dissected_to_what_was_built(
    first: dict[str, int], choice: Any, words: int, data: st.DataObject
) -> None:
    layer, (fmt, kind) = choice
    header = data.draw(values_of(layer.layout))
    first |= {"fmt": fmt, "type": kind}
    operands: dict[str, int] = {}
    payload = b""
    if kind in (0x0C, 0x0D, 0x0E):
        names = ["compare", "swap"] if kind == 0x0E else ["operand"]
        each = data.draw(st.sampled_from([4, 8, 16]))
        operands = {name: data.draw(st.integers(0, (1 << 8 * each) - 1)) for name in names}
        first["length"] = each * len(names) // 4
    elif fmt & 2:
        payload = data.draw(st.binary(min_size=4 * words, max_size=4 * words))
        first["length"] = words
    else:
        first["length"] = words
    built = bytes(tlp.TLP(**first) / layer(**header, **operands) / payload)
    expected = pcie_tables.TLP.encode(**first) + layer.layout.encode(**header)
    each = 4 * first["length"] // max(len(operands), 1)
    expected += b"".join(v.to_bytes(each, "little") for v in operands.values()) + payload
    digest = bytes((expected[0] | 1, expected[1], expected[2] | 0x40)) + expected[3:]
    if first["td"]:
        expected += zlib.crc32(digest).to_bytes(4, "little")
    assert built == expected

    again = tlp.TLP(built)
    assert_has(again, pcie_tables.TLP, first)
    assert isinstance(again.payload, layer)
    assert_has(again.payload, layer.layout, header)
    assert {name: again.payload.getfieldval(name) for name in operands} == operands
    assert (bytes(again[Raw]) if Raw in again else b"") == payload
    assert again.ecrc == (zlib.crc32(digest) if first["td"] else None)
    assert bytes(again) == built


def test_an_ecrc_that_is_wrong_stays_wrong() -> None:
    packet = tlp.TLP(td=1, ecrc=0x12345678) / tlp.MemRead32(address=0x1000)
    assert tlp.TLP(bytes(packet)).ecrc == 0x12345678
    assert bytes(packet)[-4:] == bytes.fromhex("78563412")


def test_variant_bits_do_not_change_the_ecrc() -> None:
    words = bytes.fromhex("60008001 00000f00 00000001 00000000 11223344".replace(" ", ""))
    poisoned = bytes((words[0] | 1, words[1], words[2] | 0x40)) + words[3:]
    assert tlp.ecrc(words) == tlp.ecrc(poisoned) != tlp.ecrc(words[:-1] + b"\x45")


@pytest.mark.parametrize(
    ("size", "length", "first", "last"), [(4, 1, 0xF, 0), (8, 2, 0xF, 0xF), (4096, 0, 0xF, 0xF)]
)
def test_length_and_byte_enables_follow_from_the_data(
    size: int, length: int, first: int, last: int
) -> None:
    packet = tlp.TLP(bytes(tlp.TLP() / tlp.MemWrite64(address=1 << 40) / bytes(size)))
    assert (packet.fmt, packet.type, packet.length) == (3, 0, length)
    assert (packet.first_be, packet.last_be) == (first, last)
    assert len(packet[Raw]) == size


def test_more_than_1024_dw_are_refused() -> None:
    with pytest.raises(Scapy_Exception, match="4100 bytes of data"):
        bytes(tlp.TLP() / tlp.MemWrite64() / bytes(4100))


def test_what_follows_a_tlp_is_padding() -> None:
    built = bytes(tlp.TLP(td=1) / tlp.MemWrite32(address=8) / b"abcd")
    packet = tlp.TLP(built + b"tail")
    assert packet[conf.padding_layer].load == b"tail"
    assert packet.ecrc == tlp.ecrc(built[:-4])


def test_a_tlp_cut_by_the_snap_length_still_shows_its_header() -> None:
    built = bytes(Nupa() / tlp.TLP(td=1) / tlp.MemWrite64(address=0x1_0000_0040) / bytes(64))
    packet = Nupa(built[:64])
    assert packet[tlp.MemWrite64].address == 0x1_0000_0040
    assert packet[tlp.TLP].ecrc is None
    assert len(packet[Raw]) == 24


@pytest.mark.parametrize("routing", range(8))
@pytest.mark.parametrize("layer", [tlp.Message, tlp.MessageData])
def test_messages_are_found_by_every_routing(layer: type[Packet], routing: int) -> None:
    fmt = 3 if layer is tlp.MessageData else 1
    packet = tlp.TLP(fmt=fmt, type=0x10 | routing, length=1) / layer(code=0x30) / b"data"
    again = tlp.TLP(bytes(packet))
    assert isinstance(again.payload, layer)
    way = pcie_tables.ROUTING.get(routing, "routing reserved")
    assert f"ERR_COR {way}" in again.summary()


def test_a_completion_answers_its_request() -> None:
    request = tlp.TLP() / tlp.MemRead64(requester=0x100, tag=3)
    answer = tlp.TLP() / tlp.CompletionData(requester=0x100, tag=3) / b"abcd"
    other = tlp.TLP() / tlp.CompletionData(requester=0x100, tag=4) / b"abcd"
    assert answer.payload.answers(request.payload)
    assert not other.payload.answers(request.payload)


@given(
    values=values_of(cxl_tables.M2S_RWD),
    enables=st.integers(0, 2**64 - 1),
    ems=st.integers(0, 2**32 - 1),
    line=st.binary(min_size=64, max_size=64),
)
def test_a_request_with_data_has_its_trailers_before_the_line(
    values: dict[str, int], enables: int, ems: int, line: bytes
) -> None:
    layer = cxl_mem.M2SRwD(**values, byte_enables=enables, ems=ems)
    built = bytes(cxl_mem.CxlMem(flit=1) / layer / line)
    partial = cxl_tables.RWD_OPCODES.get(values["opcode"], "").startswith("MemWrPtl")
    extended = values["trp"] == 1 and values["meta_field"] == 1
    expected = b"\x02\x01" + cxl_tables.M2S_RWD.encode(**values)
    expected += enables.to_bytes(8, "big") * partial + ems.to_bytes(4, "big") * extended + line
    assert built == expected
    again = cxl_mem.CxlMem(built)
    assert_has(again.payload, cxl_tables.M2S_RWD, values)
    assert again.byte_enables == (enables if partial else None)
    assert again.ems == (ems if extended else None)
    assert bytes(again[Raw]) == line
    assert bytes(again) == built


@given(values=values_of(cache_tables.D2H_DATA), enables=st.integers(0, 2**64 - 1))
def test_byte_enables_of_a_cache_line_come_before_it(values: dict[str, int], enables: int) -> None:
    data = cxl_cache.D2HData(**values, byte_enables=enables)
    built = bytes(cxl_cache.CxlCache() / data / bytes(64))
    wanted = cache_tables.CXL_CACHE.encode(channel=3) + cache_tables.D2H_DATA.encode(**values)
    wanted += enables.to_bytes(8, "big") if values["bep"] else b""
    assert built == wanted + bytes(64)
    again = cxl_cache.CxlCache(built)
    assert_has(again.payload, cache_tables.D2H_DATA, values)
    assert again.payload.byte_enables == (enables if values["bep"] else None)
    assert bytes(again[Raw]) == bytes(64)


@given(values=values_of(cxl_tables.S2M_DRS), ems=st.integers(0, 2**32 - 1))
def test_a_data_response_is_dissected_to_what_was_built(values: dict[str, int], ems: int) -> None:
    extended = values["trp"] == 1 and values["meta_field"] == 1
    built = bytes(cxl_mem.CxlMem() / cxl_mem.S2MDRS(**values, ems=ems) / bytes(64))
    expected = b"\x06\x01" + cxl_tables.S2M_DRS.encode(**values)
    assert built == expected + ems.to_bytes(4, "big") * extended + bytes(64)
    again = cxl_mem.CxlMem(built)
    assert_has(again.payload, cxl_tables.S2M_DRS, values)
    assert bytes(again) == built


@pytest.mark.parametrize(("flit", "bit"), [(0, 0), (1, 1), (2, 1)])
def test_the_trailer_bit_follows_from_the_trailer_where_the_flit_has_one(
    flit: int, bit: int
) -> None:
    built = cxl_mem.CxlMem(flit=flit) / cxl_mem.M2SRwD(opcode="MemWrPtl", byte_enables=3)
    assert cxl_mem.CxlMem(bytes(built)).trp == bit
    assert cxl_mem.CxlMem(bytes(built)).byte_enables == 3


@st.composite
def segments(draw: st.DrawFn) -> tuple[Packet, bytes]:
    """Returns a segment, and the bytes that it must have."""
    kind = draw(st.sampled_from(sorted(queue.SEGMENTS)))
    layout = queue_tables.SEGMENT_LAYOUTS[queue_tables.SegmentType(kind)]
    tail = draw(st.binary(max_size=20))
    values = draw(values_of(layout, type=kind, bytes=layout.bytes + len(tail)))
    name = "data" if kind == queue_tables.SegmentType.INLINE else "rest"
    packet = queue.SEGMENTS[kind](**as_fields(layout, values), **{name: tail})
    return packet, layout.encode(**values) + tail


@given(
    values=values_of(queue_tables.WQE),
    parts=st.lists(segments(), max_size=6),
    tail=st.binary(max_size=8),
)
def test_a_wqe_has_its_segments_in_order(
    values: dict[str, int], parts: list[tuple[Packet, bytes]], tail: bytes
) -> None:
    values["bytes"] = queue_tables.WQE.bytes + sum(len(part) for _, part in parts)
    built = bytes(queue.WQE(**values, segments=[packet for packet, _ in parts]) / tail)
    assert built == queue_tables.WQE.encode(**values) + b"".join(p for _, p in parts) + tail
    again = queue.WQE(built)
    assert_has(again, queue_tables.WQE, values)
    assert [bytes(segment) for segment in again.segments] == [part for _, part in parts]
    assert [type(segment) for segment in again.segments] == [type(packet) for packet, _ in parts]
    assert bytes(again) == built


def test_lengths_of_a_wqe_and_its_segments_are_filled_in() -> None:
    parts = [queue.RemoteSegment(rkey=7), queue.InlineSegment(data=b"hello")]
    again = queue.WQE(bytes(queue.WQE(segments=parts)))
    assert again.bytes == 40 + 16 + 9
    assert [segment.bytes for segment in again.segments] == [16, 9]
    assert again.segments[1].data == b"hello"


def test_a_segment_of_a_type_unknown_here_is_kept() -> None:
    unknown = bytes((99, 0, 0, 8)) + b"what"
    known = bytes(queue.DataSegment(length=5))
    wqe = queue_tables.WQE.encode(bytes=40 + len(unknown) + len(known))
    again = queue.WQE(wqe + unknown + known)
    assert [segment.type for segment in again.segments] == [99, 6]
    assert again.segments[0].data == b"what"
    assert again.segments[1].length == 5
    assert bytes(again) == wqe + unknown + known


def test_a_wqe_too_long_for_its_length_field_is_refused() -> None:
    parts = [queue.InlineSegment(data=bytes(65000)), queue.InlineSegment(data=bytes(600))]
    with pytest.raises(Scapy_Exception, match="at most 65535"):
        bytes(queue.WQE(segments=parts))


@given(values=values_of(record.HEADER, version=1, header_bytes=24), payload=st.binary(max_size=80))
def test_the_header_is_the_same_to_scapy_and_without_it(
    values: dict[str, int], payload: bytes
) -> None:
    built = bytes(Nupa(**values) / payload)
    assert built == record.HEADER.encode(**values) + payload
    assert_has(Nupa(built), record.HEADER, values)
    head = record.unpack(built)
    assert head._asdict() == {name: v for name, v in values.items() if name != "reserved"}
    values.pop("reserved")
    del values["version"], values["header_bytes"]
    assert record.unpack(record.pack(**values)) == head


@pytest.mark.parametrize(
    ("layer", "level", "kind"),
    [
        (tlp.TLP() / tlp.MemRead32(), 1, 1),
        (cxl_mem.CxlMem() / cxl_mem.M2SReq(), 1, 2),
        (queue.Doorbell(), 2, 3),
        (queue.WQE(), 2, 4),
        (queue.CQE(), 2, 5),
        (Ether(dst="02:00:0a:00:00:02", src="02:00:0a:00:00:01", type=0x9000), 4, 6),
    ],
)
def test_level_and_kind_follow_from_what_is_above(layer: Packet, level: int, kind: int) -> None:
    packet = Nupa(bytes(Nupa() / layer))
    assert (packet.level, packet.kind) == (level, kind)
    assert type(packet.payload) is type(layer)


def test_a_longer_header_of_a_newer_version_is_skipped() -> None:
    built = bytes(Nupa(extra=b"more") / queue.Doorbell(index=5))
    assert built[1] == 28
    assert Nupa(built).extra == b"more"
    assert Nupa(built).index == 5
    assert record.unpack(built).header_bytes == 28


def test_another_version_is_not_guessed_at() -> None:
    built = bytes(Nupa(version=2) / queue.Doorbell())
    assert isinstance(Nupa(built).payload, Raw)
    with pytest.raises(ValueError, match="version 2; this NUPA reads 1"):
        record.unpack(built)


@pytest.mark.parametrize("length", [0, 23])
def test_a_header_cut_short_is_refused(length: int) -> None:
    built = bytes(Nupa() / queue.Doorbell())[:length]
    with pytest.raises(ValueError, match=f"{length} are there"):
        record.unpack(built)
    if length:
        with pytest.raises(Scapy_Exception, match="24 bytes are needed"):
            Nupa(built)


@pytest.mark.parametrize("length", [23, 200])
def test_a_header_length_that_cannot_be_is_refused(length: int) -> None:
    built = bytearray(bytes(Nupa() / queue.Doorbell()))
    built[1] = length
    with pytest.raises(ValueError, match=f"its header has {length}"):
        record.unpack(built)
    with pytest.raises(Scapy_Exception, match=f"its header has {length}"):
        Nupa(bytes(built))


EVERY = [Nupa, tlp.TLP, cxl_mem.CxlMem, queue.WQE, queue.CQE, queue.Doorbell]
EVERY += [*tlp.LAYERS, tlp.Message, *cxl_mem.LAYERS.values(), *queue.SEGMENTS.values()]


@pytest.mark.parametrize("layer", EVERY, ids=lambda layer: layer.__name__)
@given(noise=st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_scapys_own_error(layer: type[Packet], noise: bytes) -> None:
    try:
        packet = layer(noise)
    except Scapy_Exception:
        return
    packet.show2(dump=True)
    packet.summary()
    assert isinstance(bytes(packet), bytes)


@given(kind=st.integers(0, 8), noise=st.binary(max_size=300))
def test_random_records_below_a_good_header_are_built_again_as_they_were(
    kind: int, noise: bytes
) -> None:
    whole = record.pack(1, kind) + noise
    packet = Nupa(whole)
    packet.summary()
    if kind != record.Kind.ETHERNET:  # scapy's own layers need not
        assert bytes(packet) == whole


@pytest.mark.parametrize("name", ["tables.layout", "scapy.tlp", "scapy.cxl_mem", "scapy.queue"])
def test_doctests(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"nupa.packet.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.mark.parametrize(
    ("prefix", "names", "flags"),
    [
        ("IBV_WR_", queue_tables.WR_OPCODES, False),
        ("IBV_WC_", queue_tables.WC_STATUSES, False),
        ("IBV_WC_", queue_tables.WC_OPCODES, False),
        ("IBV_QPT_", {k: v for k, v in queue_tables.QP_TYPES.items() if v != "none"}, False),
        ("IBV_SEND_", queue_tables.SEND_FLAGS, True),
        ("IBV_WC_", queue_tables.WC_FLAGS, True),
    ],
)
def test_names_in_queue_tables_are_those_of_the_verbs(
    prefix: str, names: dict[int, str], flags: bool
) -> None:
    found = {value: int(getattr(e, prefix + name.upper())) for value, name in names.items()}
    assert found == {value: 1 << value if flags else value for value in names}
