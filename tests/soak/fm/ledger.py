# SPDX-License-Identifier: BSD-3-Clause
"""The possible contents of each line of memory: versions that were written, and their writers.

A line says of itself which line, version and writer it is.  A version is issued before it is
written and confirmed afterwards.  A read returns a version between the last one confirmed before it
and the last one issued after it.
"""

from __future__ import annotations

import hashlib
import itertools
import struct

LINE = 64
_HEAD = struct.Struct("<QQQ")


class WrongByteError(AssertionError):
    """Memory has bytes that were not written there, or are outdated."""


class Entry:
    """Of a line; it is replaced by another when the memory is cleared."""

    __slots__ = ("confirmed", "issued")

    def __init__(self) -> None:
        self.issued = 0
        self.confirmed = 0


def contents(seed: int, where: int, version: int, writer: int) -> bytes:
    """Returns the bytes of a line; zeros if it was never written."""
    if not version:
        return bytes(LINE)
    head = _HEAD.pack(where, version, writer)
    return (
        head + hashlib.blake2b(head, digest_size=LINE - len(head), key=str(seed).encode()).digest()
    )


class Ledger:
    """Lines are named by numbers that no two of all memories have in common."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._entries: dict[int, Entry] = {}
        self._versions = itertools.count(1)
        self.checked_bytes = 0

    def entry(self, where: int) -> Entry:
        return self._entries.setdefault(where, Entry())

    def is_current(self, where: int, entry: Entry) -> bool:
        """Tells whether the line has not been cleared since."""
        return self._entries.get(where) is entry

    def issue(self, where: int, entry: Entry, writer: int) -> tuple[int, bytes]:
        """Returns a version that is about to be written, and what it says."""
        entry.issued = version = next(self._versions)
        return version, contents(self._seed, where, version, writer)

    def cleared(self, first: int, size: int) -> None:
        """Zeros are in all of these lines."""
        if size // LINE < len(self._entries):
            for where in range(first, first + size, LINE):
                self._entries.pop(where, None)
        else:
            for where in [each for each in self._entries if first <= each < first + size]:
                del self._entries[where]

    def check(self, where: int, found: bytes, low: int, high: int) -> int:
        """Returns its version.  WrongByteError: there is none that it may be."""
        if found == bytes(LINE):
            version = writer = 0
        else:
            line, version, writer = _HEAD.unpack_from(found)
            if line != where:
                raise WrongByteError(f"line {where:#x} has what is of {line:#x}")
        if found != contents(self._seed, where, version, writer):
            raise WrongByteError(f"line {where:#x}: {found.hex()}")
        if not low <= version <= high:
            raise WrongByteError(f"line {where:#x}: version {version}, and not {low} to {high}")
        self.checked_bytes += LINE
        return version
