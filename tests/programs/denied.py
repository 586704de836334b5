# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program to which seccomp denies system calls, as containers do.

usage: python denied.py [--only CALL] COMMAND ...

CALL: flock; or fcntl, whose commands for locks of open files are denied.  Without it,
process_vm_readv and process_vm_writev are.

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
from collections.abc import Sequence

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2
_RET_ALLOW, _RET_ERRNO = 0x7FFF0000, 0x00050000
_LOAD_WORD, _JUMP_IF_EQUAL, _JUMP_IF_MORE, _RETURN = 0x20, 0x15, 0x25, 0x06
_NR_AT, _ARCH_AT, _ARGUMENT_1_AT = 0, 4, 24  # in struct seccomp_data
_COPIES = ("process_vm_readv", "process_vm_writev")

#: Machine: AUDIT_ARCH_*.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS = {
    "x86_64": {"process_vm_readv": 310, "process_vm_writev": 311, "flock": 73, "fcntl": 72},
    "aarch64": {"process_vm_readv": 270, "process_vm_writev": 271, "flock": 32, "fcntl": 25},
}
#: From F_OFD_GETLK on, the commands of fcntl are locks of open files, up to F_OFD_SETLKW.
_BEFORE_LOCKS, _LAST_LOCK = 35, 38


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def _instructions(machine: str, calls: Sequence[str]) -> bytes:
    """Packs each struct sock_filter: code, steps if true, steps if false, operand."""
    numbers = [_NUMBERS[machine][call] for call in calls]
    checked = calls == ["fcntl"]  # its command, too
    argument = (
        (_LOAD_WORD, 0, 0, _ARGUMENT_1_AT),
        (_JUMP_IF_MORE, 0, 2, _BEFORE_LOCKS),
        (_JUMP_IF_MORE, 1, 0, _LAST_LOCK),
    )
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD_WORD, 0, 0, _ARCH_AT),
            (_JUMP_IF_EQUAL, 0, len(numbers) + 1, _ARCHITECTURES[machine]),
            (_LOAD_WORD, 0, 0, _NR_AT),
            *((_JUMP_IF_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)),
            (_RETURN, 0, 0, _RET_ALLOW),
            *(argument if checked else ()),
            (_RETURN, 0, 0, _RET_ERRNO | errno.EPERM),
            (_RETURN, 0, 0, _RET_ALLOW),
        )
    )


def deny(calls: Sequence[str] = _COPIES) -> None:
    """Denies these calls to this process and all that it starts.  OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(_instructions(platform.machine(), calls))
    program = _Program(len(code) // 8, ctypes.cast(code, ctypes.c_void_p))
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), f"prctl{arguments[:2]} failed: no seccomp here?")


if __name__ == "__main__":
    if sys.argv[1] == "--only":
        deny([sys.argv[2]])
        del sys.argv[1:3]
    else:
        deny()
    os.execvp(sys.argv[1], sys.argv[1:])
