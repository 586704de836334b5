# SPDX-License-Identifier: BSD-3-Clause
"""The probe of CMA: may one process reach another's memory, as the mover `cma` does?"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Callable

# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)

_libc = ctypes.CDLL(None, use_errno=True)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("len", ctypes.c_size_t))


def in_child(work: Callable[[], int]) -> int:
    """Returns the exit code of *work* in a child; 255 if it raised."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def probe_cma() -> int:
    """Tries process_vm_readv and process_vm_writev between siblings; returns 0 or their errno."""
    secret = ctypes.create_string_buffer(b"nupa")
    ready, told = os.pipe()
    holder = os.fork()
    if holder == 0:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # As the engine does, so that Yama's scope 1 admits peers.
        _libc.prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY)
        os.write(told, b"1")
        signal.pause()
        os._exit(0)
    os.close(told)

    def reach() -> int:
        # End of file: the holder was killed before it could write.
        if not os.read(ready, 1):
            return errno.EPERM
        copy = ctypes.create_string_buffer(4)
        here = ctypes.byref(_Iovec(ctypes.addressof(copy), 4))
        there = ctypes.byref(_Iovec(ctypes.addressof(secret), 4))
        for call in (_libc.process_vm_readv, _libc.process_vm_writev):
            # In another pid namespace, the pid may be another process.
            if call(holder, here, 1, there, 1, 0) != 4 or copy.raw != b"nupa":
                return ctypes.get_errno() or errno.EIO
        return 0

    try:
        return in_child(reach)
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        os.close(ready)
