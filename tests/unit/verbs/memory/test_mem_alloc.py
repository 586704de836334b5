# SPDX-License-Identifier: BSD-3-Clause
"""Memory by its address, and barriers that do nothing."""

import pytest

from nupa.verbs import PyverbsRDMAError, PyverbsUserError, dma_util, fork
from nupa.verbs import enums as e
from nupa.verbs import mem_alloc as mem

PAGE_BYTES = 4096


def test_memory_of_malloc_and_posix_memalign_can_be_used_and_freed() -> None:
    address = mem.posix_memalign(100, 64)
    assert address % 64 == 0
    assert mem.read64(address, 1) == 0
    mem.writebe32(address, 0x01020304, 1)
    assert mem.read32(address, 1) == 0x04030201
    dma_util.udma_to_dev_barrier()
    dma_util.mmio_write64_as_be(address, 1)
    assert mem.read64(address) == 1 << 56
    dma_util.udma_from_dev_barrier()
    mem.free(address)
    mem.free(mem.malloc(10))


def test_pages_can_be_mapped_given_back_and_unmapped() -> None:
    address = mem.mmap(length=PAGE_BYTES)
    mem.writebe64(address, 5)
    mem.madvise(address, PAGE_BYTES)  # MADV_DONTNEED: zeros again
    assert mem.read64(address) == 0
    mem.munmap(address, PAGE_BYTES)


def test_what_the_kernel_refuses_is_said() -> None:
    with pytest.raises(MemoryError, match="Failed to mmap 4096 bytes: Bad file descriptor"):
        mem.mmap(length=PAGE_BYTES, flags=mem.MAP_PRIVATE_, fd=-1)
    with pytest.raises(MemoryError, match="Failed to allocate"):
        mem.posix_memalign(100, 3)
    with pytest.raises(MemoryError, match="Failed to allocate"):
        mem.malloc(1 << 62)
    with pytest.raises(MemoryError, match="Failed to munmap 0x1: Invalid argument"):
        mem.munmap(1, PAGE_BYTES)
    with pytest.raises(PyverbsRDMAError, match="Invalid argument"):
        mem.madvise(1, PAGE_BYTES)


def test_bytes_are_copied_to_an_address_and_from_it() -> None:
    address = mem.posix_memalign(64)
    mem.write(address, "text", 4, 8)
    mem.write(address, b"bytes", 3, 12)
    assert mem.read(address, 9, 7) == b"\0textbyt\0"
    with pytest.raises(PyverbsUserError, match="write 5 bytes of data that has 4"):
        mem.write(address, "text", 5)
    mem.free(address)


def test_forks_need_no_preparation() -> None:
    fork.fork_init()
    assert fork.is_fork_initialized() is e.ibv_fork_status.IBV_FORK_UNNEEDED
