# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH116
"""Ownership of files: opens only files of this user, never through a link.

A name proves nothing where several users may make files.  Files are opened without following a
link and without waiting, then judged by fstat(2); sockets are judged by SO_PEERCRED (unix(7)).
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from nupa.base.errors import LocalError

if TYPE_CHECKING:
    from socket import socket

_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS = 0o077
_UCRED = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def outer_uid() -> int | None:
    """Returns this process's user as the parent of its user namespace knows it.

    None: the namespace does not map the user, as after `unshare -U`.
    """
    return _outer_uid(os.getpid(), os.geteuid())


@lru_cache(maxsize=1)
def _outer_uid(_pid: int, user: int) -> int | None:
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:  # noqa: PTH123
            lines = [[int(word) for word in line.split()] for line in file]
    except FileNotFoundError:  # no /proc, or a kernel without user namespaces
        return user
    for first, outer, count in lines:  # user_namespaces(7)
        if first <= user < first + count:
            return outer + user - first
    return None


def is_own(user: int) -> bool:
    """Tells whether *user*, which the kernel reported, is this process's user.

    A user namespace shows all users that it does not map as one.  Without a mapping of its own user
    no file is its own.
    """
    return user == os.geteuid() and outer_uid() is not None


def open_own(
    path: str, flags: int, *, folder_fd: int | None = None, shown: str | None = None
) -> int:
    """Opens a regular file that only this user may open; O_CREAT makes it so.

    *path* is looked up in the folder *folder_fd*, if that is given, and named *shown* in messages.
    FileNotFoundError: there is no such file.  LocalError (EPERM): the file is another user's, is
    open to others, is a link, has several links, or is not a regular file.  LocalError with another
    errno: as open(2).
    """
    try:
        fd = os.open(path, flags | _OPEN, 0o600, dir_fd=folder_fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refused(shown or path, error) from error
    why = _judge(os.fstat(fd))
    if why:
        os.close(fd)
        raise _refusal(shown or path, why)
    return fd


def check_folder(fd: int, path: str) -> None:
    """Checks an open folder.  LocalError (EPERM): other users own it or may use it."""
    found = os.fstat(fd)
    why = _judge_owner(found) or _judge_mode(found)
    if why:
        raise _refusal(path, why)


def refused(path: str, error: OSError) -> LocalError:
    """Says what could not be opened, made or removed, and who owns it."""
    why = error.strerror or str(error)
    try:
        there = os.stat(path, follow_symlinks=False)
    except OSError:
        return LocalError(f"{path}: {why}; NUPA_DIR names another folder", error.errno or 0)
    if not stat.S_ISREG(there.st_mode) or not is_own(there.st_uid):
        return _refusal(path, f"{_judge(there)} ({why})", error.errno or errno.EPERM)
    return LocalError(
        f"{path}, a file of user {there.st_uid}: {why}; NUPA_DIR names another folder",
        error.errno or 0,
    )


def owner_of(path: str) -> int | None:
    """Returns the owner of the file or link at *path*; None: there is none."""
    try:
        return os.stat(path, follow_symlinks=False).st_uid
    except OSError:
        return None


def connect_own(connection: socket, path: str) -> None:
    """Connects to a process of this user that listens at *path*.

    LocalError (EPERM): another user's process listens, or *path* is not a socket of ours; OSError:
    as connect(2).
    """
    found = os.stat(path, follow_symlinks=False)
    if not stat.S_ISSOCK(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a file")
        raise _refusal(path, f"is {kind} of user {found.st_uid}, not a socket")
    why = _judge_owner(found)
    if why:
        raise _refusal(path, why)
    connection.connect(path)
    from socket import SO_PEERCRED, SOL_SOCKET  # takes milliseconds, which few commands need

    data = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, _UCRED.size)
    pid, user, _ = _UCRED.unpack(data)
    if not is_own(user):
        raise _refusal(path, f"process {pid} of user {user} listens there, not one of yours")


def _judge(found: os.stat_result) -> str:
    kind = _KINDS.get(stat.S_IFMT(found.st_mode))
    if kind:
        return f"is {kind} of user {found.st_uid}, not a regular file"
    why = _judge_owner(found) or _judge_mode(found)
    # None: a memfd, or a file that was removed since it was opened.
    if not why and found.st_nlink > 1:
        why = f"has {found.st_nlink} hard links (owner: user {found.st_uid})"
    return why


def _judge_owner(found: os.stat_result) -> str:
    if is_own(found.st_uid):
        return ""
    if outer_uid() is None:
        return (
            f"seems to belong to user {found.st_uid}, and this process's user namespace maps no "
            f"user that could be compared (unshare -r maps one)"
        )
    return f"belongs to user {found.st_uid}, and you are user {os.geteuid()}"


def _judge_mode(found: os.stat_result) -> str:
    mode = stat.S_IMODE(found.st_mode)
    if not mode & _OTHERS:
        return ""
    return f"is open to other users (mode {mode:04o}, owner: user {found.st_uid}; chmod go= it)"


def _refusal(path: str, why: str, number: int = errno.EPERM) -> LocalError:
    return LocalError(
        f"{path} {why}: it is refused; have it removed, or name another folder by NUPA_DIR", number
    )
