# SPDX-License-Identifier: BSD-3-Clause
"""Computes the two CRCs of an InfiniBand packet: invariant (ICRC) and variant (VCRC).

The ICRC is Ethernet's CRC-32; bits that routers may change count as ones (IBTA 7.8.1; A16.5.1 for
RoCE, A17.3.3 for RoCE v2).  Results are numbers as a big-endian read of the trailing bytes gives
them, as in scapy's roce layer and in Wireshark.
"""

from __future__ import annotations

from zlib import crc32

BTH_BYTES = 12
GRH_BYTES = 40
LRH_BYTES = 8
UDP_BYTES = 8
ICRC_BYTES = 4
VCRC_BYTES = 2

_LNH_GLOBAL = 3  # LRH: a GRH follows
_NO_LRH = crc32(b"\xff" * LRH_BYTES)  # in place of the LRH where a GRH or IP header routes


def _swapped(crc: int) -> int:
    return int.from_bytes(crc.to_bytes(4, "little"), "big")


def _headers(packet: bytes, bytes_needed: int, what: str) -> bytearray:
    if len(packet) < bytes_needed:
        raise ValueError(
            f"{what} needs {bytes_needed} bytes of headers; the packet has {len(packet)}"
        )
    return bytearray(packet[:bytes_needed])


def _masked_route(header: bytearray) -> None:
    """Masks traffic class, flow label and hop limit of IPv6 and GRH."""
    header[0] |= 0x0F
    header[1:4] = b"\xff\xff\xff"
    header[7] = 0xFF


def roce_v2(packet: bytes, udp: int | None = None, version: int | None = None) -> int:
    """Returns the ICRC of *packet*: from its IPv4 or IPv6 header to the byte before the ICRC.

    udp: offset of the UDP header, if it does not follow the IP header.  version: 4 or 6; None: as
    the header says.  ValueError if *packet* is too short or not IP.
    """
    if version is None:
        version = packet[0] >> 4 if packet else 0
    if version not in (4, 6):
        raise ValueError(f"RoCE v2 lies in IPv4 or IPv6; this packet has IP version {version}")
    if udp is None:
        udp = (packet[0] & 0x0F) * 4 if version == 4 else 40
    bth = udp + UDP_BYTES
    head = _headers(packet, bth + BTH_BYTES, "RoCE v2")
    if version == 4:
        head[1] = 0xFF  # type of service
        head[8] = 0xFF  # time to live
        head[10:12] = b"\xff\xff"  # header checksum
    else:
        _masked_route(head)
    head[udp + 6 : udp + 8] = b"\xff\xff"  # UDP checksum
    head[bth + 4] = 0xFF  # FECN, BECN, reserved
    return _swapped(crc32(packet[len(head) :], crc32(head, _NO_LRH)))


def roce_v1(packet: bytes) -> int:
    """Returns the ICRC of *packet*: from its GRH on.  ValueError if too short."""
    head = _headers(packet, GRH_BYTES + BTH_BYTES, "a global route header")
    _masked_route(head)
    head[GRH_BYTES + 4] = 0xFF
    return _swapped(crc32(packet[len(head) :], crc32(head, _NO_LRH)))


def native(packet: bytes) -> int:
    """Returns the ICRC of *packet*: from its LRH on.  ValueError if too short."""
    if len(packet) > 1 and packet[1] & 0x03 == _LNH_GLOBAL:
        return roce_v1(packet[LRH_BYTES:])
    return local(packet)


def local(packet: bytes) -> int:
    """Returns the ICRC of a packet that has no GRH: from its LRH on."""
    head = _headers(packet, LRH_BYTES + BTH_BYTES, "a local route header")
    head[0] |= 0xF0  # virtual lane
    head[LRH_BYTES + 4] = 0xFF
    return _swapped(crc32(packet[len(head) :], crc32(head)))


def vcrc(packet: bytes) -> int:
    """Returns the VCRC of *packet*: from its LRH to the last byte of its ICRC.

    IBTA 7.8.2: polynomial 0x100B, from all ones, least significant bit first, complemented.
    """
    crc = 0xFFFF
    for byte in packet:
        crc = (crc >> 8) ^ _VCRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFF
    return (crc & 0xFF) << 8 | crc >> 8


def _vcrc_entry(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0xD008 if crc & 1 else 0)
    return crc


_VCRC_TABLE = tuple(_vcrc_entry(byte) for byte in range(256))
