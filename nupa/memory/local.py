# SPDX-License-Identifier: BSD-3-Clause
"""Memory that this process has itself: a window that is mapped, or a plain buffer.

Knows bytes and words; never who asks for them.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from nupa.fabric.errors import LocalError
from nupa.memory.access import Access, Atomic, Bytes, check_range
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

    def __len__(self) -> int:
        return len(self.memory)

    def read(self, offset: int, size: int) -> bytes:
        check_range(self._name, offset, size, len(self.memory))
        return bytes(self.memory[offset : offset + size])

    def write(self, offset: int, data: Bytes) -> None:
        given = memoryview(data).cast("B")
        check_range(self._name, offset, len(given), len(self.memory))
        self.memory[offset : offset + len(given)] = given

    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int:
        return of_buffer(self.memory, operation, offset, operand, compare)

    def flush(self, offset: int = 0, size: int | None = None) -> None:
        check_range(self._name, offset, size or 0, len(self.memory))

    def invalidate(self, offset: int = 0, size: int | None = None) -> None:
        check_range(self._name, offset, size or 0, len(self.memory))

    @property
    def revoked(self) -> bool:
        return False

    def close(self) -> None:
        """The buffer can be resized again."""
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
