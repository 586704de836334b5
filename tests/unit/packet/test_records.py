# SPDX-License-Identifier: BSD-3-Clause
"""The fast decoder of NUPA's records against the tables, and against damage."""

from __future__ import annotations

import io

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.packet.decode import records
from nupa.packet.decode.columns import Columns
from nupa.packet.decode.records import RecordFault
from nupa.packet.pcapng.reader import Reader, Writer
from nupa.packet.tables import cxl_cache as cache_tables
from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables import pcie as pcie_tables
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables import record
from nupa.packet.tables.layout import Layout
from nupa.packet.tables.record import LINKTYPE_NUPA, Kind


def decode(*packets: bytes, linktype: int = LINKTYPE_NUPA) -> Columns:
    file = io.BytesIO()
    writer = Writer(file)
    number = writer.add_interface("h0/1", linktype)
    for packet in packets:
        writer.write(number, 0, packet)
    file.seek(0)
    [batch] = Reader(file).batches()
    return records.decode_batch(batch)


def drawn(data: st.DataObject, layout: Layout, **fixed: int) -> dict[str, int]:
    return {
        field.name: fixed[field.name]
        if field.name in fixed
        else data.draw(st.integers(0, (1 << field.bits) - 1)) << field.shift
        for field in layout.fields
    }


def header(kind: Kind) -> bytes:
    return record.pack(1, kind)


def row(columns: Columns, *names: str) -> dict[str, int]:
    assert columns.fault[0] == RecordFault.NONE
    return {name: getattr(columns, name)[0] for name in names}


@given(data=st.data(), extra=st.binary(max_size=200))
def test_the_common_header_is_decoded_as_its_table_says(data: st.DataObject, extra: bytes) -> None:
    values = drawn(data, record.HEADER, version=1, header_bytes=24 + len(extra), kind=6)
    found = decode(record.HEADER.encode(**values) + extra + b"frame")
    names = [name for name in values if name not in ("header_bytes", "reserved")]
    assert row(found, *names) == {name: values[name] for name in names}
    assert row(found, "payload_offset", "length") == {
        "payload_offset": 24 + len(extra),
        "length": 5,
    }


@given(data=st.data(), kind=st.sampled_from(sorted(pcie_tables.TYPES)))
def test_tlps(data: st.DataObject, kind: tuple[int, int]) -> None:
    name = pcie_tables.TYPES[kind]
    first = drawn(data, pcie_tables.TLP, fmt=kind[0], type=kind[1])
    layout = pcie_tables.MEM64 if kind[0] & 1 else pcie_tables.MEM32
    if name.startswith(("Cpl", "Msg")):
        layout = pcie_tables.COMPLETION if name.startswith("Cpl") else pcie_tables.MESSAGE
    rest = drawn(data, layout)
    packet = header(Kind.PCIE_TLP) + pcie_tables.TLP.encode(**first) + layout.encode(**rest)
    found = row(decode(packet), "code", "number", "length", "address", "status")
    size = 4 * (first["length"] or 1024)
    asks = not name.startswith(("Cpl", "Msg"))
    assert found == {
        "code": kind[0] << 5 | kind[1],
        "number": first["t9"] << 9 | first["t8"] << 8 | rest["tag"],
        "length": size if asks or kind[0] & 2 else 0,
        "address": rest["address"] if asks else 0,
        "status": rest.get("status", 0),
    }


@given(data=st.data(), channel=st.sampled_from(list(cxl_tables.MemChannel)))
def test_cxl_mem_messages(data: st.DataObject, channel: cxl_tables.MemChannel) -> None:
    layout = cxl_tables.MESSAGES[channel]
    values = drawn(data, layout)
    packet = header(Kind.CXL_MEM) + bytes((channel, 1)) + layout.encode(**values)
    found = row(decode(packet), "code", "number", "length", "address")
    with_data = channel in (cxl_tables.MemChannel.M2S_RWD, cxl_tables.MemChannel.S2M_DRS)
    assert found == {
        "code": channel << 4 | values["opcode"],
        "number": values["tag"] if "tag" in values else values["bi_tag"],
        "length": 64 if with_data else 0,
        "address": values.get("address", 0),
    }


@given(data=st.data(), channel=st.sampled_from(list(cache_tables.CacheChannel)))
def test_cxl_cache_messages(data: st.DataObject, channel: cache_tables.CacheChannel) -> None:
    front = drawn(data, cache_tables.CXL_CACHE, channel=channel)
    values = drawn(data, cache_tables.MESSAGES[channel])
    packet = header(Kind.CXL_CACHE) + cache_tables.CXL_CACHE.encode(**front)
    packet += cache_tables.MESSAGES[channel].encode(**values)
    found = row(decode(packet), "code", "number", "length", "address", "queue", "index", "states")
    states = ("before", "after", "peer_before", "peer_after")
    assert found == {
        "code": channel << 5 | values.get("opcode", 0),
        "number": values["cqid"] if "cqid" in values else values["uqid"],
        "length": 64 if channel in cache_tables.DATA_CHANNELS else 0,
        "address": front["at"],
        "queue": front["line"],
        "index": front["peer"],
        "states": sum(front[name] << at for name, at in zip(states, (12, 8, 4, 0), strict=True)),
    }
    for size in (40, len(packet) - 1):
        assert decode(packet[:size]).fault[0] == RecordFault.CUT


