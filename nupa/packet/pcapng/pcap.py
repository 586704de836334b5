# SPDX-License-Identifier: BSD-3-Clause
"""The header of a classic pcap file (draft-ietf-opsawg-pcap), with times in µs or in ns."""

from __future__ import annotations

import struct
from typing import NamedTuple

HEADER_BYTES, RECORD_BYTES = 24, 16
#: The first four bytes -> byte order, ns of one unit of a timestamp's fraction.
MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
VERSION = (2, 4)
_LINKTYPE_BITS = 0x0000FFFF
_FCS_BITS = 0xF4000000  # the length of an Ethernet FCS, and that it is there
_OTHERS = {
    b"\x34\xcd\xb2\xa1": "a pcap file with Kuznetzov's longer packet headers",
    b"\xa1\xb2\xcd\x34": "a pcap file with Kuznetzov's longer packet headers",
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\x04\x22\x4d\x18": "compressed by lz4",
}


class FileHeader(NamedTuple):
    """*ns_mul*: ns of one unit of a timestamp's fraction; *snaplen*: bytes, 0 for no limit."""

    order: str
    ns_mul: int
    linktype: int
    snaplen: int


def file_header(data: bytes) -> FileHeader:
    """Decodes the first HEADER_BYTES of a file.  ValueError: unknown version or link type."""
    order, ns_mul = MAGICS[data[:4]]
    major, minor, snaplen, network = struct.unpack_from(order + "HH8xII", data, 4)
    if (major, minor) != VERSION:
        raise ValueError(f"the pcap file has version {major}.{minor}; 2.4 is supported")
    if network & ~(_LINKTYPE_BITS | _FCS_BITS):
        raise ValueError(f"the pcap file's link type is {network:#x}; link types have 16 bits")
    return FileHeader(order, ns_mul, network & _LINKTYPE_BITS, snaplen)


def other_kind(begin: bytes) -> str:
    """Names the kind of a file that is neither pcapng nor pcap; empty: unknown."""
    return next((kind for magic, kind in _OTHERS.items() if begin.startswith(magic)), "")
