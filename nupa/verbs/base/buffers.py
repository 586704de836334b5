# SPDX-License-Identifier: BSD-3-Clause
"""Memory of the program's own for regions: new pages, or that of an object with a buffer."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from nupa.core.buffers import borrow
from nupa.verbs.base.errors import PyverbsError, PyverbsUserError
from nupa.verbs.enums import (
    IBV_ACCESS_HUGETLB,
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_WRITE,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

HUGE_PAGE_SIZE = 0x200000
_MAP_HUGETLB = 0x40000
WRITING = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC


def buffer_of(source: Buffer, access: int) -> tuple[Any, int]:
    """Returns the memory of an object with a buffer, which it keeps alive, and its bytes."""
    try:
        memory = borrow(source, writable=bool(access & WRITING))
    except TypeError:
        raise PyverbsUserError(
            f"Cannot register a {type(source).__name__}: give a number of bytes, or an object with "
            "a contiguous buffer such as bytearray or numpy.ndarray"
        ) from None
    except (BufferError, ValueError) as error:
        raise PyverbsUserError(
            f"Cannot register this {type(source).__name__}: {error}. It has to be contiguous, and "
            "writable unless access is for reading only"
        ) from None
    return memory, source.nbytes if isinstance(source, memoryview) else len(memory)


def allocate(length: int, access: int) -> mmap.mmap:
    """Returns zeroed pages of this process alone."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if access & IBV_ACCESS_HUGETLB:
        flags |= _MAP_HUGETLB
        length = -(-length // HUGE_PAGE_SIZE) * HUGE_PAGE_SIZE
    try:
        return mmap.mmap(-1, length, flags=flags)
    except (OSError, OverflowError) as error:
        raise PyverbsError(f"Failed to allocate MR buffer of size {length}: {error}") from None
