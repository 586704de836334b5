# SPDX-License-Identifier: BSD-3-Clause
"""Atomic operations on words of 64 bits, in windows of any kind and in plain buffers.

All threads and all processes that map the memory see them in one order (memory_order_seq_cst, C11
7.17.3).  In a window with coherence by software they act on its cache, as a CPU's would.
"""

from __future__ import annotations

import errno
from typing import Any, Protocol

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.core.segment import check
from nupa.memory.access import WORD_BYTES, Atomic, check_range, check_word
from nupa.memory.window import OPERATIONS


class Atomics(Protocol):
    """A window with atomics of its own."""

    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int: ...


#: A window, or a writable contiguous buffer: bytearray, memoryview, NumPy array, PoolMemory.
Target = Any


def atomic_load(target: Target, offset: int) -> int:
    """Returns the word at *offset*.

    For every function here, offsets are in bytes and multiples of 8; values are unsigned.
    LocalError: an offset outside or not aligned, a value of more than 64 bits, a read-only buffer;
    RemoteError: the memory is gone (windows with on_loss="raise").

    >>> from nupa.memory import atomic_fetch_add, atomic_load
    >>> words = bytearray(16)
    >>> atomic_fetch_add(words, 8, 5), atomic_load(words, 8)
    (0, 5)
    """
    return _perform(target, Atomic.LOAD, offset)


def atomic_store(target: Target, offset: int, value: int) -> None:
    """Sets the word to *value*."""
    _perform(target, Atomic.STORE, offset, value)


def atomic_fetch_add(target: Target, offset: int, value: int) -> int:
    """Adds *value*, modulo 2^64.  Returns the former word."""
    return _perform(target, Atomic.FETCH_ADD, offset, value)


def atomic_fetch_and(target: Target, offset: int, value: int) -> int:
    """Returns the former word."""
    return _perform(target, Atomic.FETCH_AND, offset, value)


def atomic_fetch_or(target: Target, offset: int, value: int) -> int:
    """Returns the former word."""
    return _perform(target, Atomic.FETCH_OR, offset, value)


def atomic_fetch_xor(target: Target, offset: int, value: int) -> int:
    """Returns the former word."""
    return _perform(target, Atomic.FETCH_XOR, offset, value)


def atomic_swap(target: Target, offset: int, value: int) -> int:
    """Sets the word to *value*.  Returns the former word."""
    return _perform(target, Atomic.SWAP, offset, value)


def atomic_compare_swap(target: Target, offset: int, compare: int, value: int) -> int:
    """Sets the word to *value* if it is *compare*.  Returns the former word."""
    return _perform(target, Atomic.COMPARE_SWAP, offset, value, compare)


def _perform(
    target: Target, operation: Atomic, offset: int, operand: int = 0, compare: int = 0
) -> int:
    window: Atomics | None = target if hasattr(target, "atomic") else None
    if window is not None:
        return window.atomic(operation, offset, operand, compare)
    return of_buffer(target, operation, offset, operand, compare)


def of_buffer(
    buffer: Any, operation: Atomic, offset: int, operand: int = 0, compare: int = 0
) -> int:
    """Performs an operation on a plain buffer of this process, or on mapped memory."""
    name = type(buffer).__name__
    try:
        bytes_ = ffi.from_buffer(buffer, require_writable=True)
    except (BufferError, TypeError, ValueError) as error:
        raise LocalError(f"{name}: give a writable contiguous buffer: {error}") from None
    check_range(name, offset, WORD_BYTES, len(bytes_))
    check_word(name, offset, operand, compare)
    before = ffi.new("uint64_t *")
    rc = lib.nupa_word_atomic(
        bytes_, len(bytes_), offset, OPERATIONS[operation], operand, compare, before
    )
    what = f"{name}: {operation} at {offset:#x}"
    check(rc, what, "the offset is not a multiple of 8" if rc == -errno.EINVAL else "")
    return int(before[0])
