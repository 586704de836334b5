# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH108, PTH113, PTH118, PTH202, PTH208
"""Where fabrics are kept, who uses them, and when they go.

A fabric NAME of a user is the file nupa-UID-NAME in /dev/shm (NUPA_DIR overrides the folder).
Beside it lies .nupa-UID-NAME.files, what its programs read of their device (csrc/shim), if any did.
Three kinds of locks, all of which the kernel drops when their holder dies:

* The *control lock*, flock on nupa-UID.lock: held for moments, by whoever makes or removes a
  fabric, sets a port or chooses a host.  The file is there only while somebody holds or awaits it.
* A *use*, a shared flock on the segment: held by each `nupa run`, attached process and open
  Fabric.  An exclusive one that succeeds proves that nobody uses the fabric.
* A *lease* of a host, a byte-range lock (fcntl(2), open file description locks) on the segment, one
  byte for each `nupa run`, so that two that start together see each other before their programs
  attach.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from nupa.fabric.errors import LocalError, NupaError
from nupa.fabric.segment import Segment

DEFAULT_NAME = "default"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,31}")

# Far behind the segment's end (a file may be locked there), one range of bytes a host.
_LEASES_OFF = 1 << 60
_LEASES_PER_HOST = 1 << 16


def folder() -> str:
    """The folder of all segments."""
    return os.environ.get("NUPA_DIR") or "/dev/shm"


def path_of(name: str) -> str:
    """The segment of that name.  LocalError if it is no name."""
    if not _NAME.fullmatch(name):
        raise LocalError(
            f"{name!r} is no name for a fabric: use 1 to 32 letters, digits, '_', '-' and '.', "
            f"first a letter, a digit or '_'",
            errno.EINVAL,
        )
    return os.path.join(folder(), f"nupa-{_user()}-{name}")


def find(name: str) -> str:
    """As path_of(), but what has a slash is a path: of memory that machines share."""
    return name if "/" in name else path_of(name)


def reference(name: str, path: str) -> str:
    """What find() takes to find the fabric *name* at *path*: one or the other."""
    return name if os.path.abspath(path_of(name)) == path else path  # noqa: PTH100


def _user() -> str:
    """Whose fabrics are meant.  A program in the user namespace of `nupa shell` is root there, and
    NUPA_UID says who started it."""
    user = os.environ.get("NUPA_UID") or str(os.geteuid())
    if not user.isdecimal():
        raise LocalError(f"NUPA_UID is {user!r}: it is a user's number", errno.EINVAL)
    return user


def names() -> list[str]:
    """The names of this user's fabrics, sorted; damaged ones too."""
    return names_of("", "")


def names_of(before: str, after: str) -> list[str]:
    """The names of fabrics for which there is a segment's name between *before* and *after*."""
    prefix = f"{before}nupa-{_user()}-"
    found = []
    for entry in _entries():
        name = entry.removeprefix(prefix).removesuffix(after)
        if entry == f"{prefix}{name}{after}" and _NAME.fullmatch(name):
            found.append(name)
    return sorted(found)


def _entries() -> list[str]:
    try:
        return os.listdir(folder())
    except OSError as error:
        raise LocalError(
            f"cannot list the folder of fabrics, {folder()}: {error.strerror}; "
            f"NUPA_DIR names another one",
            error.errno or 0,
        ) from error


def control_lock() -> AbstractContextManager[None]:
    """Holds this user's control lock."""
    return locked(os.path.join(folder(), f"nupa-{_user()}.lock"))


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Holds the lock that is this file, which is there only meanwhile."""
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise LocalError(
                f"cannot lock {path}: {error.strerror}; NUPA_DIR names another folder",
                error.errno or 0,
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # The holder before us removed it: what we locked is no longer the lock.
            if not _is_file_at(fd, path):
                continue
            try:
                yield
            finally:
                remove(path)
            return
        finally:
            os.close(fd)


def _is_file_at(fd: int, path: str) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def remove(path: str) -> None:
    """Removes the file, if it is still there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def remove_shown(path: str) -> None:
    """Removes the files that programs of the segment at *path* were shown (csrc/shim/tree.c), and
    the socket of a fabric manager that died (nupa/cxl/fm/server.py)."""
    head, name = os.path.split(path)
    remove(os.path.join(head, f".{name}.fm"))
    shown = os.path.join(head, f".{name}.files")
    if os.path.lexists(shown):
        import shutil  # takes 10 ms

        shutil.rmtree(shown, ignore_errors=True)


