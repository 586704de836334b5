# SPDX-License-Identifier: BSD-3-Clause
"""Memory of devices, and the parts of it that each device has.

csrc/cxl/poison.h.
"""

from __future__ import annotations

import errno
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import finalize

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.core.buffers import borrow
from nupa.cxl.media.media import MediaError, PlainMedia

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric

LINE_BYTES = 64
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; Python names it from 3.13 on


class Memory(PlainMedia):
    """The bytes of *buffer*, a multiple of 64, and their poisoned lines.  All devices with a part
    of it see the same.  *forget*(offset, size) clears whole pages, if there is a better way than
    writing.  LocalError: not such a buffer."""

    def __init__(
        self,
        buffer: Any,
        start: int = 0,
        size: int | None = None,
        *,
        forget: Callable[[int, int], None] | None = None,
        store: Store | None = None,
        base: int = 0,
    ) -> None:
        super().__init__(buffer, start, size)
        self._forget = forget or super().clear
        #: The store that it is a part of, and the offset there: for windows.
        self.store = store
        self.base = base
        self._kept = borrow(self._buffer, writable=True)
        handle = lib.nupa_cxl_memory_new(self._kept + start, self.size)
        if handle == ffi.NULL:
            raise LocalError(
                f"cannot make memory of {self.size:#x} bytes: {os.strerror(ffi.errno)}", ffi.errno
            )
        #: The C `struct nupa_cxl_memory *`.
        self.handle = ffi.gc(handle, lib.nupa_cxl_memory_free)

    def back(self, offset: int, size: int) -> None:
        """Backs bytes that are about to be used.  FabricError: no memory is left."""

    @classmethod
    def anonymous(cls, size: int) -> Memory:
        """Makes memory of this process, all zeros; unused pages cost nothing."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        buffer = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=flags)
        return cls(buffer, forget=partial(buffer.madvise, mmap.MADV_DONTNEED))

    def clear(self, dpa: int, size: int) -> None:
        """Clears bytes, and the poison of whole lines."""
        self.check(dpa, size)
        first = -(-dpa // LINE_BYTES) * LINE_BYTES
        last = (dpa + size) // LINE_BYTES * LINE_BYTES
        if first < last:
            self.set_poison(first, last - first, poisoned=False)
        if dpa % mmap.PAGESIZE or size % mmap.PAGESIZE:
            super().clear(dpa, size)
        elif size:
            self._forget(dpa, size)

    def set_poison(self, offset: int, size: int = LINE_BYTES, *, poisoned: bool = True) -> None:
        """Poisons or clears whole lines; a poisoned line reads as all ones.  MediaError: not whole
        lines inside."""
        if poisoned and 0 <= offset <= offset + size <= self.size:
            self.back(offset, size)
        if lib.nupa_cxl_memory_set_poison(self.handle, offset, size, poisoned) < 0:
            raise MediaError(f"poison of {size} bytes at {offset:#x}: whole lines of {self.size}")

    def is_poisoned(self, offset: int) -> bool:
        """Tells whether the line is poisoned.  MediaError: outside."""
        answer = lib.nupa_cxl_memory_is_poisoned(self.handle, offset)
        if answer < 0:
            raise MediaError(f"poison at {offset:#x}: the memory has {self.size:#x} bytes")
        return bool(answer)


class Store(Protocol):
    """Memory of several devices: *where* is a fabric, with offsets in its pool, or a file
    descriptor."""

    @property
    def where(self) -> Fabric | int: ...
    def take(self, size: int) -> Memory: ...


class SparseFile(Closing):
    """A Store of this process: a memory file of *size* bytes; unused pages cost nothing.  After
    `close` its memory can be used, but not mapped."""

    def __init__(self, size: int) -> None:
        self._fd = os.memfd_create("nupa-cxl", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self._fd, size)
            flags = mmap.MAP_SHARED | _NO_RESERVE
            self._map = mmap.mmap(self._fd, size, flags=flags)
        except (OSError, OverflowError) as error:
            os.close(self._fd)
            number = (isinstance(error, OSError) and error.errno) or errno.EFBIG
            raise LocalError(
                f"cannot make a file of {size:#x} bytes: {os.strerror(number)}", number
            ) from error
        self._used = 0
        self._closer = finalize(self, os.close, self._fd)

    @property
    def where(self) -> int:
        return self._fd

    def take(self, size: int) -> Memory:
        """Takes the next bytes.  LocalError: no more are left."""
        base, self._used = self._used, self._used + size
        if self._used > len(self._map):
            raise LocalError(f"{size:#x} bytes at {base:#x}: the file has {len(self._map):#x}")

        def forget(offset: int, length: int) -> None:
            self._map.madvise(mmap.MADV_REMOVE, base + offset, length)

        return Memory(self._map, base, size, forget=forget, store=self, base=base)

    def close(self) -> None:
        self._closer()


class Part(NamedTuple):
    """*size* bytes from *dpa* on, which are those of *memory* from *offset* on; *shared* with
    others, so that clearing the device leaves them."""

    dpa: int
    size: int
    memory: Memory
    offset: int = 0
    shared: bool = False

    @property
    def end(self) -> int:
        return self.dpa + self.size


_BY_DPA: Callable[[Part], int] = attrgetter("dpa")


class PartedMedia:
    """The addresses 0 to *size* of a device, with memory in *parts*: a Media.  Other addresses
    cannot be accessed."""

    def __init__(self, size: int, parts: Iterable[Part] = ()) -> None:
        self.size = size
        self.parts: tuple[Part, ...] = ()
        self._changed: list[Callable[[], None]] = []
        self.set_parts(parts)

    @classmethod
    def of(cls, memory: Memory, size: int) -> PartedMedia:
        """Makes media of the first *size* bytes of *memory*."""
        return cls(size, [Part(0, size, memory)] if size else ())

    def set_parts(self, parts: Iterable[Part]) -> None:
        """Replaces the parts; once this returns, the old ones cannot be reached.  MediaError: one
        is outside, or overlaps another; nothing has changed."""
        now, end = tuple(sorted(parts, key=_BY_DPA)), 0
        for part in now:
            inside = 0 <= part.offset <= part.offset + part.size <= part.memory.size
            if part.dpa < end or part.end > self.size or not inside:
                raise MediaError(f"{part.size:#x} bytes at {part.dpa:#x}: outside or over another")
            end = part.end
        if now != self.parts:
            self.parts = now
            for handler in self._changed:
                handler()

    def on_change(self, handler: Callable[[], None]) -> None:
        """Calls *handler* after the parts have changed."""
        self._changed.append(handler)

    def check(self, dpa: int, size: int) -> None:
        """Raises MediaError if a byte is in no part."""
        for _ in self.pieces(dpa, size):
            pass

    def read(self, dpa: int, size: int) -> bytes:
        pieces = tuple(self.pieces(dpa, size))
        return b"".join(memory.read(offset, length) for memory, offset, length in pieces)

    def write(self, dpa: int, data: bytes) -> None:
        at = 0
        for memory, offset, length in tuple(self.pieces(dpa, len(data))):
            memory.write(offset, data[at : at + length])
            at += length

    def clear(self, dpa: int, size: int) -> None:
        """Clears bytes, except of shared parts."""
        if not 0 <= dpa <= dpa + size <= self.size:
            raise MediaError(f"{size} bytes at {dpa:#x}: the memory has {self.size:#x}")
        for part in self.parts:
            first, end = max(dpa, part.dpa), min(dpa + size, part.end)
            if first < end and not part.shared:
                part.memory.clear(part.offset + first - part.dpa, end - first)

    def set_poison(self, dpa: int, poisoned: bool) -> None:
        """Poisons or clears the line at *dpa*.  MediaError: there is none."""
        for memory, offset, length in self.pieces(dpa, LINE_BYTES):
            memory.set_poison(offset, length, poisoned=poisoned)

    def is_poisoned(self, dpa: int) -> bool:
        """Tells whether the line is poisoned; False where there is no part."""
        try:
            return any(memory.is_poisoned(offset) for memory, offset, _ in self.pieces(dpa, 1))
        except MediaError:
            return False

    def pieces(self, dpa: int, size: int) -> Iterator[tuple[Memory, int, int]]:
        """Yields memory, offset and length of these bytes, in order.  MediaError: some are in no
        part."""
        end = dpa + size
        while dpa < end:
            index = bisect_right(self.parts, dpa, key=_BY_DPA) - 1
            part = self.parts[index] if index >= 0 else None
            if part is None or dpa >= part.end:
                raise MediaError(f"{dpa:#x}: the device has no memory there")
            length = min(end, part.end) - dpa
            yield part.memory, part.offset + dpa - part.dpa, length
            dpa += length
