# SPDX-License-Identifier: BSD-3-Clause
"""Memory by its address, for programs that manage their own: pyverbs' mem_alloc and dma_util.

Addresses are integers and are not checked.  The device has no registers: stores of dma_util go to
memory, where readers see them in order.
"""

from __future__ import annotations

import ctypes
import mmap as _mmap
import os
from typing import TYPE_CHECKING

from nupa.verbs.base.errors import PyverbsRDMAError, PyverbsUserError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "MAP_ANONYMOUS_",
    "MAP_FIXED_",
    "MAP_GROWSDOWN_",
    "MAP_HUGETLB_",
    "MAP_LOCKED_",
    "MAP_NORESERVE_",
    "MAP_POPULATE_",
    "MAP_PRIVATE_",
    "MAP_SHARED_",
    "MAP_STACK_",
    "PROT_EXEC_",
    "PROT_NONE_",
    "PROT_READ_",
    "PROT_WRITE_",
    "free",
    "madvise",
    "malloc",
    "mmap",
    "mmio_write32_as_be",
    "mmio_write64_as_be",
    "munmap",
    "posix_memalign",
    "read",
    "read32",
    "read64",
    "udma_from_dev_barrier",
    "udma_to_dev_barrier",
    "write",
    "writebe32",
    "writebe64",
]

PROT_NONE_ = 0
PROT_READ_ = _mmap.PROT_READ
PROT_WRITE_ = _mmap.PROT_WRITE
PROT_EXEC_ = _mmap.PROT_EXEC
MAP_SHARED_ = _mmap.MAP_SHARED
MAP_PRIVATE_ = _mmap.MAP_PRIVATE
MAP_ANONYMOUS_ = _mmap.MAP_ANONYMOUS
MAP_FIXED_ = 0x10  # of linux/mman.h: the module mmap lacks it
MAP_GROWSDOWN_ = 0x100
MAP_LOCKED_ = 0x2000
MAP_NORESERVE_ = 0x4000
MAP_POPULATE_ = 0x8000
MAP_STACK_ = 0x20000
MAP_HUGETLB_ = 0x40000

_MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.malloc.restype = ctypes.c_void_p
_libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]
_libc.free.restype = None
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.mmap.restype = ctypes.c_void_p
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def malloc(size: int) -> int:
    """Returns the address of *size* bytes.  MemoryError: there is no memory."""
    address = _libc.malloc(size)
    if not address:
        raise MemoryError(f"Failed to allocate {size} bytes")
    return int(address)


def posix_memalign(size: int, alignment: int = 8) -> int:
    """Returns the address of *size* zeroed bytes, a multiple of *alignment* (a power of two)."""
    pointer = ctypes.c_void_p()
    rc = _libc.posix_memalign(ctypes.byref(pointer), alignment, size)
    if rc or not pointer.value:
        raise MemoryError(f"Failed to allocate {size} bytes at {alignment}: {os.strerror(rc)}")
    ctypes.memset(pointer.value, 0, size)
    return pointer.value


def free(ptr: int) -> None:
    _libc.free(ptr)


def mmap(
    addr: int = 0,
    length: int = 100,
    prot: int = PROT_READ_ | PROT_WRITE_,
    flags: int = MAP_PRIVATE_ | MAP_ANONYMOUS_,
    fd: int = -1,
    offset: int = 0,
) -> int:
    """Returns the address of mmap(2).  MemoryError, with the errno's text, if that fails."""
    address = _libc.mmap(addr, length, prot, flags, fd, offset)
    if address == _MAP_FAILED or address is None:
        raise MemoryError(f"Failed to mmap {length} bytes: {os.strerror(ctypes.get_errno())}")
    return int(address)


def munmap(addr: int, length: int) -> None:
    """Calls munmap(2).  MemoryError, with the errno's text, if that fails."""
    if _libc.munmap(addr, length):
        raise MemoryError(f"Failed to munmap {addr:#x}: {os.strerror(ctypes.get_errno())}")


def madvise(addr: int, length: int, flags: int = _mmap.MADV_DONTNEED) -> None:
    """Calls madvise(2).  PyverbsRDMAError if that fails."""
    if _libc.madvise(addr, length, flags):
        raise PyverbsRDMAError(f"Failed to madvise {addr:#x}", ctypes.get_errno())


def writebe32(addr: int, val: int, offset: int = 0) -> None:
    """Stores *val* at addr + 4 * offset, most significant byte first."""
    ctypes.memmove(addr + 4 * offset, val.to_bytes(4, "big"), 4)


def writebe64(addr: int, val: int, offset: int = 0) -> None:
    """Stores *val* at addr + 8 * offset, most significant byte first."""
    ctypes.memmove(addr + 8 * offset, val.to_bytes(8, "big"), 8)


def write(addr: int, data: str | Buffer, length: int, offset: int = 0) -> None:
    """Copies the first *length* bytes of *data* to addr + offset.

    PyverbsUserError: *data* has fewer.
    """
    source = memoryview(data.encode() if isinstance(data, str) else data).cast("B")
    if not 0 <= length <= len(source):
        raise PyverbsUserError(f"Asked to write {length} bytes of data that has {len(source)}")
    ctypes.memmove(addr + offset, bytes(source[:length]), length)


def read(addr: int, length: int, offset: int = 0) -> bytes:
    """Returns the *length* bytes at addr + offset."""
    return ctypes.string_at(addr + offset, length)


def read32(addr: int, offset: int = 0) -> int:
    """Loads four bytes at addr + 4 * offset, in host order."""
    return ctypes.c_uint32.from_address(addr + 4 * offset).value


def read64(addr: int, offset: int = 0) -> int:
    """Loads eight bytes at addr + 8 * offset, in host order."""
    return ctypes.c_uint64.from_address(addr + 8 * offset).value


def mmio_write32_as_be(addr: int, val: int) -> None:
    writebe32(addr, val)


def mmio_write64_as_be(addr: int, val: int) -> None:
    writebe64(addr, val)


def udma_to_dev_barrier() -> None:
    """Does nothing: the interpreter's lock has ordered earlier stores."""


def udma_from_dev_barrier() -> None:
    """Does nothing: the interpreter's lock has ordered later loads."""
