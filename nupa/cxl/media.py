# SPDX-License-Identifier: BSD-3-Clause
"""The bytes of a device's memory, by device physical address.

Knows reads and writes inside; never who reads, nor what is poisoned.
"""

from __future__ import annotations

import mmap
from typing import Protocol

from nupa.fabric.errors import LocalError


class MediaError(LocalError):
    """An access outside of the memory."""


class Media(Protocol):
    """What a device needs of its memory.  Each call raises MediaError outside of *size* bytes."""

    @property
    def size(self) -> int: ...
    def read(self, dpa: int, size: int) -> bytes: ...
    def write(self, dpa: int, data: bytes) -> None: ...
    def clear(self, dpa: int, size: int) -> None: ...
    def check(self, dpa: int, size: int) -> None: ...


class PlainMedia:
    """Bytes of a *view*.

    >>> media = PlainMedia(memoryview(bytearray(128)))
    >>> media.write(64, b"cxl")
    >>> media.read(62, 6)
    b'\\x00\\x00cxl\\x00'
    """

    _STEP = 1 << 20

    def __init__(self, view: memoryview) -> None:
        self._view = view.cast("B")

    @property
    def size(self) -> int:
        return len(self._view)

    def read(self, dpa: int, size: int) -> bytes:
        return bytes(self._view[self._range(dpa, size)])

    def write(self, dpa: int, data: bytes) -> None:
        self._view[self._range(dpa, len(data))] = data

    def clear(self, dpa: int, size: int) -> None:
        """Zeros, without another buffer of *size*; what is zeros is not written, so that pages
        which nobody has used still cost nothing."""
        self._range(dpa, size)
        zeros = bytes(min(size, self._STEP))
        for at in range(dpa, dpa + size, self._STEP):
            part = min(self._STEP, dpa + size - at)
            if self._view[at : at + part].tobytes() != zeros[:part]:
                self._view[at : at + part] = zeros[:part]

    def check(self, dpa: int, size: int) -> None:
        """Whether all of it is there."""
        self._range(dpa, size)

    def _range(self, dpa: int, size: int) -> slice:
        if not 0 <= dpa <= dpa + size <= self.size:
            raise MediaError(f"{size} bytes at {dpa:#x}: there are {self.size:#x}")
        return slice(dpa, dpa + size)


def anonymous(size: int) -> PlainMedia:
    """Memory of this process, which takes room only where it is written."""
    return PlainMedia(memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)))
