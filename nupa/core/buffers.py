# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of the memory of Python objects."""

from __future__ import annotations

from typing import Any

from nupa._engine import ffi


def borrow(source: Any, *, writable: bool) -> Any:
    """Returns a `char[]` over the buffer of *source*, or a `char *` where *source* is a memoryview.

    The result, and any ffi.buffer() of it, keeps the memory of *source* from moving or going.
    TypeError: *source* has no buffer.  BufferError, ValueError: the buffer has gaps, or is not
    writable.

    A memoryview exports no buffer beyond this call: before Python 3.12 the interpreter crashes
    where the collector clears a memoryview that does (gh-77894).
    """
    memory = ffi.from_buffer(source, require_writable=writable)
    if not isinstance(source, memoryview):
        return memory
    address = ffi.cast("char *", memory)
    ffi.release(memory)
    return ffi.gc(address, _Keeper(source))


class _Keeper:
    """The address's destructor: holds a view of the memory while the address is referenced."""

    __slots__ = ("_view",)

    def __init__(self, source: memoryview) -> None:
        # A view of the exporter's buffer, not of *source*, which its owner may release.
        self._view = memoryview(source)

    def __call__(self, _address: Any) -> None:
        pass
