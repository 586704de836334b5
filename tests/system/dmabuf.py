# SPDX-License-Identifier: BSD-3-Clause
"""Registers memory of /dev/udmabuf by the drop-in library's ibv_reg_dmabuf_mr and ibv_reg_mr_ex.

Stands alone and imports little: Python starts slowly in a guest.  It prints `registered`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from ctypes import POINTER, c_int, c_size_t, c_uint64, c_void_p

PAGE, SIZE = 4096, 1 << 20
UDMABUF_CREATE = 0x40187542
LOCAL_WRITE, ALL = 1, 15
MASK_IOVA, MASK_ADDR, MASK_FD, MASK_FD_OFFSET = 1, 2, 4, 8


class Mr(ctypes.Structure):
    _fields_ = [
        ("context", c_void_p),
        ("pd", c_void_p),
        ("addr", c_void_p),
        ("length", c_size_t),
        ("handle", ctypes.c_uint32),
        ("lkey", ctypes.c_uint32),
        ("rkey", ctypes.c_uint32),
    ]


class MrInitAttr(ctypes.Structure):
    _fields_ = [
        ("length", c_size_t),
        ("access", c_int),
        ("comp_mask", c_uint64),
        ("iova", c_uint64),
        ("addr", c_void_p),
        ("fd", c_int),
        ("fd_offset", c_uint64),
        ("dmah", c_void_p),
    ]


verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
verbs.ibv_get_device_list.restype = POINTER(c_void_p)
verbs.ibv_open_device.argtypes = [c_void_p]
verbs.ibv_alloc_pd.argtypes = [c_void_p]
for function in (verbs.ibv_open_device, verbs.ibv_alloc_pd):
    function.restype = c_void_p
verbs.ibv_reg_dmabuf_mr.argtypes = [c_void_p, c_uint64, c_size_t, c_uint64, c_int, c_int]
verbs.ibv_reg_mr_ex.argtypes = [c_void_p, POINTER(MrInitAttr)]
for function in (verbs.ibv_reg_dmabuf_mr, verbs.ibv_reg_mr_ex):
    function.restype = POINTER(Mr)
verbs.ibv_dereg_mr.argtypes = [POINTER(Mr)]


def make_dmabuf() -> int:
    memfd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, SIZE)
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    device = os.open("/dev/udmabuf", os.O_RDWR)
    return int(
        fcntl.ioctl(device, UDMABUF_CREATE, bytearray(struct.pack("=IIQQ", memfd, 1, 0, SIZE)))
    )


def main() -> None:
    pd = verbs.ibv_alloc_pd(verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0]))
    fd = make_dmabuf()

    mr = verbs.ibv_reg_dmabuf_mr(pd, PAGE, SIZE - PAGE, 2 * PAGE, fd, ALL)
    assert mr, os.strerror(ctypes.get_errno())
    assert (mr[0].addr, mr[0].length, mr[0].pd) == (PAGE, SIZE - PAGE, pd)
    assert mr[0].lkey == mr[0].rkey != 0
    assert verbs.ibv_dereg_mr(mr) == 0
    assert not verbs.ibv_reg_dmabuf_mr(pd, PAGE, SIZE - PAGE + 1, PAGE, fd, ALL)
    assert ctypes.get_errno() == errno.EINVAL

    whole = MASK_FD | MASK_FD_OFFSET | MASK_IOVA
    attr = MrInitAttr(PAGE, LOCAL_WRITE, whole, 0, None, fd, PAGE)
    mr = verbs.ibv_reg_mr_ex(pd, attr)
    assert mr, os.strerror(ctypes.get_errno())
    assert (mr[0].addr, mr[0].length) == (PAGE, PAGE)
    assert verbs.ibv_dereg_mr(mr) == 0
    for mask in (MASK_FD | MASK_IOVA, MASK_FD | MASK_FD_OFFSET, whole | MASK_ADDR):
        attr.comp_mask = mask
        assert not verbs.ibv_reg_mr_ex(pd, attr)
        assert ctypes.get_errno() == errno.EINVAL
    print("registered")


if __name__ == "__main__":
    main()
