# SPDX-License-Identifier: BSD-3-Clause
"""Memory that this process has itself: a window that is mapped, or a plain buffer.

Knows bytes and words; never who asks for them.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from nupa.fabric.errors import LocalError
from nupa.memory.access import WORD_BYTES, Access, Atomic, Bytes, check_range
from nupa.memory.atomic import of_buffer

#: Writable, contiguous: a bytearray, a memoryview, a NumPy array, nupa.fabric.PoolMemory.
Buffer = Any


class BufferWindow:
    """An `Access` to a plain buffer: all of it is in this process, and there is no other copy.

    LocalError: the buffer is read only, or its bytes are not next to each other."""

    def __init__(self, buffer: Buffer) -> None:
        view = memoryview(buffer)
        if view.readonly or not view.c_contiguous:
            raise LocalError(f"{type(buffer).__name__}: take a buffer that is writable, in one run")
        self.memory = view.cast("B")
        self._name = type(buffer).__name__
        self._size = len(self.memory)
        self._closed = False

    def __len__(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> bytes:
        self._check(offset, size)
        return bytes(self.memory[offset : offset + size])

    def write(self, offset: int, data: Bytes) -> None:
        given = memoryview(data).cast("B")
        self._check(offset, len(given))
        self.memory[offset : offset + len(given)] = given

    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int:
        """See `Access.atomic`.  LocalError also where the buffer begins at no multiple of 8."""
        self._check(offset, WORD_BYTES)
        return of_buffer(self.memory, operation, offset, operand, compare)

    def flush(self, offset: int = 0, size: int | None = None) -> None:
        self._check(offset, self._size - offset if size is None else size)

    def invalidate(self, offset: int = 0, size: int | None = None) -> None:
        self._check(offset, self._size - offset if size is None else size)

    def _check(self, offset: int, size: int) -> None:
        if self._closed:
            raise LocalError(f"{self._name}: this window is closed")
        check_range(self._name, offset, size, self._size)

    @property
    def revoked(self) -> bool:
        return False

    def close(self) -> None:
        """The buffer can be resized again."""
        self._closed = True
        self.memory.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def as_access(memory: Access | Buffer) -> Access:
    """A window as it is, a buffer with a window's ways."""
    return memory if isinstance(memory, Access) else BufferWindow(memory)
