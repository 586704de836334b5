# SPDX-License-Identifier: BSD-3-Clause
"""PCIe TLPs and CXL.mem flits as bytes that were written by hand, from PCIe 6.0 2.2 and CXL 3.1
chapters 3 and 4, field by field; none comes from our packers."""

from __future__ import annotations

from typing import Any

import pytest
from scapy.packet import Packet

from nupa.cxl.link.bdf import Bdf
from nupa.cxl.link.flit import Flit, Format, pack, unpack
from nupa.cxl.link.messages import M2SReq, M2SRwD, Message, Request, S2MDrs, S2MNdr
from nupa.cxl.link.tlp import Completion, ConfigRequest, CplStatus, MemRequest
from nupa.cxl.link.tlp import unpack as unpack_tlp
from nupa.packet.scapy import tlp as layers
from tests.unit.cxl.vectors import data

# 12:03.4 is 121Ch, 56:07.1 is 5639h: bus in bits 15:8, device in 7:3, function in 2:0 (2.2.4.2).
WHO, WHERE = Bdf(0x12, 3, 4), Bdf(0x56, 7, 1)

#: 2.2.1.1: fmt and type; T9, TC, T8, attr[2], TH; TD, EP, attr[1:0], AT, length[9:8]; length[7:0].
TLPS = [
    pytest.param(
        """
        00 80 00 02                     # MRd, 3 DW; tag bit 9; 2 DW
        00 00 ab 7c                     # requester, tag 2ABh, byte enables: last 7h, first Ch
        c0 00 00 00
        """,
        MemRequest(address=0xC000_0000, dw=2, last_be=0x7, first_be=0xC, tag=0x2AB),
        id="MRd32",
    ),
    pytest.param(
        """
        20 54 10 00                     # MRd, 4 DW; TC 5, attr 101b; 1024 DW is 0
        12 1c 00 ff  00 00 01 00  00 00 00 00
        """,
        MemRequest(address=1 << 40, dw=1024, last_be=0xF, requester=WHO, tc=5, attr=5),
        id="MRd64",
    ),
    pytest.param(
        """
        40 00 40 01                     # MWr, 3 DW with data; poisoned
        00 00 00 0f  00 00 00 04  61 62 63 64
        """,
        MemRequest(address=4, data=b"abcd", ep=1),
        id="MWr32",
    ),
    pytest.param(
        """
        60 00 00 02  00 00 ff 1f  ff ff ff ff  ff ff ff f8
        61 62 63 64 65 66 67 68
        """,
        MemRequest(address=(1 << 64) - 8, dw=2, last_be=1, data=b"abcdefgh", tag=255),
        id="MWr64",
    ),
    pytest.param(
        """
        04 00 00 01                     # CfgRd0
        12 1c 09 02  56 39 0f fc        # 2.2.7.1: completer, 4 bits of extended register, register
        """,
        ConfigRequest(bdf=WHERE, offset=0xFFC, first_be=2, requester=WHO, tag=9),
        id="CfgRd0",
    ),
    pytest.param(
        """
        45 04 00 01                     # CfgWr1; attr[2]
        00 00 00 0f  56 39 00 04  77 78 79 7a
        """,
        ConfigRequest(bdf=WHERE, offset=4, data=b"wxyz", type1=True, attr=4),
        id="CfgWr1",
    ),
    pytest.param(
        """
        0a 00 00 00                     # Cpl
        56 39 20 04                     # 2.2.9.1: completer, status 001b, byte count 4
        12 1c 00 00                     # requester, tag, lower address
        """,
        Completion(completer=WHERE, status=CplStatus.UNSUPPORTED_REQUEST, requester=WHO),
        id="Cpl",
    ),
    pytest.param(
        """
        4a 00 00 01                     # CplD
        56 39 00 03  12 1c 4d 41  64 61 74 61
        """,
        Completion(
            completer=WHERE, data=b"data", byte_count=3, lower_address=0x41, tag=77, requester=WHO
        ),
        id="CplD",
    ),
]


@pytest.mark.parametrize(("text", "tlp"), TLPS)
def test_a_tlp_has_the_bytes_of_the_specification(
    text: str, tlp: MemRequest | ConfigRequest | Completion
) -> None:
    assert tlp.pack().hex() == data(text).hex()
    assert unpack_tlp(data(text)) == tlp


#: 2.2.7.3: type 01100b FetchAdd, 01101b Swap, 01110b CAS; the byte enables are reserved.
ATOMICS: list[tuple[str, type[Packet], dict[str, Any]]] = [
    (
        "4c 00 00 01  12 1c 07 00  12 34 56 78  01 00 00 00",
        layers.FetchAdd32,
        {"address": 0x12345678, "operand": 1, "tag": 7, "requester": 0x121C},
    ),
    (
        "6d 00 00 02  12 1c 07 00  00 00 00 01  12 34 56 78  02 0*7",
        layers.Swap64,
        {"address": 0x1_1234_5678, "operand": 2},
    ),
    (
        "4e 00 00 04  12 1c 07 00  12 34 56 78  03 0*7  04 0*7",
        layers.CAS32,
        {"address": 0x12345678, "compare": 3, "swap": 4},
    ),
    (
        "20 00 00 02  12 1c 07 ff  00 00 00 01  12 34 56 78",
        layers.MemRead64,
        {"address": 0x1_1234_5678, "first_be": 15, "last_be": 15},
    ),
    (
        "4a 00 00 02  56 39 00 08  12 1c 07 78  0*8",
        layers.CompletionData,
        {"completer": 0x5639, "byte_count": 8, "tag": 7, "lower_address": 0x78},
    ),
]