@given(data=st.data(), where=st.integers(-1, 2))
def test_queue_entries(data: st.DataObject, where: int) -> None:
    bell = drawn(data, queue_tables.DOORBELL)
    found = decode(header(Kind.DOORBELL) + queue_tables.DOORBELL.encode(**bell))
    assert row(found, "queue", "number", "index") == {
        name: bell[name] for name in ("queue", "number", "index")
    }
    cqe = drawn(data, queue_tables.CQE)
    found = decode(header(Kind.CQE) + queue_tables.CQE.encode(**cqe))
    assert row(found, "status", "code", "number", "wr_id", "index", "length") == {
        "status": cqe["status"],
        "code": cqe["opcode"],
        "number": cqe["qpn"],
        "wr_id": cqe["wr_id"],
        "index": cqe["index"],
        "length": cqe["byte_len"],
    }
    remote = queue_tables.SEGMENT_LAYOUTS[queue_tables.SegmentType.REMOTE]
    address = data.draw(st.integers(0, 2**64 - 1))
    parts = [queue_tables.SEGMENT_LAYOUTS[queue_tables.SegmentType.DATA].encode()] * 2
    if where >= 0:
        parts.insert(where, remote.encode(address=address))
    segments = b"".join(parts)
    wqe = drawn(data, queue_tables.WQE, bytes=40 + len(segments))
    found = decode(header(Kind.WQE) + queue_tables.WQE.encode(**wqe) + segments)
    assert row(found, "queue", "code", "number", "index", "wr_id", "length", "address") == {
        "queue": wqe["queue"],
        "code": wqe["opcode"],
        "number": wqe["number"],
        "index": wqe["index"],
        "wr_id": wqe["wr_id"],
        "length": wqe["length"],
        "address": address if where >= 0 else 0,
    }


WQE = queue_tables.WQE
SEGMENT = queue_tables.SEGMENT_LAYOUTS[queue_tables.SegmentType.DATA]
REMOTE = queue_tables.SEGMENT_LAYOUTS[queue_tables.SegmentType.REMOTE]


@pytest.mark.parametrize(
    ("packet", "fault"),
    [
        (b"", RecordFault.CUT),
        (header(Kind.CQE)[:23], RecordFault.CUT),
        (b"\2" + header(Kind.CQE)[1:], RecordFault.VERSION),
        (b"\1\x17" + header(Kind.CQE)[2:], RecordFault.LENGTH),
        (b"\1\x19" + header(Kind.CQE)[2:], RecordFault.CUT),
        (record.pack(1, 7) + bytes(100), RecordFault.KIND),
        (record.pack(1, 0) + bytes(100), RecordFault.KIND),
        (header(Kind.PCIE_TLP) + bytes(11), RecordFault.CUT),
        (header(Kind.PCIE_TLP) + b"\x20" + bytes(14), RecordFault.CUT),
        (header(Kind.PCIE_TLP) + b"\x80" + bytes(14), RecordFault.KIND),
        (header(Kind.CXL_MEM) + bytes((7, 1)) + bytes(40), RecordFault.KIND),
        (header(Kind.CXL_MEM) + bytes((1, 1)) + bytes(17), RecordFault.CUT),
        (header(Kind.DOORBELL) + bytes(15), RecordFault.CUT),
        (header(Kind.CQE) + bytes(63), RecordFault.CUT),
        (header(Kind.WQE) + WQE.encode(bytes=40)[:-1], RecordFault.CUT),
        (header(Kind.WQE) + WQE.encode(bytes=39), RecordFault.LENGTH),
        (header(Kind.WQE) + WQE.encode(bytes=60), RecordFault.CUT),
        (header(Kind.WQE) + WQE.encode(bytes=60) + SEGMENT.encode(bytes=3), RecordFault.LENGTH),
        (header(Kind.WQE) + WQE.encode(bytes=60) + SEGMENT.encode(bytes=21), RecordFault.LENGTH),
        (header(Kind.WQE) + WQE.encode(bytes=56) + REMOTE.encode()[:-1], RecordFault.CUT),
    ],
)
def test_what_is_wrong_with_a_record_is_said(packet: bytes, fault: RecordFault) -> None:
    found = decode(packet, record.pack(1, Kind.ETHERNET))
    assert [RecordFault(value) for value in found.fault] == [fault, RecordFault.NONE]


def test_a_packet_of_another_link_type_is_left_alone() -> None:
    found = decode(header(Kind.CQE) + bytes(64), linktype=1)
    assert (found.fault[0], found.kind[0]) == (RecordFault.LINK, 0)


@given(noise=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 60), st.binary(max_size=120))))
def test_noise_is_decoded_within_its_bounds(noise: list[tuple[int, int, bytes]]) -> None:
    packets = [(record.pack(1, kind) + rest)[:-cut] for kind, cut, rest in noise if cut]
    if packets:
        found = decode(*packets)
        assert all(RecordFault(value) in RecordFault for value in found.fault)


def test_columns_are_found_by_name_and_searched_by_value() -> None:
    found = decode(*(record.pack(1, Kind.ETHERNET, port=i % 3, transfer=i) for i in range(9)))
    assert len(found) == 9
    assert list(found.transfer[2:5]) == [2, 3, 4]
    assert found.where(port=1) == [1, 4, 7]
    assert found.where(port=1, transfer=4) == [4]
    with pytest.raises(AttributeError, match="'colour' is not a column: columns are transfer"):
        found.colour  # noqa: B018
    assert set(records.COLUMNS) >= {"transfer", "address", "fault"}
