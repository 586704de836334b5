# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of memory that Python objects lend."""

from __future__ import annotations

from typing import Any

from nupa._engine import ffi


def borrow(source: Any, *, writable: bool) -> Any:
    """A `char[]` over the buffer of *source*, or a `char *` where *source* is a memoryview.

    The result, and what is made of it by ffi.buffer(), keeps the memory of *source* as it is.
    TypeError: *source* has no buffer.  BufferError, ValueError: the buffer has gaps, or is not
    writable.

    A memoryview gives out no buffer of its own for longer than this call.  Before Python 3.12 the
    interpreter crashes where the collector clears one that has (gh-77894).
    """
    memory = ffi.from_buffer(source, require_writable=writable)
    if not isinstance(source, memoryview):
        return memory
    address = ffi.cast("char *", memory)
    ffi.release(memory)
    return ffi.gc(address, _Keeper(source))


class _Keeper:
    """Called when nobody has the address any more; has its own view of the memory till then."""

    __slots__ = ("_view",)

    def __init__(self, source: memoryview) -> None:
        # The same buffer of the same exporter: none of *source*, which its owner may release.
        self._view = memoryview(source)

    def __call__(self, _address: Any) -> None:
        pass
