# SPDX-License-Identifier: BSD-3-Clause
"""Memory behind a dma-buf: of a GPU in pyverbs, of the system here (/dev/udmabuf, a memfd)."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from mmap import ACCESS_READ, ACCESS_WRITE, PAGESIZE, mmap

from nupa.verbs.base import PyverbsCM
from nupa.verbs.base.errors import PyverbsError, PyverbsRDMAError

_DEVICE = "/dev/udmabuf"
# linux/udmabuf.h: UDMABUF_CREATE takes memfd, flags (32 bits each), offset, size (64 bits each).
_UDMABUF_CREATE = 0x40187542
_UDMABUF_FLAGS_CLOEXEC = 1
# linux/dma-buf.h: DMA_BUF_IOCTL_SYNC takes flags (64 bits).
_DMA_BUF_IOCTL_SYNC = 0x40086200
_DMA_BUF_SYNC_READ, _DMA_BUF_SYNC_WRITE, _DMA_BUF_SYNC_END = 1, 2, 4
_REMEDY = (
    f"it needs {_DEVICE}: load the module udmabuf, or run as root or in the group that has the "
    "device; or give DmaBufMR the descriptor of another dma-buf"
)


class DmaBuf(PyverbsCM):
    """*size* bytes of memory of the system, rounded up to whole pages, behind a dma-buf.

    gpu and gtt choose a GPU's memory in pyverbs; there is none here.
    PyverbsRDMAError: the system has no /dev/udmabuf, or refuses.
    """

    #: the dma-buf; drm_fd, mapped from map_offset on, is its memory, as for a GPU's
    fd: int
    drm_fd: int
    map_offset: int = 0
    #: in bytes
    size: int
    #: of a GPU's buffer: none
    handle: int = 0

    _rank = PyverbsCM.RANK_PD

    def __init__(self, size: int, gpu: int = 0, gtt: int = 0) -> None:  # noqa: ARG002
        self.size = -(-size // PAGESIZE) * PAGESIZE
        try:
            self.fd = self.drm_fd = _create(self.size)
        except (OSError, OverflowError, struct.error) as error:
            code = error.errno if isinstance(error, OSError) else None
            raise PyverbsRDMAError(
                f"Failed to allocate dmabuf of size {size}", code or -1, _REMEDY
            ) from None
        self._c = self.fd

    def _destroy(self, c: int) -> int:
        os.close(c)
        return 0


def _create(size: int) -> int:
    """Returns a dma-buf of a memfd of *size* bytes.  OSError: the kernel refuses."""
    memfd = os.memfd_create("nupa-dmabuf", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(memfd, size)
        fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        try:
            request = struct.pack("=IIQQ", memfd, _UDMABUF_FLAGS_CLOEXEC, 0, size)
            return int(fcntl.ioctl(device, _UDMABUF_CREATE, bytearray(request)))
        finally:
            os.close(device)
    finally:
        os.close(memfd)


@contextmanager
def mapped(fd: int, end: int, writing: bool) -> Iterator[mmap]:
    """Maps the first *end* bytes of the dma-buf *fd* while the processor uses them."""
    flags = _DMA_BUF_SYNC_WRITE if writing else _DMA_BUF_SYNC_READ
    try:
        memory = mmap(fd, end, access=ACCESS_WRITE if writing else ACCESS_READ)
    except (OSError, ValueError) as error:
        raise PyverbsError(f"Failed to map dma-buf of size {end}: {error}") from None
    with closing(memory):
        fcntl.ioctl(fd, _DMA_BUF_IOCTL_SYNC, struct.pack("=Q", flags))
        try:
            yield memory
        finally:
            fcntl.ioctl(fd, _DMA_BUF_IOCTL_SYNC, struct.pack("=Q", flags | _DMA_BUF_SYNC_END))
