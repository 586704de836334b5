# SPDX-License-Identifier: BSD-3-Clause
"""The bytes of TLPs and CXL.mem messages, written for speed, against the tables."""

from __future__ import annotations

from typing import get_args

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables import pcie as pcie_tables
from nupa.packet.tables.cxl_mem import MemChannel
from tests.unit.packet.encode import cxl_mem_bytes, tlp_bytes
from tests.unit.packet.split import CxlMessage, PcieLink, Tlp, TlpKind, cxl_mem_messages, pcie_tlps

ids = st.integers(0, 0xFFFF)


def content_of(tlp: Tlp) -> bytes:
    if tlp.kind == "MRd":
        return b""
    size = tlp.length if tlp.kind in ("MWr", "CplD") else 4 * tlp.dw
    return bytes(i % 251 + 1 for i in range(size))


@given(
    kind=st.sampled_from(get_args(TlpKind)),
    slot=st.one_of(st.integers(0, 1 << 13), st.integers((1 << 29) - 64, (1 << 29) + 64)),
    skip=st.integers(0, 7),
    length=st.integers(0, 3000),
    tag=st.integers(0, 767),
    requester=ids,
    completer=ids,
)
def test_tlps_are_written_as_the_tables_have_them(
    kind: TlpKind, slot: int, skip: int, length: int, tag: int, requester: int, completer: int
) -> None:
    atomic = kind not in ("read", "write")
    address, length = (8 * slot, 8) if atomic else (8 * slot + skip, length)
    for tlp in pcie_tlps(kind, address, length, PcieLink(tags=768), tag):
        wide = tlp.address >> 32 > 0 and tlp.kind != "CplD"
        name = tlp.kind if tlp.kind == "CplD" else f"{tlp.kind}{64 if wide else 32}"
        [(fmt, number)] = [key for key, value in pcie_tables.TYPES.items() if value == name]
        first = pcie_tables.TLP.encode(
            fmt=fmt, type=number, t9=tlp.tag >> 9, t8=tlp.tag >> 8 & 1, length=tlp.dw % 1024
        )
        if tlp.kind == "CplD":
            head = pcie_tables.COMPLETION.encode(
                completer=completer,
                requester=requester,
                tag=tlp.tag & 0xFF,
                byte_count=tlp.byte_count % 4096,
                lower_address=tlp.lower_address,
            )
        else:
            head = (pcie_tables.MEM64 if wide else pcie_tables.MEM32).encode(
                requester=requester,
                tag=tlp.tag & 0xFF,
                first_be=tlp.first_be,
                last_be=tlp.last_be,
                address=tlp.address & ~3,
            )
        content = content_of(tlp)
        found = tlp_bytes(tlp, content, requester, completer)
        assert found[: len(first + head)] == first + head
        assert found[len(first + head) :].strip(b"\0") == content
        assert len(found) == len(first + head) + (0 if tlp.kind == "MRd" else 4 * tlp.dw)


@given(
    kind=st.sampled_from(["load", "store"]),
    address=st.integers(0, 1 << 40),
    length=st.integers(1, 400),
    tag=st.integers(0, 0xFFFF),
    ld_id=st.integers(0, 15),
)
def test_cxl_mem_messages_are_written_as_the_tables_have_them(
    kind: str, address: int, length: int, tag: int, ld_id: int
) -> None:
    for message in cxl_mem_messages(kind, address, length, tag):  # type: ignore[arg-type]
        layout = cxl_tables.MESSAGES[message.channel]
        [names] = [f.values for f in layout.fields if f.name == "opcode"]
        assert names is not None
        [opcode] = [code for code, name in names.items() if name == message.opcode]
        fields = {"opcode": opcode, "tag": message.tag, "ld_id": ld_id}
        if message.channel in (MemChannel.M2S_REQ, MemChannel.M2S_RWD):
            fields["address"] = message.address
        if message.byte_enables:
            fields["trp"] = 1
        expected = cxl_tables.CXL_MEM.encode(channel=message.channel) + layout.encode(**fields)
        if message.byte_enables:
            expected += message.byte_enables.to_bytes(8, "big")
        content = bytes(i % 251 + 1 for i in range(message.data_bytes))
        if message.channel in (MemChannel.M2S_RWD, MemChannel.S2M_DRS):
            expected += (bytes(message.data_at) + content).ljust(64, b"\0")
        assert cxl_mem_bytes(message, content, ld_id) == expected


def test_data_of_another_length_is_refused() -> None:
    write = next(pcie_tlps("write", 0, 8, PcieLink()))
    with pytest.raises(ValueError, match="with 7 bytes: it has 8"):
        tlp_bytes(write, bytes(7))
    read = next(pcie_tlps("read", 0, 8, PcieLink()))
    with pytest.raises(ValueError, match="MRd of 2 DW with 8 bytes: it has 0"):
        tlp_bytes(read, bytes(8))
    message = CxlMessage(MemChannel.S2M_DRS, "MemData", 0, 0, 0, 64)
    with pytest.raises(ValueError, match="MemData with 1 bytes of data: it has 64"):
        cxl_mem_bytes(message, b"x")
