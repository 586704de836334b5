# SPDX-License-Identifier: BSD-3-Clause
"""Regions of dynamic capacity and extents of them, as ranges (CXL 3.1 9.13.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from nupa.base.errors import LocalError
from nupa.cxl.function.cci import Code, CommandError, require

REGIONS_MAX = 8
DECODE_BYTES = 256 << 20
BLOCK_BYTES_MIN = 64
NO_TAG = UUID(int=0)


class DcdError(LocalError):
    """Regions that are not possible."""


class Extent(NamedTuple):
    """An extent; *sequence* counts the extents of a shared tag from 1, and is 0 if it is not
    shared."""

    dpa: int
    size: int
    tag: UUID = NO_TAG
    sequence: int = 0

    @property
    def end(self) -> int:
        return self.dpa + self.size

    def has(self, dpa: int, size: int) -> bool:
        """Tells whether all of these bytes are inside."""
        return self.dpa <= dpa and dpa + size <= self.end


@dataclass(frozen=True, slots=True)
class DcRegion:
    """A region of dynamic capacity: *size* bytes from *dpa* on, in blocks.  Several hosts may hold
    an extent only of a *shareable* region; *sanitize* clears extents that the last host has
    released."""

    dpa: int
    size: int
    block_bytes: int = 2 << 20
    shareable: bool = False
    sanitize: bool = False
    dsmad_handle: int = 0

    @property
    def end(self) -> int:
        return self.dpa + self.size

    def check(self) -> None:
        """Raises DcdError for a wrong alignment or size (8.2.9.9.9.1)."""
        block = self.block_bytes
        if block < BLOCK_BYTES_MIN or block & block - 1:
            raise DcdError(
                f"blocks of {block:#x} bytes: take {BLOCK_BYTES_MIN} bytes times a power of two"
            )
        if self.dpa % DECODE_BYTES or self.size <= 0 or self.size % block or self.dpa < 0:
            raise DcdError(
                f"a region of {self.size:#x} bytes at {self.dpa:#x}, in blocks of {block:#x}: "
                "begin at a multiple of 256 MiB, with whole blocks"
            )


def check_apart(extents: Sequence[tuple[int, int]]) -> None:
    """Raises CommandError if two extents overlap."""
    end = 0
    for dpa, size in sorted(extents):
        require(dpa >= end, Code.INVALID_EXTENT_LIST, f"{dpa:#x} overlaps another extent")
        end = dpa + size


def around(extents: Sequence[Extent], dpa: int, size: int) -> Extent:
    """Returns the extent of these bytes.  CommandError: there is none."""
    for extent in extents:
        if extent.has(dpa, size):
            return extent
    raise CommandError(Code.INVALID_PHYSICAL_ADDRESS, f"{size:#x} bytes at {dpa:#x}")


def without(extents: Sequence[Extent], gone: Sequence[Extent]) -> list[Extent]:
    """Returns *extents* without *gone*; a cut in the middle leaves two parts."""
    left = list(extents)
    for dpa, size, _, _ in gone:
        parts = []
        for extent in left:
            if dpa < extent.end and extent.dpa < dpa + size:
                if extent.dpa < dpa:
                    parts.append(extent._replace(size=dpa - extent.dpa))
                if extent.end > dpa + size:
                    parts.append(extent._replace(dpa=dpa + size, size=extent.end - dpa - size))
            else:
                parts.append(extent)
        left = parts
    return left
