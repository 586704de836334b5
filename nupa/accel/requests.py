# SPDX-License-Identifier: BSD-3-Clause
"""Requests and responses of UALink, and their limits.

The numbers are those that the UALink Consortium has published of UALink 200G 1.0.  Ids have 10
bits, addresses 57, tags 11.  A request has 64, 128, 192 or 256 bytes and never crosses a multiple
of 256.  A beat has 64 bytes, which a write may enable one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.memory.access import WORD_BYTES, Atomic

ACCELERATORS = 1 << 10
TAGS = 1 << 11
ADDRESSES = 1 << 57
BEAT_BYTES = 64
BLOCK_BYTES = 256


class RequestError(LocalError):
    """UALink has no such request: nothing was sent."""


class Operation(StrEnum):
    """The operation of a request."""

    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"


class Status(StrEnum):
    """The result in a response.  The names are ours."""

    OKAY = "okay"
    NO_ACCELERATOR = "no such accelerator"  # The switch has no port for the destination.
    NO_ADDRESS = "no such address"  # The destination has no memory there.
    LOST = "its memory is gone"  # Or its buffer is not aligned for an atomic.


@dataclass(frozen=True, slots=True)
class Request:
    """*size* bytes at *address*, both multiples of 64.

    *enables* has a bit for each byte of *data* that a write changes.  An atomic enables its word,
    where *data* has the operand.
    """

    command: Operation
    source: int
    destination: int
    tag: int
    address: int
    size: int
    data: bytes = b""
    enables: int = 0
    atomic: Atomic = Atomic.LOAD
    compare: int = 0

    def __post_init__(self) -> None:
        what = f"{self.command} of {self.size} bytes at {self.address:#x}"
        for name, number, limit in (
            ("source", self.source, ACCELERATORS),
            ("destination", self.destination, ACCELERATORS),
            ("tag", self.tag, TAGS),
            ("address", self.address, ADDRESSES),
        ):
            if not 0 <= number < limit:
                raise RequestError(f"{what}: {name} {number:#x} is not below {limit:#x}")
        if self.address % BEAT_BYTES or self.size not in range(64, 257, BEAT_BYTES):
            raise RequestError(f"{what}: take 64, 128, 192 or 256 bytes at a multiple of 64")
        if self.address // BLOCK_BYTES != (self.address + self.size - 1) // BLOCK_BYTES:
            raise RequestError(f"{what}: it crosses a multiple of 256 bytes: send two requests")
        if len(self.data) != (0 if self.command is Operation.READ else self.size):
            raise RequestError(f"{what}: it has {len(self.data)} bytes of data")
        if not 0 <= self.enables < 1 << len(self.data):
            raise RequestError(f"{what}: it enables bytes that it does not have")
        if self.command is Operation.ATOMIC and self.enables not in _WORDS:
            raise RequestError(f"{what}: an atomic enables the 8 bytes of one aligned word")

    @property
    def block(self) -> int:
        """The number of its 256 bytes at the destination."""
        return self.address // BLOCK_BYTES

    @property
    def word(self) -> int:
        """The address of an atomic's word."""
        return self.address + _WORDS[self.enables]

    @property
    def operand(self) -> int:
        at = _WORDS[self.enables]
        return int.from_bytes(self.data[at : at + WORD_BYTES], "little")

    def runs(self) -> Iterator[tuple[int, int]]:
        """Iterates over runs of adjacent enabled bytes: first and last + 1."""
        at, left = 0, self.enables
        while left:
            skipped = (left & -left).bit_length() - 1
            left >>= skipped
            many = (~left & left + 1).bit_length() - 1
            at += skipped
            yield at, at + many
            left >>= many
            at += many


WORD_ENABLES = (1 << WORD_BYTES) - 1
#: Enables of an atomic -> the place of its word in the beat.
_WORDS = {WORD_ENABLES << at: at for at in range(0, BEAT_BYTES, WORD_BYTES)}


class Response(NamedTuple):
    """An answer to *source*'s request with this *tag*: a read's bytes, an atomic's former word."""

    source: int
    tag: int
    status: Status
    data: bytes = b""
