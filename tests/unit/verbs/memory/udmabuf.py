# SPDX-License-Identifier: BSD-3-Clause
"""Regions of dma-bufs.

These tests need /dev/udmabuf and /dev/dma_heap/system: tests/system/test_dmabuf.py runs them in a
guest, which has both.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import struct
from pathlib import Path

import pytest

from nupa._engine import ffi, lib
from nupa.verbs import PyverbsError, PyverbsRDMAError, PyverbsUserError, RecvWR, SendWR
from nupa.verbs import enums as e
from nupa.verbs.device.dmabuf import DmaBuf, mapped
from nupa.verbs.mr import DmaBufMR

PAGE = mmap.PAGESIZE
SIZE = 8 * PAGE
LOCAL = e.IBV_ACCESS_LOCAL_WRITE
ALL = (
    LOCAL
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
    | e.IBV_ACCESS_RELAXED_ORDERING
)


@pytest.fixture
def pair(make_pair, mover):
    return make_pair(mover=mover)


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("dmabuf")


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def refusal(end, fd: int, offset=0, length=PAGE, iova=0, access=LOCAL) -> int:
    """Returns the errno of a registration that has to fail."""
    mr = lib.nupa_reg_dmabuf_mr(end.pd._c, offset, length, iova, fd, access)
    assert mr == ffi.NULL
    return int(ffi.errno)


def wait(pair, opcode: int, source, target, length: int, offset: int = 0) -> int:
    """Returns the status of a's request: *length* bytes between its *source* and b's *target*."""
    wr = SendWR(1, opcode, sg=[source.sge(offset, length)])
    if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr.set_wr_atomic(target.rkey, target.offset + offset, 1)
    elif opcode != e.IBV_WR_SEND:
        wr.set_wr_rdma(target.rkey, target.offset + offset)
    pair.a.qp.post_send(wr)
    return int(pair.a.wait()[0].status)


@pytest.mark.parametrize("offset", [0, PAGE, 3 * PAGE + 40])
def test_memory_of_a_dmabuf_is_sent_written_read_and_added_to(pair, offset: int) -> None:
    length = SIZE - offset
    data = os.urandom(length)
    ours = DmaBufMR(pair.a.pd, length, ALL, offset=offset)
    with DmaBuf(SIZE) as buf:
        theirs = DmaBufMR(pair.b.pd, length, ALL, buf, offset)
        assert (theirs.dmabuf, theirs.offset, theirs.length) == (buf, offset, length)
        ours.write(data)
        assert wait(pair, e.IBV_WR_RDMA_WRITE, ours, theirs, length) == e.IBV_WC_SUCCESS
        with mapped(buf.fd, SIZE, writing=False) as memory:
            assert memory[offset:] == data

        ours.write(bytes(length))
        assert wait(pair, e.IBV_WR_RDMA_READ, ours, theirs, length) == e.IBV_WC_SUCCESS
        assert ours.read() == data

        theirs.write(bytes(length))
        pair.b.qp.post_recv(RecvWR(sg=[theirs.sge()]))
        assert wait(pair, e.IBV_WR_SEND, ours, theirs, length) == e.IBV_WC_SUCCESS
        assert pair.b.wait_ok()[0].byte_len == length
        assert theirs.read() == data

        add = e.IBV_WR_ATOMIC_FETCH_AND_ADD
        assert wait(pair, add, ours, theirs, 8) == e.IBV_WC_SUCCESS
        before = int.from_bytes(data[:8], "little")
        assert ours.read(8) == data[:8]
        assert theirs.read(8) == ((before + 1) % (1 << 64)).to_bytes(8, "little")


def test_a_region_ends_where_the_dmabuf_does(end) -> None:
    with DmaBuf(SIZE) as buf:
        DmaBufMR(end.pd, PAGE, ALL, buf, SIZE - PAGE).close()
        DmaBufMR(end.pd, 1, ALL, buf, SIZE - 1).close()
        assert refusal(end, buf.fd, SIZE - PAGE, PAGE + 1) == errno.EINVAL
        assert refusal(end, buf.fd, SIZE, 1) == errno.EINVAL


def test_a_key_reaches_to_the_end_of_its_region_and_no_further(pair) -> None:
    ours = pair.a.mr
    theirs = DmaBufMR(pair.b.pd, PAGE, ALL)
    write = e.IBV_WR_RDMA_WRITE
    assert wait(pair, write, ours, theirs, 1, PAGE - 1) == e.IBV_WC_SUCCESS
    assert wait(pair, write, ours, theirs, 2, PAGE - 1) == e.IBV_WC_REM_ACCESS_ERR


def test_a_region_without_write_access_is_read_only(pair) -> None:
    theirs = DmaBufMR(pair.b.pd, PAGE, e.IBV_ACCESS_REMOTE_READ)
    assert wait(pair, e.IBV_WR_RDMA_READ, pair.a.mr, theirs, 8) == e.IBV_WC_SUCCESS
    assert wait(pair, e.IBV_WR_RDMA_WRITE, pair.a.mr, theirs, 8) == e.IBV_WC_REM_ACCESS_ERR


def heap(length: int, flags: int) -> int:
    """Returns a dma-buf of the system's heap, whose *flags* may be O_RDONLY."""
    # linux/dma-heap.h: DMA_HEAP_IOCTL_ALLOC takes bytes, descriptor, its flags, flags of the heap.
    data = bytearray(struct.pack("=QIIQ", length, 0, flags | os.O_CLOEXEC, 0))
    device = os.open("/dev/dma_heap/system", os.O_RDONLY)
    fcntl.ioctl(device, 0xC0184800, data)
    os.close(device)
    return int(struct.unpack("=QIIQ", data)[1])


