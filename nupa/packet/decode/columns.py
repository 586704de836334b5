# SPDX-License-Identifier: BSD-3-Clause
"""Columns of what C decoded of many packets: a memoryview for each field of a structure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from nupa._engine import ffi
from nupa.packet.pcapng.reader import Batch

_FORMATS: dict[int, str] = {1: "B", 2: "H", 4: "I", 8: "Q"}


def columns_of(struct: str, without: tuple[str, ...] = ()) -> dict[str, tuple[str, int]]:
    """Returns the columns of a C structure: name to (format of its numbers, offset)."""
    return {
        name: (_FORMATS[ffi.sizeof(field.type)], field.offset)
        for name, field in ffi.typeof(f"struct {struct}").fields
        if name not in (*without, "pad")
    }


class Columns:
    """*count* structures in C's memory: `columns.name[7]` is a field of the eighth.

    Columns are memoryviews, without a copy: they can be indexed, sliced, iterated, and given to
    NumPy.
    """

    def __init__(
        self, out: Any, count: int, struct: str, columns: dict[str, tuple[str, int]]
    ) -> None:
        self._out = out
        self._count = count
        self._columns = columns
        self._stride = ffi.sizeof(f"struct {struct}")
        self._bytes = memoryview(ffi.buffer(out, count * self._stride)).cast("B")

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> memoryview:
        columns = self.__dict__.get("_columns", {})
        if name not in columns:
            raise AttributeError(f"{name!r} is not a column: columns are {', '.join(columns)}")
        kind, offset = columns[name]
        size = array(kind).itemsize
        words: memoryview = self._bytes.cast(kind)
        # A field lies at a multiple of its size, and the structure's size is one, too.
        column = words[offset // size :: self._stride // size]
        self.__dict__[name] = column  # __getattr__ is called once for each
        return column

    def where(self, **wanted: int) -> list[int]:
        """Returns the packets whose columns have these values: `where(kind=4, number=18)`."""
        found: Iterable[int] = range(self._count)
        for name, value in wanted.items():
            column = getattr(self, name)
            found = [i for i in found if column[i] == value]
        return list(found)


_BLOCK_COLUMNS = columns_of("nupa_pcapng_record")


def blocks_of(batch: Batch) -> Columns:
    """Returns what the file says of each packet of a batch: struct nupa_pcapng_record."""
    return Columns(batch.records, len(batch), "nupa_pcapng_record", _BLOCK_COLUMNS)
