# SPDX-License-Identifier: BSD-3-Clause
"""PCIe TLPs as bytes that were written by hand from PCIe 6.0 2.2, field by field, read and written
by scapy's layers."""

from __future__ import annotations

from typing import Any

import pytest
from scapy.packet import Packet

from nupa.packet.scapy import tlp as layers
from tests.unit.cxl.vectors import data

# 12:03.4 is 121Ch, 56:07.1 is 5639h: bus in bits 15:8, device in 7:3, function in 2:0 (2.2.4.2).
# 2.2.1.1: fmt and type; T9, TC, T8, attr[2], TH; TD, EP, attr[1:0], AT, length[9:8]; length[7:0].
VECTORS: list[tuple[str, type[Packet], dict[str, Any]]] = [
    (
        """
        00 80 00 02                     # MRd, 3 DW; tag bit 9; 2 DW
        00 00 ab 7c                     # requester, tag 2ABh, byte enables: last 7h, first Ch
        c0 00 00 00
        """,
        layers.MemRead32,
        {"address": 0xC000_0000, "last_be": 7, "first_be": 0xC, "tag": 0xAB, "requester": 0},
    ),
    (
        """
        20 54 10 00                     # MRd, 4 DW; TC 5, attr 101b; 1024 DW is 0
        12 1c 00 ff  00 00 01 00  00 00 00 00
        """,
        layers.MemRead64,
        {"address": 1 << 40, "first_be": 0xF, "last_be": 0xF, "requester": 0x121C},
    ),
    (
        """
        40 00 40 01                     # MWr, 3 DW with data; poisoned
        00 00 00 0f  00 00 00 04  61 62 63 64
        """,
        layers.MemWrite32,
        {"address": 4, "first_be": 0xF, "last_be": 0, "load": b"abcd"},
    ),
    (
        """
        60 00 00 02  00 00 ff 1f  ff ff ff ff  ff ff ff f8
        61 62 63 64 65 66 67 68
        """,
        layers.MemWrite64,
        {"address": (1 << 64) - 8, "last_be": 1, "tag": 255, "load": b"abcdefgh"},
    ),
    (
        """
        04 00 00 01                     # CfgRd0
        12 1c 09 02  56 39 0f fc        # 2.2.7.1: completer, 4 bits of extended register, register
        """,
        layers.TLP,
        {"fmt": 0, "type": 4, "length": 1},
    ),
    (
        """
        45 04 00 01                     # CfgWr1; attr[2]
        00 00 00 0f  56 39 00 04  77 78 79 7a
        """,
        layers.TLP,
        {"fmt": 2, "type": 5, "attr2": 1, "attr": 0, "length": 1},
    ),
    (
        """
        0a 00 00 00                     # Cpl
        56 39 20 04                     # 2.2.9.1: completer, status 001b, byte count 4
        12 1c 00 00                     # requester, tag, lower address
        """,
        layers.Completion,
        {"completer": 0x5639, "status": 1, "byte_count": 4, "requester": 0x121C},
    ),
    (
        """
        4a 00 00 01                     # CplD
        56 39 00 03  12 1c 4d 41  64 61 74 61
        """,
        layers.CompletionData,
        {"byte_count": 3, "lower_address": 0x41, "tag": 77, "status": 0, "load": b"data"},
    ),
    # 2.2.7.3: type 01100b FetchAdd, 01101b Swap, 01110b CAS; the byte enables are reserved.
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


@pytest.mark.parametrize(("text", "layer", "fields"), VECTORS)
def test_the_layers_read_and_write_tlps_of_the_specification(
    text: str, layer: type[Packet], fields: dict[str, Any]
) -> None:
    packet = layers.TLP(data(text))
    found = {name: getattr(packet[layer], name) for name in fields}
    assert found == fields
    packet.raw_packet_cache = packet[layer].raw_packet_cache = None
    assert bytes(packet).hex() == data(text).hex()
