# SPDX-License-Identifier: BSD-3-Clause
"""Memory of the fabric's pool: all hosts can load from it and store to it."""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.fabric.errors import LocalError
from nupa.fabric.segment import check

if TYPE_CHECKING:
    from types import TracebackType

#: A process without an attachment owns its memory by its pid (csrc/engine/pool.c).
_NO_SLOT = 0


class PoolMemory:
    """A piece of the pool, made by Fabric.alloc; a context manager that frees it.

    Has the buffer protocol (memoryview(m), numpy.frombuffer(m, …), file.readinto(m)) and slices of
    bytes: m[0:5] = b"hello".  address: where it is in this process; len(m): its bytes.  The mapping
    stays as long as a view of it does, also after the fabric is closed; what is behind a view of
    freed memory may be somebody else's.
    """

    _fabric: Any
    _owned: bool

    @property
    def address(self) -> int:
        return ctypes.addressof(self)  # type: ignore[arg-type]

    def free(self) -> None:
        """Gives it back.  A second call does nothing."""
        if not self._owned:
            return
        self._owned = False
        at = ffi.cast("void *", self.address)
        size = ctypes.sizeof(self)  # type: ignore[arg-type]
        rc = lib.nupa_pool_free(self._fabric, _NO_SLOT, at, size)
        check(rc, f"cannot free {size} bytes of the pool")

    def __enter__(self) -> PoolMemory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()


def allocate(fabric: Any, size_bytes: int) -> PoolMemory:
    """Memory of *size_bytes* in the pool of a `struct nupa_fabric *`, zeroed.

    LocalError: a size below 1, or the fabric is shared by several machines; FabricError: no run of
    extents is free (ENOMEM), or the file system is full (ENOSPC).
    """
    if size_bytes < 1:
        raise LocalError(f"cannot allocate {size_bytes} bytes: ask for 1 or more", errno.EINVAL)
    out = ffi.new("void **")
    what = f"cannot allocate {size_bytes} bytes of the pool"
    rc = lib.nupa_pool_alloc(fabric, _NO_SLOT, min(size_bytes, 2**64 - 1), out)
    if rc == -errno.EOPNOTSUPP:
        raise LocalError(
            f"{what}: this fabric is shared by several machines, where memory belongs to an open "
            "device: use its device memory (ibv_alloc_dm, nupa.verbs.DM)",
            errno.EOPNOTSUPP,
        )
    check(rc, what)
    # The buffer protocol of a class of ours: Python's own way (__buffer__) came with 3.12.
    kind = type("PoolMemory", (PoolMemory, ctypes.c_char * size_bytes), {})
    memory: Any = kind.from_address(int(ffi.cast("uintptr_t", out[0])))  # type: ignore[attr-defined]
    # A view keeps the object alive, the object keeps the mapping.
    memory._fabric = ffi.gc(lib.nupa_fabric_get(fabric), lib.nupa_fabric_put)
    memory._owned = True
    return memory  # type: ignore[no-any-return]