def use(segment: Segment) -> None:
    """Counts this open segment as a user.  Under the control lock nobody removes it meanwhile."""
    fcntl.flock(segment.fd, fcntl.LOCK_SH)


def in_use(path: str) -> bool:
    """Whether anybody uses the segment.  What is no file of ours to open is not in use."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def collect(name: str) -> bool:
    """Under the control lock: removes an automatic fabric that nobody uses.  True if it did.

    Also a file that its maker died over: makers hold the control lock until it is whole.
    """
    path = path_of(name)
    try:
        segment = Segment.open(path)
    except NupaError as error:
        empty = os.path.isfile(path) and os.path.getsize(path) == 0
        if error.errno != errno.ENODATA and not empty:
            return False
    else:
        auto = segment.auto
        segment.close()
        if not auto:
            return False
    if in_use(path):
        from nupa.fabric.holders import dying_are_gone

        if not dying_are_gone(path):
            return False
    remove(path)
    remove_shown(path)
    return True


def collect_all() -> None:
    """Removes what no fabric should leave behind: automatic fabrics without a user."""
    found = names()
    if found:
        with control_lock():
            for name in found:
                collect(name)


# struct flock, fcntl(2): type, whence, start, len, pid; native alignment.
_FLOCK = "hhqqi0q"


def take_lease(segment: Segment, host: int) -> None:
    """Leases *host* until the segment is closed.  Under the control lock."""
    for number in range(_LEASES_PER_HOST):
        byte = _LEASES_OFF + host * _LEASES_PER_HOST + number
        lock = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        try:
            fcntl.fcntl(segment.fd, fcntl.F_OFD_SETLK, lock)
        except (BlockingIOError, PermissionError):  # fcntl(2): EAGAIN or EACCES
            continue
        return
    raise LocalError(
        f"host {host} has {_LEASES_PER_HOST} programs: start this one on another", errno.EBUSY
    )


def leases(segment: Segment, host: int) -> int:
    """How many `nupa run` other than this one have leased *host*."""
    first = _LEASES_OFF + host * _LEASES_PER_HOST
    ranges = [(first, first + _LEASES_PER_HOST)]
    count = 0
    while ranges:
        at, end = ranges.pop()
        if at >= end:
            continue
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, at, end - at, 0)
        answer = fcntl.fcntl(segment.fd, fcntl.F_OFD_GETLK, asked)
        kind, _, start, length, _ = struct.unpack(_FLOCK, answer)
        if kind == fcntl.F_UNLCK:
            continue
        count += 1
        # Any lock of the range may be the one reported: look on both sides.  Length 0: to the end.
        ranges += [(at, start), (start + length if length else end, end)]
    return count


def meant_name() -> str:
    """The fabric that is meant when none is named."""
    for name in names():
        collect(name)
    up = names()
    if not up:
        # In a guest: the device that its machine's fabric is.
        shared = os.environ.get("NUPA_FABRIC")
        return shared if shared and "/" in shared and os.path.lexists(shared) else DEFAULT_NAME
    if DEFAULT_NAME in up:
        return DEFAULT_NAME
    if len(up) > 1:
        raise LocalError(
            f"several fabrics are up, {', '.join(up)}: name one with --fabric", errno.EINVAL
        )
    return up[0]


def users(path: str) -> str:
    """' by ib_send_lat (pid 12) on host0, …', as far as the segment says."""
    try:
        segment = Segment.open(path)
    except NupaError:
        return ""
    try:
        segment.reap()
        hosts = segment.hosts()
        found = [
            f"{slot.comm} (pid {slot.pid}) on {hosts[slot.host].name}"
            for slot in segment.slots()
            if not slot.net_queue
        ]
        leased = sum(leases(segment, host.index) for host in hosts)
    finally:
        segment.close()
    if not found and leased:
        programs = "a program" if leased == 1 else f"{leased} programs"
        found = [f"{programs} of `nupa run`, `nupa shell` or `nupa net exec`"]
    return f" by {', '.join(found)}" if found else ""
