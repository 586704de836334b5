# SPDX-License-Identifier: BSD-3-Clause
"""Memory of devices in the pool of a fabric: reserved as a whole, and backed where it is used."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.cxl.media.parts import Memory

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric
    from nupa.memory.pool import PoolMemory

_CHUNK = 2 << 20


class PoolStore(Closing):
    """A Store of *size* bytes.  FabricError: the pool has no room; LocalError: the pool is in
    memory that machines share."""

    def __init__(self, fabric: Fabric, size: int) -> None:
        self.where = fabric
        self._memory = fabric.pool.reserve(size)
        self._used = 0
        self._size = size

    def take(self, size: int) -> Memory:
        """Takes the next bytes.  LocalError: no more are left."""
        start, self._used = self._used, self._used + size
        if self._used > self._size:
            raise LocalError(f"{size:#x} bytes at {start:#x}: the store has {self._size:#x}")
        return _PoolPart(self, self._memory, start, size)

    def close(self) -> None:
        """Frees the memory.  Memory that a stopped process still maps is freed when this process
        ends."""
        try:
            self._memory.free()
        except LocalError as error:
            if error.errno != errno.EBUSY:
                raise


class _PoolPart(Memory):
    """Memory that is touched only where it is backed; the rest is zeros."""

    def __init__(self, store: PoolStore, pool: PoolMemory, start: int, size: int) -> None:
        super().__init__(pool, start, size, store=store, base=pool.offset + start)
        self._pool = pool
        self._backed: set[int] = set()

    def back(self, offset: int, size: int) -> None:
        for chunk in range(offset // _CHUNK, -(-(offset + size) // _CHUNK)):
            if chunk not in self._backed:
                first = chunk * _CHUNK
                self._pool.back(self._start + first, min(_CHUNK, self.size - first))
                self._backed.add(chunk)

    def read(self, dpa: int, size: int) -> bytes:
        self.check(dpa, size)
        found = bytearray(size)
        for at, end in self._there(dpa, size):
            found[at - dpa : end - dpa] = super().read(at, end - at)
        return bytes(found)

    def write(self, dpa: int, data: bytes) -> None:
        self.check(dpa, len(data))
        self.back(dpa, len(data))
        super().write(dpa, data)

    def clear(self, dpa: int, size: int) -> None:
        self.check(dpa, size)
        for at, end in self._there(dpa, size):
            super().clear(at, end - at)

    def _there(self, dpa: int, size: int) -> list[tuple[int, int]]:
        """Returns the backed parts of these bytes."""
        chunks = range(dpa // _CHUNK, -(-(dpa + size) // _CHUNK))
        return [
            (max(dpa, chunk * _CHUNK), min(dpa + size, (chunk + 1) * _CHUNK))
            for chunk in chunks
            if chunk in self._backed
        ]
