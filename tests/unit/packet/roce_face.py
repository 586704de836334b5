# SPDX-License-Identifier: BSD-3-Clause
"""csrc/packet's functions for single packets, through a library that is built for tests."""

from __future__ import annotations

import ctypes
import os
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

FACES = Path(os.environ.get("NUPA_TEST_FACES", Path(__file__).parents[3] / "build/dev/tests"))
HEADERS_MAX_BYTES = 64


class Packet(ctypes.Structure):
    """struct nupa_roce_packet."""

    _fields_ = (
        ("source", ctypes.c_uint8 * 16),
        ("destination", ctypes.c_uint8 * 16),
        ("traffic_class", ctypes.c_uint8),
        ("hop_limit", ctypes.c_uint8),
        ("opcode", ctypes.c_uint8),
        ("version", ctypes.c_uint8),
        ("pad_bytes", ctypes.c_uint8),
        ("syndrome", ctypes.c_uint8),
        ("flush", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("frame_bytes", ctypes.c_uint32),
        ("payload_bytes", ctypes.c_uint32),
        ("pkey", ctypes.c_uint32),
        ("dqpn", ctypes.c_uint32),
        ("psn", ctypes.c_uint32),
        ("rkey", ctypes.c_uint32),
        ("dma_bytes", ctypes.c_uint32),
        ("imm", ctypes.c_uint32),
        ("qkey", ctypes.c_uint32),
        ("source_qpn", ctypes.c_uint32),
        ("srqn", ctypes.c_uint32),
        ("msn", ctypes.c_uint32),
        ("va", ctypes.c_uint64),
        ("swap", ctypes.c_uint64),
        ("compare", ctypes.c_uint64),
        ("original", ctypes.c_uint64),
    )


SOLICITED, ICRC_RIGHT, MIGREQ, FECN, BECN, ACK_REQUEST = (1 << bit for bit in range(6))

face = ctypes.CDLL(str(FACES / "libpacket_face.so"))
for crc in (face.face_crc, face.face_crc_by_tables):
    crc.argtypes = [ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t]
    crc.restype = ctypes.c_uint32
_PATH = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint16]
face.face_icrc.argtypes = [*_PATH, ctypes.c_uint16, ctypes.c_char_p, ctypes.c_uint32]
face.face_icrc.restype = ctypes.c_uint32
face.face_icrc_find.argtypes = [*_PATH, ctypes.c_char_p, ctypes.c_uint32]


def gid(address: str) -> bytes:
    """Returns the GID of an IP address: 16 bytes, of IPv4 the mapped one."""
    ip = ip_address(address)
    return (IPv6Address(f"::ffff:{ip}") if isinstance(ip, IPv4Address) else ip).packed


def icrc(src: str, dst: str, port: int, identification: int, packet: bytes) -> bytes:
    """Returns the ICRC of *packet*, from the BTH to the padding, as the wire has it."""
    found = face.face_icrc(gid(src), gid(dst), port, identification, packet, len(packet))
    return int(found).to_bytes(4, "little")


def identification(src: str, dst: str, port: int, packet: bytes) -> int:
    """Returns the one for which the ICRC at the end of *packet* is right; -1: none."""
    return int(face.face_icrc_find(gid(src), gid(dst), port, packet, len(packet)))


def read(packet: bytes) -> tuple[Packet, bytes] | None:
    """Returns the fields and the payload of *packet*, from the BTH to the ICRC; None: refused."""
    out, at = Packet(), ctypes.c_uint32()
    # A buffer of its own, of exactly this size.
    data = (ctypes.c_char * max(len(packet), 1)).from_buffer_copy(packet or b"\0")
    if not face.face_read(data, len(packet), ctypes.byref(out), ctypes.byref(at)):
        return None
    return out, packet[at.value : at.value + out.payload_bytes]


def write(packet: Packet) -> bytes:
    """Returns BTH and extended headers."""
    headers = ctypes.create_string_buffer(HEADERS_MAX_BYTES)
    used = face.face_write(headers, ctypes.byref(packet))
    return headers.raw[:used]


def valid(packet: Packet) -> bool:
    """Returns whether a requester or responder may send it."""
    return bool(face.face_valid(ctypes.byref(packet)))
