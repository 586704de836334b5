# SPDX-License-Identifier: BSD-3-Clause
"""What each window on memory can do, however it gets there.

Knows offsets in a window, atomics' names and what each returns; never links, requests or mappings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from nupa.base.errors import LocalError, RemoteError

#: Atomics are on words of so many bytes, aligned to them, little endian.
WORD_BYTES = 8
WORD = (1 << 64) - 1

Bytes = bytes | bytearray | memoryview


class Atomic(StrEnum):
    """On a word of 64 bits, unsigned; sums wrap around.  Each returns what the word was before."""

    LOAD = "load"
    STORE = "store"
    FETCH_ADD = "fetch_add"
    FETCH_AND = "fetch_and"
    FETCH_OR = "fetch_or"
    FETCH_XOR = "fetch_xor"
    SWAP = "swap"
    COMPARE_SWAP = "compare_swap"


@runtime_checkable
class Access(Protocol):
    """A window on memory: nupa.memory.window.Window, and those of UALink and NVLink.

    Offsets and sizes are in bytes.  LocalError: they are not inside, or the window is closed;
    RemoteError: the memory is gone.  `nupa.memory.atomic_*` take each of them."""

    def __len__(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes: ...

    def write(self, offset: int, data: Bytes) -> None: ...

    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int:
        """What the word at *offset* was before.  LocalError: it is not aligned, or not inside."""

    def flush(self, offset: int = 0, size: int | None = None) -> None:
        """What was written is where others see it when this returns."""

    def invalidate(self, offset: int = 0, size: int | None = None) -> None:
        """What is read afterwards is what others wrote and flushed before."""

    @property
    def revoked(self) -> bool:
        """Whether the memory was taken away."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


if TYPE_CHECKING:
    from nupa.memory.window import Window

    #: The type checker sees to it that what hosts map is one.
    _MAPPED: type[Access] = Window


class RemoteWindow(ABC):
    """An `Access` whose loads, stores and atomics are somebody else's to do: *size* bytes."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self._size = size
        self._closed = False

    def __len__(self) -> int:
        return self._size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    @abstractmethod
    def revoked(self) -> bool: ...

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes: ...

    @abstractmethod
    def write(self, offset: int, data: Bytes) -> None: ...

    @abstractmethod
    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int:
        """What the word at *offset* was before.  LocalError: it is not aligned, or not inside."""

    def flush(self, offset: int = 0, size: int | None = None) -> None:
        """See `Access.flush`."""
        self._check(offset, self._size - offset if size is None else size)

    def invalidate(self, offset: int = 0, size: int | None = None) -> None:
        """Nothing of the memory is kept here: each read asks for it."""
        self._check(offset, self._size - offset if size is None else size)

    def close(self) -> None:
        """A second call does nothing."""
        self._closed = True

    def _check(self, offset: int, size: int) -> None:
        if self._closed:
            raise LocalError(f"{self.name}: this window is closed")
        check_range(self.name, offset, size, self._size)
        if self.revoked:
            raise RemoteError(f"{self.name}: its memory was taken away")

    def _check_word(self, offset: int, operand: int, compare: int) -> None:
        self._check(offset, WORD_BYTES)
        check_word(self.name, offset, operand, compare)


def check_range(name: str, offset: int, size: int, total: int) -> None:
    """LocalError unless *size* bytes at *offset* are inside of *total*."""
    if offset < 0 or size < 0 or offset + size > total:
        raise LocalError(f"{name}: {size} bytes at {offset:#x}: it has {total:#x} bytes")


def check_word(name: str, offset: int, *values: int) -> None:
    """LocalError unless *offset* is a word's, and *values* fit into one."""
    if offset % WORD_BYTES:
        raise LocalError(f"{name}: {offset:#x} is no multiple of 8, as an atomic's offset is")
    for value in values:
        if not 0 <= value <= WORD:
            raise LocalError(f"{name}: {value:#x} does not fit into a word of 64 bits")
