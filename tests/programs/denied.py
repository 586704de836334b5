# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program to which seccomp denies process_vm_readv and process_vm_writev, as containers do.

usage: python denied.py COMMAND ...

The filter is a classic BPF program over struct seccomp_data (seccomp(2), <linux/seccomp.h>).  Its
numbers are those of <linux/filter.h>, <linux/audit.h> and unistd.h.  Children inherit it.  Imports
nothing but the standard library: it is run on its own.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2
_RET_ALLOW, _RET_ERRNO = 0x7FFF0000, 0x00050000
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NR_AT, _ARCH_AT = 0, 4  # in struct seccomp_data

#: Machine: AUDIT_ARCH_*, then the two system calls.
_NUMBERS = {
    "x86_64": (0xC000003E, 310, 311),
    "aarch64": (0xC00000B7, 270, 271),
}


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def _instructions(machine: str) -> bytes:
    """Packs each struct sock_filter: code, steps if true, steps if false, operand."""
    arch, *calls = _NUMBERS[machine]
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD_WORD, 0, 0, _ARCH_AT),
            (_JUMP_IF_EQUAL, 0, 3, arch),
            (_LOAD_WORD, 0, 0, _NR_AT),
            (_JUMP_IF_EQUAL, 2, 0, calls[0]),
            (_JUMP_IF_EQUAL, 1, 0, calls[1]),
            (_RETURN, 0, 0, _RET_ALLOW),
            (_RETURN, 0, 0, _RET_ERRNO | errno.EPERM),
        )
    )


def deny() -> None:
    """Denies these calls to this process and all that it starts.  OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(_instructions(platform.machine()))
    program = _Program(len(code) // 8, ctypes.cast(code, ctypes.c_void_p))
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), f"prctl{arguments[:2]} failed: no seccomp here?")


if __name__ == "__main__":
    deny()
    os.execvp(sys.argv[1], sys.argv[1:])
