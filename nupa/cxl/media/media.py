# SPDX-License-Identifier: BSD-3-Clause
"""The bytes of a device's memory, by device physical address."""

from __future__ import annotations

from typing import Any, Protocol

from nupa.base.errors import LocalError


class MediaError(LocalError):
    """An access outside the memory."""


class Media(Protocol):
    """The interface of a device's memory.  Each call raises MediaError outside *size* bytes."""

    @property
    def size(self) -> int: ...
    def read(self, dpa: int, size: int) -> bytes: ...
    def write(self, dpa: int, data: bytes) -> None: ...
    def clear(self, dpa: int, size: int) -> None: ...
    def check(self, dpa: int, size: int) -> None: ...


class PlainMedia:
    """*size* bytes of a writable *buffer*, from *start* on (None: to its end).

    >>> media = PlainMedia(bytearray(128))
    >>> media.write(64, b"cxl")
    >>> media.read(62, 6)
    b'\\x00\\x00cxl\\x00'
    """

    _STEP = 1 << 20

    def __init__(self, buffer: Any, start: int = 0, size: int | None = None) -> None:
        with memoryview(buffer) as view:
            # A memoryview in a loop that the collector breaks crashes older Pythons (gh-77894):
            # keep the object behind it, and make views when they are used.
            self._buffer = view.obj if isinstance(buffer, memoryview) else buffer
            self._start = start
            self._bytes = view.nbytes - start if size is None else size

    @property
    def _view(self) -> memoryview:
        return memoryview(self._buffer).cast("B")[self._start : self._start + self._bytes]

    @property
    def size(self) -> int:
        return self._bytes

    def read(self, dpa: int, size: int) -> bytes:
        return bytes(self._view[self._range(dpa, size)])

    def write(self, dpa: int, data: bytes) -> None:
        self._view[self._range(dpa, len(data))] = data

    def clear(self, dpa: int, size: int) -> None:
        """Clears bytes without another buffer of *size*.  Zeros are not written, so that unused
        pages stay unused."""
        self._range(dpa, size)
        zeros = bytes(min(size, self._STEP))
        view = self._view
        for at in range(dpa, dpa + size, self._STEP):
            part = min(self._STEP, dpa + size - at)
            if view[at : at + part].tobytes() != zeros[:part]:
                view[at : at + part] = zeros[:part]

    def check(self, dpa: int, size: int) -> None:
        """Raises MediaError unless all bytes are there."""
        self._range(dpa, size)

    def _range(self, dpa: int, size: int) -> slice:
        if not 0 <= dpa <= dpa + size <= self.size:
            raise MediaError(f"{size} bytes at {dpa:#x}: the memory has {self.size:#x}")
        return slice(dpa, dpa + size)
