# SPDX-License-Identifier: BSD-3-Clause
"""Probes: each tries one thing and returns what it found, or raises ProbeError."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import nupa
from nupa.base.errors import LocalError, NupaError
from nupa.doctor.cma import in_child, probe_cma

# include/uapi/linux/sched.h, userfaultfd.h
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_UFFD_USER_MODE_ONLY = 1
_UFFDIO_API, _UFFD_API = 0xC018AA3F, 0xAA
_UFFD_FEATURES = 1 << 0 | 1 << 12  # PAGEFAULT_FLAG_WP, WP_HUGETLBFS_SHMEM
# x86_64 has numbers of its own; newer architectures share theirs.
_SYS_USERFAULTFD = {"x86_64": 323}.get(platform.machine(), 282)
_SYS_FUTEX = {"x86_64": 202}.get(platform.machine(), 98)
_FUTEX_WAKE = 1

_MIB = 1 << 20
_ROOM_BYTES = 64 * _MIB  # two programs with some tens of queue pairs
_BELL_WAIT_S = 2.0
GUESTS_POLL = "where guests share a fabric, processes look for messages by themselves"

_libc = ctypes.CDLL(None, use_errno=True)


class ProbeError(Exception):
    """A probe failed; *follows* and *remedy* replace those of its row unless they are empty."""

    def __init__(self, found: str, follows: str = "", remedy: str = "") -> None:
        super().__init__(found)
        self.found, self.follows, self.remedy = found, follows, remedy


def _said(error: OSError) -> str:
    return error.strerror or str(error)


def engine() -> str:
    from nupa.fabric import Fabric

    try:
        with Fabric(hosts=2) as fabric:
            return f"a fabric of {len(fabric.hosts)} hosts in this process"
    except NupaError as error:
        raise ProbeError(str(error)) from error


def drop_in() -> str:
    library = Path(nupa.__file__).parent / "lib" / "libibverbs.so.1"
    if not library.exists():
        raise ProbeError(f"no {library}")
    return str(library)


# Only the shim knows a library there.
_OPENS_ITS_OWN = "import ctypes; ctypes.CDLL('/nonexistent/libibverbs.so.1')"


def own_libraries() -> str:
    """Opens a libibverbs by its path, in a process with the libraries that `nupa run` preloads."""
    folder = Path(nupa.__file__).parent / "lib"
    names = ("libnupa_shim.so", "libibverbs.so.1", "librdmacm.so.1")
    preload = ":".join(str(folder / name) for name in names)
    env = dict(os.environ, LD_PRELOAD=preload, NUPA_PRELOAD="1")
    done = subprocess.run(
        [sys.executable, "-S", "-c", _OPENS_ITS_OWN], env=env, capture_output=True, text=True
    )
    if done.returncode or done.stderr:
        lines = done.stderr.splitlines()
        raise ProbeError(lines[-1] if lines else f"a program ended with {done.returncode}")
    return "preloaded"


def folder() -> str:
    from nupa.fabric.registry import file_system, open_folder

    path = file_system()
    try:
        with suppress(FileNotFoundError), open_folder():
            pass
        fd = os.open(path, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except LocalError as error:
        raise ProbeError(str(error)) from error
    except OSError as error:
        raise ProbeError(_said(error)) from error
    try:
        os.posix_fallocate(fd, 0, _MIB)
    except OSError as error:
        remedy = f"free space in {path}, or set NUPA_DIR to a folder in a larger tmpfs"
        raise ProbeError(f"1 MiB cannot be allocated: {error.strerror}", remedy=remedy) from error
    finally:
        os.close(fd)
    return "files can be made there"


def room() -> str:
    from nupa.fabric.registry import file_system

    path = file_system()
    try:
        found = os.statvfs(path)
    except OSError as error:
        raise ProbeError(_said(error)) from error
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    text = f"{free // _MIB} MiB free of {size // _MIB} MiB in {path}"
    if free < _ROOM_BYTES:
        raise ProbeError(text)
    return text


def cma() -> str:
    error = probe_cma()
    if error:
        raise ProbeError(f"process_vm_readv, _writev of a sibling: {os.strerror(error)}")
    return "process_vm_readv and _writev reach a sibling"


def yama() -> str | tuple[str, str]:
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return "no Yama", "CMA is not limited by it"
    if scope >= 2:
        raise ProbeError(str(scope))
    return str(scope)


def pidfd() -> str:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise ProbeError(_said(error)) from error
    return "pidfd_open works"


def futex() -> str:
    word = ctypes.c_uint32(0)
    if _libc.syscall(_SYS_FUTEX, ctypes.byref(word), _FUTEX_WAKE, 1, None, None, 0):
        raise ProbeError(os.strerror(ctypes.get_errno()))
    return "FUTEX_WAKE works"


def doorbell() -> str | tuple[str, str]:
    """Connects to NUPA_BELL, which `nupa run` and `nupa vm run` set; it wakes other kernels."""
    path = os.environ.get("NUPA_BELL")
    if not path:
        return "NUPA_BELL names none", GUESTS_POLL
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_BELL_WAIT_S)
            connection.connect(path)
    except OSError as error:
        raise ProbeError(f"no server answers at {path} (NUPA_BELL): {_said(error)}") from error
    return f"{path} answers"


def cores() -> str:
    count = len(os.sched_getaffinity(0))
    if count < 2:
        raise ProbeError(f"{count} usable")
    return f"{count} usable"


def program(name: str) -> Callable[[], str]:
    """Returns a probe for *name* in PATH."""

    def probe() -> str:
        found = shutil.which(name)
        if not found:
            raise ProbeError(f"no {name} in PATH")
        return found

    return probe


def userfaultfd() -> str | tuple[str, str]:
    found: str | tuple[str, str] = "write-protects shared memory"
    fd = _libc.syscall(_SYS_USERFAULTFD, os.O_CLOEXEC)
    if fd < 0:
        fd = _libc.syscall(_SYS_USERFAULTFD, os.O_CLOEXEC | _UFFD_USER_MODE_ONLY)
        found = (
            "write-protects shared memory",
            "registered memory is promoted; a system call that writes to it in that instant "
            "fails with EFAULT (unless vm.unprivileged_userfaultfd is 1)",
        )
    if fd < 0:
        raise ProbeError(os.strerror(ctypes.get_errno()))
    try:
        fcntl.ioctl(fd, _UFFDIO_API, struct.pack("QQQ", _UFFD_API, _UFFD_FEATURES, 0))
    except OSError as error:
        raise ProbeError("not for shared memory", remedy="use Linux 5.19 or later") from error
    finally:
        os.close(fd)
    return found


def user_namespaces() -> str:
    def enter() -> int:
        entered = _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0
        return 0 if entered else ctypes.get_errno()

    error = in_child(enter)
    if error:
        raise ProbeError(f"unshare: {os.strerror(error)}")
    return "unshare works"


def tun() -> str:
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise ProbeError(f"/dev/net/tun: {error.strerror}") from error
    return "/dev/net/tun opens"


def netdev() -> str:
    from nupa.doctor.netdev import probe

    found = "an interface in a namespace of its own"
    try:
        no_sys = probe()
    except NupaError as error:
        what, _, remedy = str(error).partition("; ")
        raise ProbeError(what, remedy=remedy) from error
    if no_sys:
        follows = "`nupa net` works; programs in it see the /sys of outside"
        raise ProbeError(f"{found}; {no_sys}", follows, "do not mask parts of /sys")
    return found
