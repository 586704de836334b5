# SPDX-License-Identifier: BSD-3-Clause
"""Memory of this process as an accelerator's: a mapped window, or a plain buffer."""

from __future__ import annotations

from typing import Any

from nupa.base.errors import LocalError
from nupa.memory.access import WORD_BYTES, Access, Atomic, Bytes, WindowBase
from nupa.memory.atomic import of_buffer

#: Writable, contiguous: a bytearray, a memoryview, a NumPy array, nupa.fabric.PoolMemory.
Buffer = Any


class BufferWindow(WindowBase):
    """An `Access` to a plain buffer of this process, without a copy.

    LocalError: not a buffer, read-only, or not contiguous.
    """

    def __init__(self, buffer: Buffer) -> None:
        name = type(buffer).__name__
        try:
            with memoryview(buffer) as view:
                usable, size = not view.readonly and view.c_contiguous, view.nbytes
        except TypeError:
            usable = False
        if not usable:
            raise LocalError(f"{name}: give a window, or a writable contiguous buffer")
        super().__init__(name, size)
        # Not a view: the collector crashes Python on one in a cycle (gh-77894).
        self._buffer = buffer

    @property
    def memory(self) -> memoryview:
        """The whole buffer.  LocalError: the buffer has another size now."""
        view = memoryview(self._buffer).cast("B")
        if len(view) != self._size:
            raise LocalError(f"{self.name}: it was resized from {self._size} to {len(view)} bytes")
        return view

    def read(self, offset: int, size: int) -> bytes:
        self._check(offset, size)
        with self.memory as memory:
            return bytes(memory[offset : offset + size])

    def write(self, offset: int, data: Bytes) -> None:
        given = memoryview(data).cast("B")
        self._check(offset, len(given))
        with self.memory as memory:
            memory[offset : offset + len(given)] = given

    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int:
        """Does `Access.atomic`.  LocalError also where the buffer is not aligned to 8 bytes."""
        self._check(offset, WORD_BYTES)
        return of_buffer(self.memory, operation, offset, operand, compare)

    @property
    def revoked(self) -> bool:
        return False

    def close(self) -> None:
        """Releases the buffer.  A second call does nothing."""
        super().close()
        self._buffer = b""


def as_access(memory: Access | Buffer) -> Access:
    """Returns a window as it is, and a buffer as a BufferWindow."""
    return memory if isinstance(memory, Access) else BufferWindow(memory)
