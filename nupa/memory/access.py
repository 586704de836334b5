# SPDX-License-Identifier: BSD-3-Clause
"""The operations of every window on memory: loads, stores, atomics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from nupa.base.closing import Closing
from nupa.base.errors import LocalError, RemoteError

#: Bytes of the word of an atomic, which is aligned and little endian.
WORD_BYTES = 8
WORD = (1 << 64) - 1

Bytes = bytes | bytearray | memoryview


class Atomic(StrEnum):
    """An operation on an unsigned word of 64 bits; sums wrap.  Each returns the former word."""

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

    Offsets and sizes are in bytes.  LocalError: a range outside, or a closed window; RemoteError:
    the memory is gone.  `nupa.memory.atomic_*` take any of them.
    """

    def __len__(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes: ...

    def write(self, offset: int, data: Bytes) -> None: ...

    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int:
        """Returns the former word at *offset*.  LocalError: not aligned, or outside."""

    def flush(self, offset: int = 0, size: int | None = None) -> None:
        """Makes earlier stores visible to others before it returns."""

    def invalidate(self, offset: int = 0, size: int | None = None) -> None:
        """Makes stores that others flushed visible to later loads."""

    @property
    def revoked(self) -> bool:
        """Whether the memory was taken away."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


if TYPE_CHECKING:
    from nupa.memory.window import Window

    #: A type checker proves here that a host's window is an Access.
    _MAPPED: type[Access] = Window


class WindowBase(Closing, ABC):
    """The base of windows that this process maps nothing for: an `Access` to *size* bytes."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self._size = size
        self._closed = False

    def __len__(self) -> int:
        return self._size

    @property
    @abstractmethod
    def revoked(self) -> bool: ...

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes: ...

    @abstractmethod
    def write(self, offset: int, data: Bytes) -> None: ...

    @abstractmethod
    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int:
        """Returns the former word at *offset*.  LocalError: not aligned, or outside."""

    def flush(self, offset: int = 0, size: int | None = None) -> None:
        """Flushes nothing: see `Access.flush`."""
        self._check(offset, self._size - offset if size is None else size)

    def invalidate(self, offset: int = 0, size: int | None = None) -> None:
        """Does nothing: no copy is kept, each read asks for the memory."""
        self._check(offset, self._size - offset if size is None else size)

    def close(self) -> None:
        """Closes the window.  A second call does nothing."""
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
    """Raises LocalError unless *size* bytes at *offset* are inside *total*."""
    if offset < 0 or size < 0 or offset + size > total:
        raise LocalError(f"{name}: {size} bytes at {offset:#x}: it has {total:#x} bytes")


def check_word(name: str, offset: int, *values: int) -> None:
    """Raises LocalError unless *offset* is a word's, and *values* fit into a word."""
    if offset % WORD_BYTES:
        raise LocalError(f"{name}: {offset:#x} is not a multiple of 8, as an atomic's offset is")
    for value in values:
        if not 0 <= value <= WORD:
            raise LocalError(f"{name}: {value:#x} does not fit into a word of 64 bits")
