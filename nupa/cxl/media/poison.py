# SPDX-License-Identifier: BSD-3-Clause
"""Poisoned lines of a device's memory, and their sources (CXL 3.1 8.2.9.9.4)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from nupa.cxl.function.cci import Code, require
from nupa.cxl.media.parts import LINE_BYTES


class PoisonSource(IntEnum):
    """The source of a record's error (8.2.9.9.4.1)."""

    UNKNOWN = 0
    EXTERNAL = 1
    INTERNAL = 2
    INJECTED = 3
    VENDOR = 7


def _ignore(_dpa: int, _poisoned: bool) -> None:
    """Does nothing: no data path mirrors the list."""


class PoisonRecord(NamedTuple):
    """*lines* of 64 bytes from *dpa* on, with the same source."""

    dpa: int
    lines: int
    source: PoisonSource


class PoisonList:
    """Poisoned lines of *memory_bytes*.  The list has room for *limit* lines.  A further line is
    poisoned but not listed; `overflow_ns` is the time of the first one.  At most *inject_limit*
    lines are injected."""

    def __init__(self, memory_bytes: int, *, limit: int = 256, inject_limit: int = 16) -> None:
        if memory_bytes % LINE_BYTES or not 0 < limit < 1 << 24 or not 0 < inject_limit < 1 << 16:
            raise ValueError(f"{memory_bytes} bytes, {limit} lines, {inject_limit} injected")
        self.memory_bytes = memory_bytes
        self.limit = limit
        self.inject_limit = inject_limit
        self.overflow_ns: int | None = None
        #: Grows with each change, so that a reader of the list in parts notices.
        self.generation = 0
        self._poisoned: dict[int, PoisonSource] = {}
        self._listed: list[int] = []
        self._injected = 0
        self._put: Callable[[int, bool], None] = _ignore
        self._holds: Callable[[int], bool] | None = None

    def mirror(self, put: Callable[[int, bool], None], holds: Callable[[int], bool]) -> None:
        """Mirrors the list in the data path: *put*(dpa, whether) is called for each line that
        changes, and for the present ones.  A line for which *holds*(dpa) is false, as a host has
        written it, is removed here, too."""
        self._put, self._holds = put, holds
        for dpa in self._poisoned:
            put(dpa, True)

    def _forget_written(self) -> None:
        if self._holds is not None:
            for dpa in [dpa for dpa in self._poisoned if not self._holds(dpa)]:
                self._drop(dpa)

    def __contains__(self, dpa: object) -> bool:
        self._forget_written()
        return isinstance(dpa, int) and dpa - dpa % LINE_BYTES in self._poisoned

    def __len__(self) -> int:
        """Returns the number of listed lines."""
        self._forget_written()
        return len(self._listed)

    def check(self, dpa: int, size: int = LINE_BYTES) -> None:
        """Raises CommandError unless *size* bytes from *dpa* on are lines of this memory."""
        require(dpa % LINE_BYTES == 0 and size % LINE_BYTES == 0 and size > 0, why=f"{dpa:#x}")
        inside = dpa + size <= self.memory_bytes
        require(inside, Code.INVALID_PHYSICAL_ADDRESS, f"{dpa:#x} and {size:#x} bytes")

    def add(self, dpa: int, source: PoisonSource, now_ns: int = 0) -> bool:
        """Poisons the line at *dpa*; returns whether it is listed.  A poisoned line keeps its
        source.  CommandError: no such line, or too many are injected."""
        self.check(dpa)
        self._forget_written()
        if dpa not in self._poisoned:
            if source is PoisonSource.INJECTED:
                full = self._injected >= self.inject_limit or len(self._listed) >= self.limit
                require(not full, Code.INJECT_POISON_LIMIT)
                self._injected += 1
            self._poisoned[dpa] = source
            self.generation += 1
            self._put(dpa, True)
            self._list(dpa, now_ns)
        return dpa in self._listed

    def _list(self, dpa: int, now_ns: int) -> None:
        if len(self._listed) < self.limit:
            insort(self._listed, dpa)
        elif self.overflow_ns is None:
            self.overflow_ns = now_ns

    def remove(self, dpa: int) -> bool:
        """Clears the line at *dpa*; returns whether it was poisoned.

        CommandError: no such line."""
        self.check(dpa)
        self._forget_written()
        if dpa not in self._poisoned:
            return False
        self._put(dpa, False)
        self._drop(dpa)
        return True

    def _drop(self, dpa: int) -> None:
        self._injected -= self._poisoned.pop(dpa) is PoisonSource.INJECTED
        self.generation += 1
        index = bisect_left(self._listed, dpa)
        if self._listed[index : index + 1] == [dpa]:
            del self._listed[index]

    def clear(self) -> None:
        """Clears all lines, as the memory was overwritten."""
        for dpa in self._poisoned:
            self._put(dpa, False)
        self._poisoned.clear()
        self._listed.clear()
        self._injected = 0
        self.overflow_ns = None
        self.generation += 1

    def rescan(self, dpa: int, size: int, now_ns: int = 0) -> list[PoisonRecord]:
        """Lists the poisoned lines of *size* bytes from *dpa* on, while there is room; the overflow
        ends if all lines are listed (8.2.9.9.4.5).  CommandError as by `check`."""
        self.check(dpa, size)
        self._forget_written()
        for line in sorted(self._poisoned.keys() - set(self._listed)):
            if dpa <= line < dpa + size:
                self._list(line, now_ns)
        if len(self._listed) == len(self._poisoned):
            self.overflow_ns = None
        self.generation += 1
        return self.records(dpa, size)

    def records(self, dpa: int, size: int) -> list[PoisonRecord]:
        """Returns the listed lines of *size* bytes from *dpa* on; neighbours of one source are one
        record.  CommandError as by `check`."""
        self.check(dpa, size)
        self._forget_written()
        found: list[PoisonRecord] = []
        first, last = (bisect_left(self._listed, at) for at in (dpa, dpa + size))
        for line in self._listed[first:last]:
            source = self._poisoned[line]
            if found:
                before = found[-1]
                if (before.dpa + before.lines * LINE_BYTES, before.source) == (line, source):
                    found[-1] = before._replace(lines=before.lines + 1)
                    continue
            found.append(PoisonRecord(line, 1, source))
        return found
