# SPDX-License-Identifier: BSD-3-Clause
"""csrc/packet's CRC, ICRC and headers: zlib, scapy and the kernel's rdma_rxe agree with them."""

from __future__ import annotations

import ctypes
import zlib
from pathlib import Path
from random import Random

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet
from scapy.utils import rdpcap

from nupa.packet.scapy import transport
from nupa.packet.scapy.transport import (
    AETH,
    BTH,
    DETH,
    FETH,
    IETH,
    RDETH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    ImmDt,
)
from nupa.packet.tables.opcodes import OPCODES
from nupa.packet.tables.transport import EXTENDED
from tests.unit.packet import roce_face
from tests.unit.packet.roce_face import ACK_REQUEST, BECN, FECN, MIGREQ, SOLICITED, face

DATA = Path(__file__).parents[2] / "data"
CAPTURES = ("rxe_eth0.pcap", "rxe_any.pcap", "rxe_more.pcap")


def test_the_crc_of_all_lengths_and_alignments_is_zlibs() -> None:
    data = Random(7).randbytes(5000)
    buffer = ctypes.create_string_buffer(data)
    start = ctypes.addressof(buffer)
    for length in [*range(601), 1023, 1024, 4095, 4096]:
        for at in range(16):
            wanted = zlib.crc32(data[at : at + length], length)
            assert face.face_crc(length, start + at, length) == wanted, (length, at)
            assert face.face_crc_by_tables(length, start + at, length) == wanted, (length, at)


def test_the_crc_of_pieces_is_that_of_the_whole() -> None:
    random = Random(8)
    data = random.randbytes(4096)
    buffer = ctypes.create_string_buffer(data)
    for _ in range(300):
        at = crc = 0
        while at < len(data):
            length = min(random.choice((1, 4, 13, 16, 40, 300, 700)), len(data) - at)
            crc = face.face_crc(crc, ctypes.addressof(buffer) + at, length)
            at += length
        assert crc == zlib.crc32(data)


def udp_packets(file: str) -> list[tuple[IP | IPv6, bytes]]:
    """Returns the IP layer of each RoCE packet of a capture, and its bytes from the BTH on."""
    return [
        (packet[UDP].underlayer, bytes(packet[UDP])[8 : packet[UDP].len])
        for packet in rdpcap(str(DATA / file))
        if UDP in packet and packet[UDP].dport == 4791
    ]


@pytest.mark.parametrize("file", CAPTURES)
def test_packets_of_rdma_rxe_are_read_and_written_again(file: str) -> None:
    packets = udp_packets(file)
    assert len(packets) > 40
    for ip, data in packets:
        found = roce_face.read(data)
        assert found
        headers, payload = found
        assert roce_face.valid(headers)
        again = roce_face.write(headers) + payload + bytes(headers.pad_bytes)
        assert again == data[:-4]
        number = ip.id if ip.version == 4 else 0
        port = ip[UDP].sport
        assert roce_face.icrc(ip.src, ip.dst, port, number, again) == data[-4:]
        assert roce_face.identification(ip.src, ip.dst, port, data) == number
        assert roce_face.identification(ip.src, ip.dst, port ^ 1, data) == -1


def any_packet(code: int, random: Random) -> BTH:
    """Returns a packet of this opcode with random fields."""
    packet = BTH(
        opcode=code,
        solicited=random.getrandbits(1),
        migreq=random.getrandbits(1),
        pkey=random.getrandbits(16),
        fecn=random.getrandbits(1),
        becn=random.getrandbits(1),
        dqpn=2 + random.randrange(0xFFFFFD),
        ackreq=random.getrandbits(1),
        psn=random.getrandbits(24),
    )
    for name in OPCODES[code].headers:
        fields = [each for each in EXTENDED[name].fields if not each.name.startswith("res")]
        layer = getattr(transport, name)
        packet /= layer(**{each.name: random.getrandbits(each.bits) for each in fields})
    if OPCODES[code].payload:
        packet /= random.randbytes(random.randrange(40))
    return packet