def test_memory_of_another_exporter_is_registered_too(pair) -> None:
    fd = heap(SIZE, os.O_RDWR)
    theirs = DmaBufMR(pair.b.pd, SIZE, ALL, fd)
    pair.a.mr.write(b"to a heap")
    assert wait(pair, e.IBV_WR_RDMA_WRITE, pair.a.mr, theirs, 9) == e.IBV_WC_SUCCESS
    assert theirs.read(9) == b"to a heap"
    theirs.close()
    os.close(fd)


def test_a_descriptor_for_reading_allows_no_writes(pair) -> None:
    fd = heap(SIZE, os.O_RDONLY)
    assert refusal(pair.b, fd, access=LOCAL) == errno.EACCES
    theirs = DmaBufMR(pair.b.pd, SIZE, e.IBV_ACCESS_REMOTE_READ, fd)
    assert wait(pair, e.IBV_WR_RDMA_READ, pair.a.mr, theirs, 8) == e.IBV_WC_SUCCESS
    theirs.close()
    os.close(fd)


def test_a_program_without_a_free_descriptor_is_told(end) -> None:
    with DmaBuf(SIZE) as buf:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        before = mappings()
        lowest = os.dup(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))
        try:
            assert refusal(end, buf.fd) == errno.EMFILE
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            os.close(lowest)
        assert mappings() == before


def test_addresses_count_from_the_iova(pair) -> None:
    with DmaBuf(SIZE) as buf:
        iova = 0x7000_0000_0000
        theirs = lib.nupa_reg_dmabuf_mr(pair.b.pd._c, PAGE, PAGE, iova, buf.fd, ALL)
        assert int(ffi.cast("uintptr_t", theirs.addr)) == PAGE  # as rdma-core has it
        pair.a.mr.write(b"by iova")
        wr = SendWR(1, e.IBV_WR_RDMA_WRITE, sg=[pair.a.mr.sge(0, 7)])
        wr.set_wr_rdma(theirs.rkey, iova + 5)
        pair.a.qp.post_send(wr)
        pair.a.wait_ok()
        with mapped(buf.fd, SIZE, writing=False) as memory:
            assert memory[PAGE + 5 : PAGE + 12] == b"by iova"
        assert lib.nupa_dereg_mr(theirs) == 0


def test_a_closed_region_leaves_neither_mapping_nor_descriptor(end) -> None:
    before = mappings(), descriptors()
    mr = DmaBufMR(end.pd, PAGE, ALL)
    assert mappings() == before[0] + 1
    mr.close()
    mr.close()
    assert (mappings(), descriptors()) == before
    with pytest.raises(PyverbsUserError, match="closed"):
        mr.read(1)


def test_a_refused_registration_leaves_neither_either(end) -> None:
    with DmaBuf(SIZE) as buf:
        before = mappings(), descriptors()
        assert refusal(end, buf.fd, 0, SIZE + 1) == errno.EINVAL
        assert (mappings(), descriptors()) == before


def test_the_program_may_close_its_descriptor(pair) -> None:
    buf = DmaBuf(PAGE)
    fd = os.dup(buf.fd)
    theirs = DmaBufMR(pair.b.pd, PAGE, ALL, fd)
    buf.close()
    os.close(fd)
    assert wait(pair, e.IBV_WR_RDMA_WRITE, pair.a.mr, theirs, 8) == e.IBV_WC_SUCCESS
    theirs.close()


def test_a_dmabuf_that_is_closed_closes_its_regions(end) -> None:
    buf = DmaBuf(PAGE)
    mr = DmaBufMR(end.pd, PAGE, ALL, buf)
    buf.close()
    with pytest.raises(PyverbsUserError, match="closed"):
        _ = mr.rkey


def test_a_region_of_a_dmabuf_does_not_change(end) -> None:
    mr = DmaBufMR(end.pd, PAGE, ALL)
    with pytest.raises(PyverbsRDMAError) as caught:
        mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=LOCAL)
    assert caught.value.error_code == errno.EINVAL


def test_reading_and_writing_stay_inside_the_region(end) -> None:
    mr = DmaBufMR(end.pd, 10, ALL, offset=3)
    mr.write("0123456789")
    assert mr.read(3, 7) == b"789"
    for offset, length in ((8, 3), (-1, 1), (0, -1)):
        with pytest.raises(PyverbsUserError, match="Invalid offset"):
            mr.read(length, offset)
    with pytest.raises(PyverbsUserError, match="Invalid offset"):
        mr.write(b"xy", 2, 9)
    assert issubclass(PyverbsUserError, PyverbsError)


def test_a_child_of_fork_shares_the_memory_and_may_end(pair) -> None:
    theirs = DmaBufMR(pair.b.pd, PAGE, ALL)
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert wait(pair, e.IBV_WR_RDMA_WRITE, pair.a.mr, theirs, 8) == e.IBV_WC_SUCCESS
