# SPDX-License-Identifier: BSD-3-Clause
"""Asks the machine what it can do: tries each thing instead of reading versions."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import shutil
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.doctor.cma import in_child, probe_cma

# include/uapi/linux/sched.h, userfaultfd.h
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_UFFD_USER_MODE_ONLY = 1
_UFFDIO_API, _UFFD_API = 0xC018AA3F, 0xAA
_UFFD_FEATURES = 1 << 0 | 1 << 12  # PAGEFAULT_FLAG_WP, WP_HUGETLBFS_SHMEM
_NOT_PROMOTED = "registered memory is not promoted to shared memory; cma and relay move it"
# By machine: x86_64 has numbers of its own, all newer ones share theirs.
_SYS_USERFAULTFD = {"x86_64": 323}.get(platform.machine(), 282)
_SYS_FUTEX = {"x86_64": 202}.get(platform.machine(), 98)
_FUTEX_WAKE = 1

_MIB = 1 << 20
_ROOM_BYTES = 64 * _MIB  # two programs with some tens of queue pairs

_BELL_WAIT_S = 2.0

OK, LIMITED, MISSING = "ok", "limited", "missing"


class Check(NamedTuple):
    """state: ok, limited (it goes on without) or missing (nothing runs without).

    found: what was seen; follows: what that means; remedy: what to do, empty if nothing.
    """

    name: str
    state: str
    found: str
    follows: str
    remedy: str = ""


_libc = ctypes.CDLL(None, use_errno=True)


def check_all() -> Iterator[Check]:
    """Each check, in the order in which a reader wants to know."""
    for check in (
        _engine,
        _drop_in,
        _folder,
        _cma,
        _yama,
        _pidfd,
        _futex,
        _doorbell,
        _cores,
        _perftest,
        _ibverbs_utils,
        _userfaultfd,
        _user_namespaces,
        _tun,
        _netdev,
    ):
        yield check()


def _engine() -> Check:
    from nupa.fabric import Fabric, NupaError

    try:
        with Fabric(hosts=2) as fabric:
            found = f"a fabric of {len(fabric.hosts)} hosts in this process"
    except NupaError as error:
        return Check("engine", MISSING, str(error), "no fabric can be made", "see the message")
    return Check("engine", OK, found, "fabrics within one process work")


def _drop_in() -> Check:
    library = Path(__file__).resolve().parent.parent / "lib" / "libibverbs.so.1"
    if library.exists():
        return Check("libibverbs", OK, str(library), "`nupa run` runs verbs programs unmodified")
    return Check(
        "libibverbs",
        LIMITED,
        f"no {library}",
        "`nupa run` cannot give programs its verbs; nupa.verbs works",
        "install the package: `pip install .`, or `make build` in a checkout",
    )


def _folder() -> Check:
    from nupa.fabric.registry import file_system, folder, open_folder

    path = file_system()
    name = f"segments in {folder()}"
    try:
        with suppress(FileNotFoundError), open_folder():
            pass
    except LocalError as error:
        return Check(
            name,
            MISSING,
            str(error),
            "no named fabric can be made, so no `nupa run`",
            "set NUPA_DIR to a folder of your own in a tmpfs",
        )
    try:
        room = os.statvfs(path)
        fd = os.open(path, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return Check(
            name,
            MISSING,
            error.strerror or str(error),
            "no named fabric can be made, so no `nupa run`",
            "set NUPA_DIR to a folder in a tmpfs that you may write to",
        )
    try:
        os.posix_fallocate(fd, 0, _MIB)
    except OSError as error:
        return Check(
            name,
            MISSING,
            f"1 MiB cannot be allocated: {error.strerror}",
            "no named fabric can be made, so no `nupa run`",
            _shm_remedy(path),
        )
    finally:
        os.close(fd)
    free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    found = f"{free // _MIB} MiB free of {size // _MIB} MiB"
    if free < _ROOM_BYTES:
        return Check(
            name, LIMITED, found, "large fabrics and many connections fail", _shm_remedy(path)
        )
    return Check(name, OK, found, "fabrics have room")


def _shm_remedy(path: str) -> str:
    return (
        f"remove files from {path}, or make it larger "
        f"(docker run --shm-size=1g; mount -o remount,size=1g {path})"
    )


def _cma() -> Check:
    error = probe_cma()
    if error == 0:
        found = "process_vm_readv and _writev reach a sibling"
        return Check("CMA", OK, found, "bulk moves in one copy (cma)")
    return Check(
        "CMA",
        LIMITED,
        f"process_vm_readv, _writev of a sibling: {os.strerror(error)}",
        "bulk moves through the channel (relay): slower, as correct",
        "allow process_vm_readv and process_vm_writev in the seccomp profile "
        "(docker run --cap-add SYS_PTRACE), and Yama's ptrace_scope below 2",
    )


def _yama() -> Check:
    path = Path("/proc/sys/kernel/yama/ptrace_scope")
    name = "Yama ptrace_scope"
    try:
        scope = int(path.read_text())
    except (OSError, ValueError):
        return Check(name, OK, "no Yama", "CMA is not limited by it")
    if scope < 2:
        return Check(name, OK, str(scope), "the engine lets its peers in")
    return Check(
        name,
        LIMITED,
        str(scope),
        "CMA needs CAP_SYS_PTRACE, else bulk moves by relay",
        "sysctl kernel.yama.ptrace_scope=1",
    )


def _pidfd() -> Check:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return Check(
            "pidfd",
            LIMITED,
            error.strerror or str(error),
            "the death of a peer is seen late",
            "use Linux 5.3 or newer, and allow pidfd_open in the seccomp profile",
        )
    return Check("pidfd", OK, "pidfd_open works", "the death of a peer is seen at once")


def _futex() -> Check:
    word = ctypes.c_uint32(0)
    if _libc.syscall(_SYS_FUTEX, ctypes.byref(word), _FUTEX_WAKE, 1, None, None, 0) == 0:
        return Check("futex", OK, "FUTEX_WAKE works", "sleeping ends by a doorbell")
    found = os.strerror(ctypes.get_errno())
    return Check("futex", MISSING, found, "nobody can be woken", "allow futex in seccomp")


def _doorbell() -> Check:
    """How processes of other kernels are woken; `nupa run` and `nupa vm run` set NUPA_BELL."""
    polling = "where guests share a fabric, processes look for messages by themselves"
    path = os.environ.get("NUPA_BELL")
    if not path:
        return Check("doorbell", OK, "NUPA_BELL names none", polling)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_BELL_WAIT_S)
            connection.connect(path)
    except OSError as error:
        return Check(
            "doorbell",
            LIMITED,
            f"nobody answers at {path}, which NUPA_BELL names: {error.strerror or error}",
            polling,
            "`nupa vm down`, and `nupa vm up --kind ivshmem --doorbell`",
        )
    return Check("doorbell", OK, f"{path} answers", "guests that share a fabric wake by interrupts")


def _cores() -> Check:
    count = len(os.sched_getaffinity(0))
    found = f"{count} usable"
    if count >= 2:
        return Check("cores", OK, found, "two polling programs run beside each other")
    return Check(
        "cores",
        LIMITED,
        found,
        "two polling programs take turns: correct, with high latency",
        "give it two cores (taskset, cpuset, docker run --cpus=2)",
    )


def _program(name: str, package: str, what: str) -> Check:
    found = shutil.which(name)
    if found:
        return Check(package, OK, found, f"{what} can be run")
    remedy = f"apt-get install {package}"
    return Check(package, LIMITED, f"no {name} in PATH", f"{what} cannot be run", remedy)


def _perftest() -> Check:
    return _program("ib_write_bw", "perftest", "ib_write_bw and the others")


def _ibverbs_utils() -> Check:
    return _program("ibv_rc_pingpong", "ibverbs-utils", "ibv_devinfo and the pingpongs")


def _userfaultfd() -> Check:
    fd = _libc.syscall(_SYS_USERFAULTFD, os.O_CLOEXEC)
    detail = "registered memory is promoted; system calls that write to it meanwhile wait"
    if fd < 0:
        fd = _libc.syscall(_SYS_USERFAULTFD, os.O_CLOEXEC | _UFFD_USER_MODE_ONLY)
        detail = (
            "registered memory is promoted; a system call that writes to it in that instant "
            "fails with EFAULT (unless vm.unprivileged_userfaultfd is 1)"
        )
    if fd < 0:
        return Check(
            "userfaultfd",
            LIMITED,
            os.strerror(ctypes.get_errno()),
            _NOT_PROMOTED,
            "allow userfaultfd in the seccomp profile",
        )
    try:
        fcntl.ioctl(fd, _UFFDIO_API, struct.pack("QQQ", _UFFD_API, _UFFD_FEATURES, 0))
    except OSError:
        remedy = "use Linux 5.19 or later"
        return Check("userfaultfd", LIMITED, "not for shared memory", _NOT_PROMOTED, remedy)
    finally:
        os.close(fd)
    return Check("userfaultfd", OK, "write-protects shared memory", detail)


def _user_namespaces() -> Check:
    def enter() -> int:
        entered = _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0
        return 0 if entered else ctypes.get_errno()

    error = in_child(enter)
    if error == 0:
        return Check(
            "user namespaces",
            OK,
            "unshare works",
            "a network of one's own without root is possible",
        )
    return Check(
        "user namespaces",
        LIMITED,
        f"unshare: {os.strerror(error)}",
        "a network of one's own needs root; RDMA does not",
        "sysctl kernel.unprivileged_userns_clone=1, or "
        "kernel.apparmor_restrict_unprivileged_userns=0",
    )


def _tun() -> Check:
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return Check(
            "TUN",
            LIMITED,
            f"/dev/net/tun: {error.strerror}",
            "no network interface can be made; RDMA needs none",
            "modprobe tun, or docker run --device /dev/net/tun",
        )
    return Check("TUN", OK, "/dev/net/tun opens", "a network interface can be made")


def _netdev() -> Check:
    from nupa.doctor.netdev import probe
    from nupa.fabric import NupaError

    try:
        no_sys = probe()
    except NupaError as error:
        what, _, remedy = str(error).partition("; ")
        return Check("netdev", LIMITED, what, "`nupa net` does not work; RDMA does", remedy)
    found = "an interface in a namespace of its own"
    if no_sys:
        follows = "`nupa net` works; programs in it see the /sys of outside"
        return Check("netdev", LIMITED, f"{found}; {no_sys}", follows, "do not mask parts of /sys")
    return Check("netdev", OK, found, "`nupa net up` gives each host one")
