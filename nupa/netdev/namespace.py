# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa net exec` 10 ms.
# ruff: noqa: PTH123
"""Network namespaces: found, entered, and run in (namespaces(7), ioctl_ns(2), setns(2)).

A process with CAP_SYS_ADMIN and CAP_NET_ADMIN works directly.  Any other process works in a user
namespace, in which it is root: that namespace owns its new network namespaces, and is entered
before them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn, TypeVar

from nupa.base.errors import LocalError, NupaError
from nupa.base.process import Process, of_pid

T = TypeVar("T")

# include/uapi/linux/sched.h, nsfs.h, mount.h, capability.h
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
_NS_GET_USERNS = 0xB701
_NS_GET_NSTYPE = 0xB703
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_MNT_DETACH = 2
_NEEDED = 1 << 12 | 1 << 21  # CAP_NET_ADMIN, CAP_SYS_ADMIN

_HOSTS = "/etc/hosts"
_FDS_MAX = 253  # SCM_MAX_FD: in one message (unix(7))
_MESSAGE_BYTES_MAX = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


class Netns(NamedTuple):
    """A network namespace: its path, and the inode that identifies it.

    holder: the process whose death frees it, if known; own: `net up` made it.
    """

    path: str
    inode: int
    holder: Process | None
    own: bool

    @property
    def alive(self) -> bool:
        try:
            os.close(self.open())
        except LocalError:
            return False
        return True

    def open(self) -> int:
        """Opens it and returns a descriptor, which the caller closes.  LocalError: gone, or
        forbidden."""
        try:
            # The files of a zombie cannot be opened.
            gone = self.holder is not None and not self.holder.alive
            fd = -1 if gone else os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            fd = -1
        except OSError as error:
            raise LocalError(
                f"cannot open the network namespace {self.path}: {error.strerror}", error.errno or 0
            ) from error
        if fd >= 0 and os.fstat(fd).st_ino == self.inode:
            return fd
        if fd >= 0:
            os.close(fd)
        raise LocalError(
            f"the network namespace {self.path} is gone: `nupa net up` makes what is missing",
            errno.ENOENT,
        )


def find(where: str) -> Netns:
    """Returns the namespace of a process (its number) or at a path, as --netns takes it.

    LocalError: no such process or file (ENOENT), or not a network namespace (EINVAL).
    """
    holder = of_pid(int(where)) if where.isdecimal() else None
    if where.isdecimal() and holder is None:
        raise LocalError(f"no process has the pid {where}", errno.ENOENT)
    # Absolute: it is stored, and used from other folders.
    path = os.path.abspath(where) if holder is None else f"/proc/{where}/ns/net"  # noqa: PTH100
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise LocalError(
            f"cannot open the network namespace {path}: {error.strerror}; "
            f"give the pid of a process of yours, or a path as in /run/netns",
            error.errno or 0,
        ) from error
    try:
        kind = fcntl.ioctl(fd, _NS_GET_NSTYPE)
    except OSError:
        kind = 0
    inode = os.fstat(fd).st_ino
    os.close(fd)
    if kind != CLONE_NEWNET:
        raise LocalError(f"{path} is not a network namespace", errno.EINVAL)
    return Netns(path, inode, holder, own=False)


def privileged() -> bool:
    """Tells whether this process may make network namespaces without a user namespace."""
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"CapEff:"):
                return int(line.split()[1], 16) & _NEEDED == _NEEDED
    return False


def unshare(flags: int) -> None:
    """Calls unshare(2).  OSError."""
    _check(_libc.unshare(flags), "unshare")


def enter(fd: int) -> None:
    """Moves this process, which has one thread, into the network namespace.  OSError: it cannot.

    Without privileges it becomes root of the user namespace that owns the network namespace.
    """
    if not privileged():
        user = fcntl.ioctl(fd, _NS_GET_USERNS)
        try:
            _check(_libc.setns(user, CLONE_NEWUSER), "setns to the user namespace")
        finally:
            os.close(user)
    _check(_libc.setns(fd, CLONE_NEWNET), "setns to the network namespace")


def enter_or_explain(netns: Netns) -> None:
    """Enters as enter(); LocalError says what to do."""
    fd = netns.open()
    try:
        enter(fd)
    except OSError as error:
        raise LocalError(
            f"cannot enter the network namespace {netns.path}: {error.strerror}; "
            f"be the user who made it, outside of any other `nupa shell`, or root",
            error.errno or 0,
        ) from error
    finally:
        os.close(fd)


def own_mounts() -> None:
    """Makes a mount namespace for this process, whose mounts nobody else sees.  OSError."""
    unshare(CLONE_NEWNS)
    _mount("", "/", "", _MS_REC | _MS_SLAVE)


def show_own_sys() -> None:
    """Makes /sys that of this network namespace, as ip-netns(8) does, in a namespace of
    own_mounts().

    Control groups stay where programs look for them.  OSError: the kernel refuses, as where a
    container hides parts of /sys.
    """
    before = os.open("/sys", os.O_PATH | os.O_CLOEXEC)
    try:
        # ST_RDONLY, ST_NOSUID, ST_NODEV and ST_NOEXEC are the MS_ flags of the same names; a user
        # namespace must keep those that are set (mount_namespaces(7)).
        _mount("nupa", "/sys", "sysfs", os.statvfs(before).f_flag & 0xF)
        groups = f"/proc/self/fd/{before}/fs/cgroup"
        if os.path.ismount(groups):
            _mount(groups, "/sys/fs/cgroup", "", _MS_BIND | _MS_REC)
    finally:
        os.close(before)


def show_hosts(addresses: Mapping[str, str]) -> None:
    """Adds names with their addresses to /etc/hosts, in a namespace of own_mounts().

    OSError: there is no such file, or the kernel refuses.
    """
    before = os.open(_HOSTS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with open(before, "rb", closefd=False) as file:
            rest = file.read()
        lines = "".join(f"{address} {name}\n" for name, address in addresses.items())
        # A file system for one file, which covers the folder only until the file covers the other.
        folder = os.path.dirname(_HOSTS)  # noqa: PTH120
        _mount("nupa", folder, "tmpfs", 0)
        try:
            with open(_HOSTS, "wb") as file:
                file.write(lines.encode() + rest)
            _mount(_HOSTS, f"/proc/self/fd/{before}", "", _MS_BIND)
        finally:
            _check(_libc.umount2(folder.encode(), _MNT_DETACH), f"umount {folder}")
    finally:
        os.close(before)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    done = _libc.mount(
        source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), None
    )
    _check(done, f"mount {target}")


def _check(rc: int, what: str) -> None:
    if rc < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def run_in(netns: Netns, work: Callable[[], tuple[T, list[int]]]) -> tuple[T, list[int]]:
    """Runs *work* in that namespace; returns its result, and its descriptors, which the caller
    closes.

    It runs in a child, since a process cannot leave a user namespace.  A NupaError is raised again
    here.
    """
    import pickle
    import socket

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        child = os.fork()
        if child == 0:
            _tell(theirs.fileno(), netns, work)
        theirs.close()
        try:
            data, fds, _, _ = socket.recv_fds(
                ours, _MESSAGE_BYTES_MAX, _FDS_MAX, socket.MSG_CMSG_CLOEXEC
            )
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if not data:
        raise LocalError(f"the work in the network namespace {netns.path} ended without a result")
    result = pickle.loads(data)
    if isinstance(result, NupaError):
        raise result
    return result, fds


def _tell(fd: int, netns: Netns, work: Callable[[], tuple[T, list[int]]]) -> NoReturn:
    import pickle
    import socket
    import traceback

    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        fds: list[int] = []
        result: T | NupaError
        try:
            enter_or_explain(netns)
            result, fds = work()
        except NupaError as error:
            result = error
        with socket.socket(fileno=fd) as told:
            socket.send_fds(told, [pickle.dumps(result)], fds)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
