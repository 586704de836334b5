# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH112, PTH113, PTH116, PTH118, PTH119, PTH123
"""Tells why the libraries of `nupa run` will not be loaded into a program, where its file shows it.

The loader (ld.so(8)) drops LD_PRELOAD and LD_LIBRARY_PATH of programs that gain rights, and there
is none in a static program.  The program would see no RDMA device, without a word.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Mapping

# elf(5)
_IDENT = 16
_HEADER_BYTES = 64
_CLASS_AT, _DATA_AT, _CLASS_64 = 4, 5, 2
_ET_DYN = 3
_PT_DYNAMIC, _PT_INTERP = 2, 3
_DT_SONAME = 14
_TEXT_BYTES_MAX = 4096  # of an interpreter's path, and of a dynamic section
_TABLE_BYTES_MAX = 65536  # of program headers, as in the kernel

_PR_GET_NO_NEW_PRIVS = 39  # prctl(2)


def unreached(command: str, env: Mapping[str, str], library: str) -> str | None:
    """Returns why *command* will not load *library*, a file of ours; None: nothing says so."""
    path = _find(command, env)
    try:
        if path and os.path.isfile(path):  # opening a FIFO would wait
            path = _interpreter(path)
        if not path or not os.path.isfile(path):
            return None
        return _gains_rights(path) or _cannot_load(path, library)
    except (OSError, OverflowError, struct.error):
        return None  # that it cannot be run is said when it is run


def _find(command: str, env: Mapping[str, str]) -> str | None:
    if "/" in command:
        return command
    for folder in os.get_exec_path(env):
        path = os.path.join(folder, command)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def _interpreter(path: str) -> str:
    """Returns the interpreter that a script names (execve(2)), else *path*."""
    with open(path, "rb") as file:
        line = file.readline(256)
    words = line[2:].split()
    return os.fsdecode(words[0]) if line[:2] == b"#!" and words else path


def _gains_rights(path: str) -> str | None:
    found = os.stat(path)
    gains = None
    if found.st_mode & stat.S_ISUID and found.st_uid != os.geteuid():
        gains = f"set-uid (user {found.st_uid})"
    elif found.st_mode & stat.S_ISGID and found.st_mode & stat.S_IXGRP:
        gains = f"set-gid (group {found.st_gid})" if found.st_gid != os.getegid() else None
    elif os.geteuid() != 0 and _has_capabilities(path):
        gains = "given capabilities (getcap)"
    if not gains or os.statvfs(path).f_flag & os.ST_NOSUID or _no_new_rights():
        return None
    return (
        f"{path} is {gains}: the loader keeps our libraries from it and its children, which see no "
        "RDMA device; use `nupa run` with those rights instead"
    )


def _has_capabilities(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def _no_new_rights() -> bool:
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)


def _cannot_load(path: str, library: str) -> str | None:
    with open(library, "rb") as file:
        ours = file.read(_HEADER_BYTES)
    with open(path, "rb") as file:
        theirs = file.read(_HEADER_BYTES)
        if theirs[:4] != b"\x7fELF" or len(theirs) < _HEADER_BYTES:
            return None
        machine = slice(18, 20)
        if theirs[_CLASS_AT : _DATA_AT + 1] != ours[_CLASS_AT : _DATA_AT + 1]:
            bits = 64 if theirs[_CLASS_AT] == _CLASS_64 else 32
            why = f"is a {bits}-bit program, and our libraries are not"
        elif theirs[machine] != ours[machine]:
            why = "is for another processor than our libraries"
        else:
            loader = _loader(file.fileno(), theirs)
            if loader is None:
                why = "is linked statically, so it has a libibverbs of its own, or none"
            elif os.path.basename(loader).startswith("ld-musl"):
                why = "uses the C library musl, and our libraries need glibc"
            else:
                return None
    return f"{path} {why}: it sees no RDMA device; programs that it starts may"


def _loader(fd: int, header: bytes) -> str | None:
    """Returns the path of the loader; "" for a loader itself; None: the program has none."""
    wide = header[_CLASS_AT] == _CLASS_64
    (kind,) = struct.unpack_from("=H", header, _IDENT)
    (table,) = struct.unpack_from("=Q" if wide else "=I", header, 32 if wide else 28)
    _, count = struct.unpack_from("=HH", header, 54 if wide else 42)
    # p_type, [p_flags,] p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, [p_flags,] p_align
    entry = struct.Struct("=IIQQQQQQ" if wide else "=IIIIIIII")
    entries = os.pread(fd, min(count * entry.size, _TABLE_BYTES_MAX), table)
    dynamic = b""
    for what, *fields in entry.iter_unpack(entries):
        offset, length = (fields[1], fields[4]) if wide else (fields[0], fields[3])
        if what == _PT_INTERP:
            return os.fsdecode(os.pread(fd, min(length, _TEXT_BYTES_MAX), offset).rstrip(b"\0"))
        if what == _PT_DYNAMIC:
            dynamic = os.pread(fd, min(length, _TEXT_BYTES_MAX), offset)
    if kind == _ET_DYN:  # a static one has no soname
        words = struct.iter_unpack("=qQ" if wide else "=iI", dynamic)
        if any(tag == _DT_SONAME for tag, _ in words):
            return ""
    return None
