# SPDX-License-Identifier: BSD-3-Clause
"""The invariant CRC: of other programs' packets, and bit by bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from nupa.packet.scapy import icrc
from nupa.packet.scapy.transport import AETH, BTH, GRH, LRH

# A congestion notification that a ConnectX-4 sent; scapy's tests of contrib/roce have it.
CONNECTX_4 = bytes.fromhex(
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff"
    "40000118000000000000000000000000000000000000000082fd002a"
)
# A SEND of an unreliable connection, likewise.
UC_SEND = bytes.fromhex(
    "248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff"
    "000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3"
)


@pytest.mark.parametrize("frame", [CONNECTX_4, UC_SEND], ids=["ConnectX-4 CNP", "UC SEND"])
def test_packets_of_others_have_the_icrc_that_is_computed(frame: bytes) -> None:
    said = int.from_bytes(frame[-4:], "big")
    packet = Ether(frame)
    assert icrc.roce_v2(frame[14:-4]) == said
    assert packet[BTH].icrc == packet[BTH].computed_icrc() == said
    del packet[BTH].icrc
    assert bytes(packet) == frame


def test_where_udp_begins_may_be_told() -> None:
    packet = IPv6(src="fe80::1", dst="fe80::2") / UDP(chksum=0) / _BTH
    below = bytes(packet)[:-4]
    assert icrc.roce_v2(below) == icrc.roce_v2(below, 40) == icrc.roce_v2(below, 40, 6)


# Bits of the headers that an ICRC does not cover: byte of the packet -> mask (A17.3.3, 7.8.1)
_V4 = {1: 0xFF, 8: 0xFF, 10: 0xFF, 11: 0xFF, 26: 0xFF, 27: 0xFF, 32: 0xFF}
_V6 = {0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF, 46: 0xFF, 47: 0xFF, 52: 0xFF}
_GRH = {0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF, 44: 0xFF}
_LRH = {0: 0xF0, 12: 0xFF}
_BTH = BTH(opcode="RC_ACKNOWLEDGE", dqpn=0x123456, psn=7) / AETH(msn=8)


@pytest.mark.parametrize(
    ("packet", "crc", "variant"),
    [
        (IP(src="10.0.0.1", dst="10.0.0.2") / UDP(chksum=0) / _BTH, icrc.roce_v2, _V4),
        (IPv6(src="fe80::1", dst="fe80::2") / UDP() / _BTH, icrc.roce_v2, _V6),
        (GRH(sgid="fe80::1", dgid="fe80::2") / _BTH, icrc.roce_v1, _GRH),
        (LRH(dlid=1, slid=2) / _BTH, icrc.local, _LRH),
    ],
    ids=["IPv4", "IPv6", "GRH", "LRH"],
)
def test_the_icrc_covers_each_bit_but_those_that_may_change(
    packet: Packet, crc: Callable[[bytes], int], variant: dict[int, int]
) -> None:
    covered = bytes(packet)[: -6 if LRH in packet else -4]
    right = crc(covered)
    for at in range(len(covered)):
        for bit in range(8):
            if at == 0 and bit >= 4 and crc is icrc.roce_v2:
                continue  # the version: another formula
            if at == 0 and bit < 4 and variant is _V4:
                continue  # the header's length: another place of BTH
            changed = bytearray(covered)
            changed[at] ^= 1 << bit
            may_change = bool(variant.get(at, 0) >> bit & 1)
            assert (crc(bytes(changed)) == right) is may_change, (at, bit)


def test_scapys_own_layer_agrees() -> None:
    # In a process of its own: loading contrib/roce takes the port away from our layers.
    program = """
import sys
from scapy.contrib.roce import BTH
from scapy.all import IP, IPv6
for line in sys.stdin:
    frame = bytes.fromhex(line)
    packet = (IP if frame[0] >> 4 == 4 else IPv6)(frame)
    assert type(packet.payload.payload) is BTH
    said = packet.icrc
    del packet.icrc
    assert packet.__class__(bytes(packet)).icrc == said, line
print("agreed")
"""
    packets = [
        network / UDP(chksum=0) / BTH(opcode="RC_SEND_ONLY", dqpn=n, psn=n * 3) / bytes(range(n))
        for n in range(0, 64, 4)
        for network in (IP(dst="10.0.0.2", tos=n), IPv6(dst="fe80::2", fl=n))
    ]
    lines = "".join(bytes(packet).hex() + "\n" for packet in packets)
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=lines,
        check=True,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.stdout == "agreed\n"


@pytest.mark.parametrize("packet", [b"", b"\x00" * 60, b"\x45" * 39, b"\x60" * 59])
def test_what_is_no_packet_is_refused(packet: bytes) -> None:
    with pytest.raises(ValueError, match=r"IP version 0|needs"):
        icrc.roce_v2(packet)


def test_too_few_bytes_of_a_native_packet_are_refused() -> None:
    with pytest.raises(ValueError, match="needs 20 bytes of headers; the packet has 19"):
        icrc.native(bytes(19))
    with pytest.raises(ValueError, match="needs 52 bytes of headers; the packet has 22"):
        icrc.native(b"\0\3" + bytes(28))


def test_the_vcrc_is_a_crc_of_its_polynomial() -> None:
    # A CRC over data and its own complement leaves a constant: 7.8.2, from the definition.
    def shifted(data: bytes) -> int:
        register = 0xFFFF
        for byte in data:
            for bit in range(8):
                top = (register >> 15) ^ (byte >> bit & 1)
                register = (register << 1 & 0xFFFF) ^ (0x100B if top else 0)
        return register

    for data in (b"", b"123456789", bytes(range(40))):
        reflected = int(f"{shifted(data) ^ 0xFFFF:016b}"[::-1], 2)
        assert icrc.vcrc(data) == int.from_bytes(reflected.to_bytes(2, "little"), "big")
