# SPDX-License-Identifier: BSD-3-Clause
"""Blocks and options of pcapng: their numbers, named tuples and encoding.

The format is draft-ietf-opsawg-pcapng, here "the draft".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import IO, NamedTuple, cast

from nupa.base.errors import LocalError
from nupa.packet.tables.record import flags_of

BLOCK_BYTES_MAX = 16 << 20  # as in csrc/packet/pcapng.h
INTERFACES_MAX = 65536

# The draft, 4.1 to 4.6
SECTION, INTERFACE, NAMES, STATISTICS = 0x0A0D0D0A, 1, 4, 5
ENHANCED = 6
PACKETS = (2, 3, ENHANCED)  # 2: obsolete; 3: simple, without a time
MAGIC = 0x1A2B3C4D

# 3.5: options.  Code 1 is a comment in every block.
OPT_COMMENT = 1
OPT_CUSTOM_TEXT, OPT_CUSTOM = 2988, 2989  # a private enterprise number, then its owner's data
SHB_HARDWARE, SHB_OS, SHB_APPLICATION = 2, 3, 4
IF_NAME, IF_DESCRIPTION, IF_MAC, IF_SPEED, IF_TSRESOL = 2, 3, 6, 8, 9
IF_FILTER, IF_OS, IF_TSOFFSET = 11, 12, 14
EPB_FLAGS, EPB_DROPCOUNT, EPB_PACKETID = 2, 4, 5
ISB_START, ISB_END, ISB_RECEIVED, ISB_DROPPED = 2, 3, 4, 5
ISB_FILTERED, ISB_OS_DROPPED, ISB_DELIVERED = 6, 7, 8

INBOUND, OUTBOUND = 1, 2  # EPB_FLAGS, bits 0 and 1
FLAG_CRC_ERROR = 1 << 24


class PcapngError(LocalError):
    """The file is not a capture, is damaged, or ends too early: the message says where."""


class Option(NamedTuple):
    code: int
    value: bytes


class Section(NamedTuple):
    """A Section Header Block: interfaces count from 0 again."""

    big_endian: bool
    version: tuple[int, int]
    options: tuple[Option, ...]


class Interface(NamedTuple):
    """An Interface Description Block.  *snaplen*: bytes, 0 for no limit."""

    number: int
    linktype: int
    snaplen: int
    name: str
    options: tuple[Option, ...]


class Statistics(NamedTuple):
    """An Interface Statistics Block; None for options that it does not have."""

    interface: int
    ts_ns: int
    received: int | None
    dropped: int | None
    options: tuple[Option, ...]


class OtherBlock(NamedTuple):
    """A block of another type, not decoded."""

    type: int
    body: bytes


class Packet(NamedTuple):
    """A packet.

    *flags*: EPB_FLAGS; *packet_id*: EPB_PACKETID, 0 if there is none; *drops*: EPB_DROPCOUNT.
    *options*: all options; empty if there are only these three.
    """

    ts_ns: int
    data: bytes
    interface: Interface
    original_bytes: int
    flags: int
    packet_id: int
    drops: int
    options: tuple[Option, ...]

    @property
    def direction(self) -> int:
        """INBOUND, OUTBOUND or 0, unknown."""
        return self.flags & 3

    @property
    def comments(self) -> list[str]:
        return [o.value.decode(errors="replace") for o in self.options if o.code == OPT_COMMENT]


def opened(file: str | os.PathLike[str] | IO[bytes], mode: str) -> IO[bytes]:
    """Opens *file* if it is a path; returns the stream.  PcapngError if that fails."""
    if not isinstance(file, str | os.PathLike):
        return file
    try:
        return cast(IO[bytes], Path(file).open(mode))
    except OSError as error:
        raise PcapngError(
            f"{file}: cannot be opened: {error.strerror}", error.errno or 0
        ) from error


def options_of(data: bytes, order: str) -> tuple[Option, ...]:
    """Decodes options.  ValueError if one is longer than the rest of *data*."""
    found = []
    at = 0
    while len(data) - at >= 4:
        code, length = struct.unpack_from(order + "HH", data, at)
        if code == 0:
            break
        at += 4
        if length > len(data) - at:
            raise ValueError(f"option {code} has {length} bytes, {len(data) - at} are there")
        found.append(Option(code, data[at : at + length]))
        at += length + (-length % 4)
    return tuple(found)


def commented_flags(data: bytes, order: str) -> int:
    """Returns the flags of nupa.packet.tables.record that comments among a packet's options say."""
    comments = [o.value for o in options_of(data, order) if o.code == OPT_COMMENT]
    return reduce(or_, (flags_of(comment.decode(errors="replace")) for comment in comments), 0)


def encode_options(options: Iterable[Option], order: str = "<") -> bytes:
    """Encodes options, without opt_endofopt."""
    parts = []
    for code, value in options:
        if not 0 < code <= 0xFFFF or len(value) > 0xFFFF:
            raise PcapngError(
                f"option {code} of {len(value)} bytes: codes are 1 to 65535, values 65535 bytes"
            )
        parts += [struct.pack(order + "HH", code, len(value)), value, bytes(-len(value) % 4)]
    return b"".join(parts)


def first(options: Sequence[Option], code: int) -> bytes | None:
    return next((option.value for option in options if option.code == code), None)


def number(
    options: Sequence[Option], code: int, size: int, order: str, signed: bool = False
) -> int | None:
    value = first(options, code)
    if value is None:
        return None
    if len(value) != size:
        raise ValueError(f"option {code} has {len(value)} bytes; its definition says {size}")
    if code == IF_TSRESOL or order == ">":
        return int.from_bytes(value, "big", signed=signed)
    return int.from_bytes(value, "little", signed=signed)


def resolution(code: int | None) -> tuple[int, int]:
    """Converts if_tsresol (the draft, 4.2) to (mul, div): ns = ticks * mul / div."""
    code = 6 if code is None else code
    if code & 0x80:
        power = code & 0x7F
        if power > 63:
            raise ValueError(f"its clock ticks every 2^-{power} s; 2^-63 is the finest")
        return 10**9, 1 << power
    if code > 27:
        raise ValueError(f"its clock ticks every 10^-{code} s; 10^-27 is the finest")
    return (10 ** (9 - code), 1) if code <= 9 else (1, 10 ** (code - 9))