@pytest.mark.parametrize(("text", "layer", "fields"), ATOMICS)
def test_the_layers_read_and_write_tlps_of_the_specification(
    text: str, layer: type[Packet], fields: dict[str, Any]
) -> None:
    packet = layers.TLP(data(text))
    assert {name: packet[layer].getfieldval(name) for name in fields} == fields
    packet.raw_packet_cache = packet[layer].raw_packet_cache = None
    assert bytes(packet).hex() == data(text).hex()


LINE = bytes(range(64))

#: 4.2.2: protocol ID, 5555h; then slot 0: the flit's header of 32 bits, of which 7:5 are the format
#: of slot 0 and 16:8 those of the others; a header; slots 1 to 3; a CRC, which is not looked at.
FLITS_68: list[tuple[str, Message, str]] = [
    (
        "M2S Req, in H5",
        M2SReq(0x1240, 0xABCD, 0, 0, 3, 0, 1, 0xA),
        """
        55 55  a0 49 00 00              # slots 1 to 3 are G1: nothing is valid in them
        # Valid, opcode 0 (MemInv), no snoop; MetaField 11b, MetaValue, tag in 27:12;
        # address[51:5] = 92h in 74:28, TC 1 in 76:75, LD-ID Ah in 80:77
        01 d3 bc 2a 09 00 00 00 00 48 01 00
        0*48
        """,
    ),
    (
        "M2S RwD, in H4",
        M2SRwD(0x1240, LINE, tag=0xABCD, ld_id=0xA, tc=1, poison=1),
        f"""
        55 55  90 00 00 00              # slots 1 to 3 have data
        # Valid, opcode 1 (MemWr); address[51:6] = 49h in 73:28, poison in 74, TC, LD-ID
        03 d3 bc 9a 04 00 00 00 00 4c 01 00
        {LINE[:48].hex()}
        """,
    ),
    (
        "S2M DRS, in H5",
        S2MDrs(LINE, 0xABCD, ld_id=0xA, dev_load=2),
        # H3 is one DRS and one NDR: 3.3.10, Valid, opcode, MetaField, MetaValue, tag in 23:8,
        # poison, LD-ID Ah in 28:25, DevLoad 10b in 30:29
        f"55 55  70 00 00 00  31 cd ab 54 0*8 {LINE[:48].hex()}",
    ),
    (
        "S2M NDR, in H4",
        S2MNdr(0xABCD, 0, 3, 0, 0xA),
        # 3.3.9: Valid, opcode 0 (Cmp), MetaField 11b, MetaValue, tag in 23:8, LD-ID Ah in 27:24
        "55 55  80 49 00 00  31 cd ab 0a 0*8 0*48",
    ),
]


@pytest.mark.parametrize(
    ("message", "text"), [row[1:] for row in FLITS_68], ids=[row[0] for row in FLITS_68]
)
def test_the_first_68_byte_flit_of_a_message_is_as_the_specification_lays_it_out(
    message: Message, text: str
) -> None:
    flits = pack(message, Format.FLIT_68)
    assert flits[0][:66].hex() == data(text).hex()
    by_hand = [Flit(data(text) + flits[0][66:]), *flits[1:]]
    assert unpack(by_hand, up=not isinstance(message, Request)) == message


#: 4.3.2: a header of 2 bytes with the type, 10b, in 7:6; slot 0 of 14 bytes with its format in
#: 3:0; slots of 16 bytes; fields as in the tables of 3.3.5 to 3.3.10.
FLITS_256: list[tuple[str, Message, str]] = [
    (
        "M2S Req, in H4",
        M2SReq(0x1240, 0xABCD, 0, 0, 3, 0, 1, 0xA),
        # Valid in 4, opcode, snoop, MetaField in 13:12, tag in 31:16, address[51:6] in 77:32,
        # LD-ID in 83:80, TC in 98:97
        "a0 00  14 30 cd ab 49 00 00 00 00 00 0a 00 02 00",
    ),
    (
        "M2S RwD, in H14",
        M2SRwD(0x1240, LINE, tag=0xABCD, ld_id=0xA, tc=1, poison=1),
        # opcode 1 in 8:5, poison in 78
        f"a0 00  3e 30 cd ab 49 00 00 00 00 40 0a 00 02 00  {LINE.hex()}",
    ),
    (
        "S2M NDR, in H7",
        S2MNdr(0xABCD, 0, 3, 0, 0xA, 2),
        # Valid in 4, MetaField in 9:8, tag in 27:12, DevLoad 10b in 29:28, LD-ID in 33:30
        "a0 00  17 d3 bc aa 02 0*9",
    ),
    (
        "S2M DRS, in H15",
        S2MDrs(LINE, 0xABCD, ld_id=0xA, dev_load=2),
        # tag in 27:12, poison in 28, DevLoad in 30:29, LD-ID in 34:31
        f"a0 00  1f d3 bc 4a 05 0*9  {LINE.hex()}",
    ),
]


@pytest.mark.parametrize(
    ("message", "text"), [row[1:] for row in FLITS_256], ids=[row[0] for row in FLITS_256]
)
def test_a_256_byte_flit_begins_as_the_specification_lays_it_out(
    message: Message, text: str
) -> None:
    (flit,) = pack(message, Format.FLIT_256)
    begin = data(text)
    assert flit[: len(begin)].hex() == begin.hex()
    by_hand = Flit(begin + flit[len(begin) :])
    assert unpack([by_hand], up=not isinstance(message, Request)) == message
