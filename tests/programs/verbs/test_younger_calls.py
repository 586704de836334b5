# SPDX-License-Identifier: BSD-3-Clause
"""Functions of libibverbs.so.1 since v60, called as a program calls them."""

from __future__ import annotations

import errno
import json
import sys
from typing import Any

import pytest

from tests.programs.stage import Stage

# Structures and constants are those of rdma-core v65.
PROGRAM = r"""
import ctypes, json, mmap, sys
from ctypes import POINTER, byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p

class Attr(ctypes.Structure):
    _fields_ = [("length", c_size_t), ("access", c_int), ("comp_mask", c_uint64),
                ("iova", c_uint64), ("addr", c_void_p), ("fd", c_int), ("fd_offset", c_uint64),
                ("dmah", c_void_p), ("buf", c_void_p)]

IOVA, ADDR, FD, BUF = 1, 2, 4, 32
lib = ctypes.CDLL("libibverbs.so.1", use_errno=True)

def call(name, *arguments, restype=c_void_p):
    function = getattr(lib, name)
    function.restype = restype
    ctypes.set_errno(0)
    return function(*arguments)

def outcome(mr):
    error = ctypes.get_errno()
    if mr:
        assert call("ibv_dereg_mr", c_void_p(mr), restype=c_int) == 0
    return "registered" if mr else error

out = {}
devices = ctypes.cast(call("ibv_get_device_list", None), POINTER(c_void_p))
context = c_void_p(call("ibv_open_device", c_void_p(devices[0])))
speed = c_uint64()
out["speed"] = [call("ibv_query_port_speed", context, c_uint32(port), byref(speed), restype=c_int)
                for port in (0, 1, 2, 257)]
out["units"] = speed.value
pd, other = (c_void_p(call("ibv_alloc_pd", context)) for _ in range(2))
buf = c_void_p()
size = mmap.PAGESIZE + 1
out["no size"] = call("ibv_alloc_buf", pd, c_size_t(0), byref(buf)), ctypes.get_errno()
addr = call("ibv_alloc_buf", pd, c_size_t(size), byref(buf))
out["aligned"] = addr % mmap.PAGESIZE == 0

def reg_buf(of, at, length):
    return outcome(call("ibv_reg_buf_mr", of, buf, c_void_p(at), c_size_t(length), c_int(1)))

out["all of it"] = reg_buf(pd, addr, size)
out["its end"] = reg_buf(pd, addr + size - 1, 1)
out["one past"] = [reg_buf(pd, addr, size + 1), reg_buf(pd, addr + 1, size),
                   reg_buf(pd, addr - 1, 1), reg_buf(pd, addr, 2**64 - 1)]
out["another PD"] = reg_buf(other, addr, size)

def reg_ex(mask, length=size, at=addr, of=buf):
    attr = Attr(length, 1, mask, 0x10000, at, -1, 0, None, of)
    return outcome(call("ibv_reg_mr_ex", pd, byref(attr)))

out["ex"] = [reg_ex(BUF | ADDR), reg_ex(BUF | ADDR | IOVA), reg_ex(ADDR)]
out["ex refused"] = [reg_ex(BUF), reg_ex(BUF | ADDR | FD), reg_ex(BUF | ADDR, size + 1),
                     reg_ex(BUF | ADDR, of=None)]
out["export"] = (call("ibv_export_buf_dmabuf_fd", buf, restype=c_int), ctypes.get_errno())
out["export dm"] = (call("ibv_dm_export_dmabuf_fd", None, restype=c_int), ctypes.get_errno())
call("ibv_free_buf", buf)
caps = c_uint64 * 2
out["counters"] = [
    call("_ibv_query_comp_cntr_caps", context, byref(caps()), c_size_t(16), restype=c_int),
    call("ibv_create_comp_cntr", context, byref(Attr())), ctypes.get_errno()]
for each in (pd, other):
    assert call("ibv_dealloc_pd", each, restype=c_int) == 0
assert call("ibv_close_device", context, restype=c_int) == 0
json.dump(out, sys.stdout)
"""


@pytest.fixture
def said(fabric: Stage) -> dict[str, Any]:
    """Returns the lines that PROGRAM printed."""
    text = fabric.run(fabric.nupa_run([sys.executable, "-c", PROGRAM])).check().stdout
    found: dict[str, Any] = json.loads(text)
    return found


def test_functions_since_v60_do_what_their_man_pages_say(said: dict[str, Any]) -> None:
    assert said["speed"] == [errno.EINVAL, 0, errno.EINVAL, errno.EINVAL]
    assert said["units"] == 1000  # 100 Gb/s
    assert said["no size"] == [None, errno.EINVAL]
    assert said["aligned"]
    assert said["all of it"] == said["its end"] == "registered"
    assert said["one past"] == [errno.EINVAL] * 4
    assert said["another PD"] == errno.EINVAL
    assert said["ex"] == ["registered"] * 3
    assert said["ex refused"] == [errno.EINVAL] * 4
    assert said["export"] == [-1, errno.ENODATA]
    assert said["export dm"] == [-1, errno.EOPNOTSUPP]
    assert said["counters"] == [errno.EOPNOTSUPP, None, errno.EOPNOTSUPP]
