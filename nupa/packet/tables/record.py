# SPDX-License-Identifier: BSD-3-Clause
"""The header of NUPA's link type, with which each record begins.

The format is public and stable; docs/packet-tables.md has it byte by byte.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct
from typing import NamedTuple

from nupa.core.levels import LEVELS as LEVELS
from nupa.core.levels import Level as Level
from nupa.packet.tables.layout import Field, Layout, reserved

# LINKTYPE_USER11 of the 16 for private use (147 to 162).  The first ones and 157 are taken: by
# examples, Apple's PKTAP (149) and radio sniffers (157).  Wireshark has one dissector for each.
LINKTYPE_NUPA = 158
LINKTYPE_ETHERNET = 1

VERSION = 1


class Kind(IntEnum):
    """The kind of data behind the header."""

    PCIE_TLP = 1
    CXL_MEM = 2
    DOORBELL = 3
    WQE = 4
    CQE = 5
    ETHERNET = 6
    CXL_CACHE = 7


class Direction(IntEnum):
    """The direction, seen from the port's host, as in pcapng's Enhanced Packet Block."""

    UNKNOWN = 0
    INBOUND = 1
    OUTBOUND = 2


class Flag(IntFlag):
    """Flags of a record: its place in its transfer, and what happened to it on its way."""

    FIRST = 1 << 0
    LAST = 1 << 1
    RETRY = 1 << 2
    CORRUPT = 1 << 3
    POISON = 1 << 4
    DROPPED = 1 << 5
    DUPLICATE = 1 << 6
    DELAYED = 1 << 7
    INJECTED = 1 << 8
    REPLAYED = 1 << 9


LEVEL_NAMES: dict[int, str] = {level: name for name, level in LEVELS.items()}
KINDS: dict[int, str] = {
    Kind.PCIE_TLP: "PCIe TLP",
    Kind.CXL_MEM: "CXL.mem",
    Kind.DOORBELL: "Doorbell",
    Kind.WQE: "WQE",
    Kind.CQE: "CQE",
    Kind.ETHERNET: "Ethernet",
    Kind.CXL_CACHE: "CXL.cache",
}
DIRECTIONS: dict[int, str] = {
    Direction.UNKNOWN: "unknown",
    Direction.INBOUND: "inbound",
    Direction.OUTBOUND: "outbound",
}
FLAGS = {i: flag.name.lower() for i, flag in enumerate(Flag) if flag.name}
#: Flags in comments of packets whose link type has no place for them.
COMMENTED = ~(Flag.FIRST | Flag.LAST)
_COMMENT_HEAD = "nupa: "

HEADER = Layout(
    "Nupa",
    "nupa",
    "NUPA record",
    "docs/packet.md",
    Field("version", 8, "Version of the format", default=VERSION),
    Field("header_bytes", 8, "Length of the header", default=24),
    Field("level", 8, "Level", LEVEL_NAMES, default=Level.TLP),
    Field("kind", 8, "Kind of the data that follows", KINDS, default=Kind.PCIE_TLP),
    Field("direction", 8, "Direction, seen from the host", DIRECTIONS),
    reserved("reserved", 8),
    Field("flags", 16, "Flags", FLAGS, flags=True),
    Field("transfer", 64, "Transfer, the same at all levels; 0: none", hex=True),
    Field("port", 16, "Port of the fabric, by its index"),
    Field("host", 16, "Host of the fabric, by its index"),
    Field("sequence", 32, "Number of the record in its transfer at this level, from 0"),
)


class Record(NamedTuple):
    """A decoded header, without reserved bytes."""

    version: int
    header_bytes: int
    level: int
    kind: int
    direction: int
    flags: int
    transfer: int
    port: int
    host: int
    sequence: int


_STRUCT = Struct(">5BxHQHHI")
HEADER_BYTES = _STRUCT.size


def pack(
    level: int,
    kind: int,
    direction: int = Direction.UNKNOWN,
    flags: int = 0,
    transfer: int = 0,
    port: int = 0,
    host: int = 0,
    sequence: int = 0,
) -> bytes:
    """Encodes a header of 24 bytes.  struct.error if a value does not fit its field."""
    return _STRUCT.pack(
        VERSION, HEADER_BYTES, level, kind, direction, flags, transfer, port, host, sequence
    )


def unpack(data: bytes | bytearray | memoryview, at: int = 0) -> Record:
    """Decodes the header at byte *at*; the record's data begins at `at + header_bytes`.

    ValueError if there are too few bytes, for another version, or for a wrong length.
    """
    if len(data) - at < HEADER_BYTES:
        raise ValueError(
            f"a NUPA record has {HEADER_BYTES} bytes of header, {max(len(data) - at, 0)} are there"
        )
    record = Record._make(_STRUCT.unpack_from(data, at))
    if record.version != VERSION:
        raise ValueError(f"the NUPA record has version {record.version}; this NUPA reads {VERSION}")
    if not HEADER_BYTES <= record.header_bytes <= len(data) - at:
        raise ValueError(
            f"the NUPA record says that its header has {record.header_bytes} bytes; "
            f"it has {HEADER_BYTES} or more, and {len(data) - at} are there"
        )
    return record


def comment_of(flags: int) -> str:
    """Returns the comment of a packet with these flags; empty for none.

    >>> comment_of(Flag.FIRST), comment_of(Flag.FIRST | Flag.DROPPED | Flag.RETRY)
    ('', 'nupa: retry, dropped')
    """
    names = [flag.name.lower() for flag in Flag if flag.name and flag & flags & COMMENTED]
    return _COMMENT_HEAD + ", ".join(names) if names else ""


def flags_of(comment: str) -> int:
    """Returns the flags that a comment says; 0 for a comment of another program.

    >>> flags_of("nupa: retry, dropped") == Flag.DROPPED | Flag.RETRY, flags_of("retry")
    (True, 0)
    """
    if not comment.startswith(_COMMENT_HEAD):
        return 0
    said = comment.removeprefix(_COMMENT_HEAD).split(", ")
    return sum(flag for flag in Flag if flag.name and flag.name.lower() in said)
