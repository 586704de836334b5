# SPDX-License-Identifier: BSD-3-Clause
"""Coherent device attribute tables: memory ranges, latencies and bandwidths (CDAT 1.04)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, IntFlag
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.cxl.function.doe import Protocol

#: CXL 3.1 8.1.11.1: the consortium's id and its type of table access.
TABLE_ACCESS = Protocol(0x1E98, 2)
REVISION = 2
LAST_ENTRY = 0xFFFF
UPSTREAM_PORT = 0x0100
ANY_PORT = 0xFFFF
_HEADER = struct.Struct("<IBB6xI")
_STRUCTURE = struct.Struct("<BxH")
_VALUE_MAX = 0xFFFE


class CdatError(LocalError):
    """Bytes that are not a table."""


class DataType(IntEnum):
    """The type of a value: picoseconds, or MB/s, in its base unit."""

    ACCESS_LATENCY = 0
    READ_LATENCY = 1
    WRITE_LATENCY = 2
    ACCESS_BANDWIDTH = 3
    READ_BANDWIDTH = 4
    WRITE_BANDWIDTH = 5


class Flags(IntFlag):
    """Flags of a DSMAS."""

    NONE = 0
    NONVOLATILE = 1 << 2
    SHAREABLE = 1 << 3
    HARDWARE_COHERENT = 1 << 4
    DYNAMIC = 1 << 5
    READ_ONLY = 1 << 6


class Dsmas(NamedTuple):
    """A range of the device's memory; other structures refer to its *handle*."""

    handle: int
    flags: int
    dpa: int
    size: int


class Dslbis(NamedTuple):
    """A latency or bandwidth of a range: value times *base*."""

    handle: int
    flags: int
    data: int
    base: int
    entries: tuple[int, int, int]


class Dsmscis(NamedTuple):
    """A cache in front of a range."""

    handle: int
    size: int
    attributes: int


class Dsemts(NamedTuple):
    """The UEFI memory type of a range: 0 conventional, 1 for a special purpose, 2 reserved."""

    handle: int
    efi_type: int
    offset: int
    size: int


class SslbisEntry(NamedTuple):
    x: int
    y: int
    value: int


class Sslbis(NamedTuple):
    """A latency or bandwidth between ports of a switch."""

    data: int
    base: int
    pairs: tuple[SslbisEntry, ...]


#: The number of each (type 3, DSIS, is of memory on the initiator's side: none here).
TYPES: dict[type, int] = {Dsmas: 0, Dslbis: 1, Dsmscis: 2, Dsemts: 4, Sslbis: 5}

Structure = Dsmas | Dslbis | Dsmscis | Dsemts | Sslbis

_DSMAS = struct.Struct("<BB2xQQ")
_DSLBIS = struct.Struct("<BBBxQHHH2x")
_DSMSCIS = struct.Struct("<B3xQI")
_DSEMTS = struct.Struct("<BB2xQQ")
_SSLBIS = struct.Struct("<B3xQ")
_PAIR = struct.Struct("<HHH2x")


def pack_structure(item: Structure) -> bytes:
    """Encodes a structure, with type and length."""
    if isinstance(item, Dslbis):
        body = _DSLBIS.pack(*item[:4], *item.entries)
    elif isinstance(item, Sslbis):
        pairs = b"".join(_PAIR.pack(*pair) for pair in item.pairs)
        body = _SSLBIS.pack(item.data, item.base) + pairs
    elif isinstance(item, Dsmas):
        body = _DSMAS.pack(*item)
    elif isinstance(item, Dsmscis):
        body = _DSMSCIS.pack(*item)
    else:
        body = _DSEMTS.pack(*item)
    return _STRUCTURE.pack(TYPES[type(item)], _STRUCTURE.size + len(body)) + body


def _parse_structure(number: int, body: bytes) -> Structure:
    if number == TYPES[Dsmas]:
        return Dsmas(*_DSMAS.unpack(body))
    if number == TYPES[Dslbis]:
        handle, flags, data, base, *values = _DSLBIS.unpack(body)
        return Dslbis(handle, flags, data, base, (values[0], values[1], values[2]))
    if number == TYPES[Dsmscis]:
        return Dsmscis(*_DSMSCIS.unpack(body))
    if number == TYPES[Dsemts]:
        return Dsemts(*_DSEMTS.unpack(body))
    if number == TYPES[Sslbis]:
        data, base = _SSLBIS.unpack_from(body)
        pairs = tuple(SslbisEntry(*pair) for pair in _PAIR.iter_unpack(body[_SSLBIS.size :]))
        return Sslbis(data, base, pairs)
    raise CdatError(f"a structure of type {number}: none is known")


class Cdat:
    """A table of structures; *sequence* grows when it changes."""

    def __init__(self, structures: Iterable[Structure], sequence: int = 0) -> None:
        self.structures = tuple(structures)
        self.sequence = sequence
        parts = [pack_structure(item) for item in self.structures]
        size = _HEADER.size + sum(map(len, parts))
        head = _HEADER.pack(size, REVISION, 0, sequence)
        checksum = -(sum(head) + sum(map(sum, parts))) & 0xFF
        self._entries = [_HEADER.pack(size, REVISION, checksum, sequence), *parts]

    def __bytes__(self) -> bytes:
        return b"".join(self._entries)

    def answer(self, payload: bytes) -> bytes | None:
        """Answers Read Entry (8.1.11.1); None: another request, or no such entry."""
        if len(payload) != 4:
            return None
        code, table = payload[:2]
        handle = int.from_bytes(payload[2:], "little")
        if code or table or handle >= len(self._entries):
            return None
        following = handle + 1 if handle + 1 < len(self._entries) else LAST_ENTRY
        return struct.pack("<BBH", 0, 0, following) + self._entries[handle]


def parse(image: bytes) -> Cdat:
    """Decodes a table.  CdatError: a length, the checksum or a structure is wrong."""
    if len(image) < _HEADER.size:
        raise CdatError(f"{len(image)} bytes hold no header")
    size, revision, _, sequence = _HEADER.unpack_from(image)
    if size != len(image) or revision > REVISION:
        raise CdatError(f"revision {revision} and {size} bytes: there are {len(image)}")
    if sum(image) & 0xFF:
        raise CdatError(f"the sum of its bytes is {sum(image) & 0xFF:#x}, not 0")
    return Cdat(_structures(image), sequence)


def _structures(image: bytes) -> Iterator[Structure]:
    at = _HEADER.size
    while at < len(image):
        if at + _STRUCTURE.size > len(image):
            raise CdatError(f"half a structure at {at}")
        number, size = _STRUCTURE.unpack_from(image, at)
        if size < _STRUCTURE.size or at + size > len(image):
            raise CdatError(f"a structure of {size} bytes at {at}")
        try:
            yield _parse_structure(number, image[at + _STRUCTURE.size : at + size])
        except struct.error as error:
            raise CdatError(f"a structure of {size} bytes at {at}: {error}") from error
        at += size


def scaled(values: Sequence[int], *, up: bool) -> tuple[int, list[int]]:
    """Returns the base unit, a power of ten, and each value in it, rounded *up* or down.  No entry
    is above 0xFFFE (0xFFFF is "not reachable"), and none is 0 unless its value is."""
    base = 1
    while max(values) > base * _VALUE_MAX:
        base *= 10
    return base, [-(-value // base) if up else max(value // base, value > 0) for value in values]