@pytest.mark.parametrize("code", sorted(OPCODES))
def test_packets_of_all_services_are_read_as_scapy_dissects_them(code: int) -> None:
    random = Random(code)
    for below in (IP(dst="10.0.0.2"), IPv6(dst="fe80::2")) * 5:
        frame = below / UDP(chksum=0) / any_packet(code, random)
        data = bytes(frame[UDP])[8:]
        found = roce_face.read(data)
        assert found
        headers, payload = found
        agree(type(frame)(bytes(frame))[BTH], headers)
        assert roce_face.valid(headers)
        assert roce_face.write(headers) + payload + bytes(headers.pad_bytes) == data[:-4]


#: A field of a scapy layer -> that of struct nupa_roce_packet.
FIELDS = {
    BTH: {"opcode": "opcode", "version": "version", "padcount": "pad_bytes", "pkey": "pkey"}
    | {"dqpn": "dqpn", "psn": "psn"},
    RDETH: {"eecnxt": "srqn"},
    XRCETH: {"srqn": "srqn"},
    DETH: {"qkey": "qkey", "srcqp": "source_qpn"},
    RETH: {"va": "va", "rkey": "rkey", "dmalen": "dma_bytes"},
    AtomicETH: {"va": "va", "rkey": "rkey", "swap": "swap", "compare": "compare"},
    AETH: {"syndrome": "syndrome", "msn": "msn"},
    AtomicAckETH: {"orig": "original"},
    ImmDt: {"data": "imm"},
    IETH: {"rkey": "rkey"},
}


def agree(bth: Packet, headers: roce_face.Packet) -> None:
    """Asserts that scapy found the same in the packet."""
    for layer, fields in FIELDS.items():
        for theirs, ours in fields.items():
            if layer in bth:
                assert getattr(bth[layer], theirs) == getattr(headers, ours), (theirs, bth)
    flags = {
        "solicited": SOLICITED,
        "migreq": MIGREQ,
        "fecn": FECN,
        "becn": BECN,
        "ackreq": ACK_REQUEST,
    }
    for name, flag in flags.items():
        assert bool(getattr(bth, name)) is bool(headers.flags & flag)
    if FETH in bth:
        assert headers.flush == bth[FETH].selectivity << 4 | bth[FETH].placement


@pytest.mark.parametrize("code", sorted(OPCODES))
def test_a_header_that_is_cut_off_is_refused(code: int) -> None:
    whole = bytes([code]) + bytes(75)
    least = 12 + sum(EXTENDED[name].bytes for name in OPCODES[code].headers) + 4
    for length in range(least):
        assert roce_face.read(whole[:length]) is None
    found = roce_face.read(whole[:least])
    assert found
    assert found[1] == b""
    for pad in (1, 2, 3):
        padded = bytes([code, pad << 4]) + bytes(74)
        assert roce_face.read(padded[: least + pad - 1]) is None
        found = roce_face.read(padded[: least + pad])
        assert found
        assert found[0].pad_bytes == pad
        assert found[0].payload_bytes == 0


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, True),
        ({"version": 1}, False),
        ({"opcode": 0x1F}, False),
        ({"payload_bytes": 5}, False),
        ({"payload_bytes": 5, "pad_bytes": 3}, True),
        ({"opcode": 0x11, "payload_bytes": 0}, True),
        ({"opcode": 0x11, "payload_bytes": 4}, False),
        ({"opcode": 0x11, "payload_bytes": 1, "pad_bytes": 3}, False),
        ({"dqpn": 0}, False),
        ({"dqpn": 1}, False),
        ({"dqpn": 0xFFFFFF}, False),
        ({"dqpn": 0, "opcode": 0x64}, False),
        ({"dqpn": 1, "opcode": 0x64}, True),
        ({"dqpn": 0xFFFFFF, "opcode": 0x64}, True),
    ],
)
def test_only_packets_that_a_queue_pair_may_send_are_valid(
    changes: dict[str, int], wanted: bool
) -> None:
    packet = roce_face.Packet(opcode=4, dqpn=0x123456, payload_bytes=8)
    for name, value in changes.items():
        setattr(packet, name, value)
    assert roce_face.valid(packet) is wanted
