# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH102, PTH106, PTH108, PTH118, PTH208
"""The registry of fabrics: the places of their segments, their users, and their removal.

The fabric NAME of a user is the file nupa-UID-NAME in the user's own folder, /dev/shm/nupa-UID
(NUPA_DIR names another one).  The folder is made with mode 0700 and removed with its last file.
docs/files.md lists all files and how each is checked.
The folder .nupa-UID-NAME.files beside it holds the files in which programs read about their device
(csrc/shim), if any did.  The kernel drops all three kinds of locks when their holder dies:

* The *control lock*, flock on nupa-UID.lock, is held for moments to make or remove a fabric, set a
  port or choose a host.  The file exists only while a process holds or awaits it.
* A *use*, a shared flock on the segment, is held by each `nupa run`, attached process and open
  Fabric.  An exclusive flock that succeeds proves that the fabric is not in use.
* A *lease* of a host is a byte-range lock (fcntl(2), open file description locks) on the segment,
  one byte for each `nupa run`.  By it two `nupa run` that start together see each other before
  their programs attach.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from nupa.base import locks
from nupa.base.errors import LocalError, NupaError
from nupa.base.ownership import check_folder, is_own, open_own, outer_uid, owner_of, refused
from nupa.core.segment import Segment

DEFAULT_NAME = "default"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,31}")
_SHM = "/dev/shm"


def folder() -> str:
    """Returns the folder of all segments, which is made when needed unless NUPA_DIR names it.

    Its name has the user's number as the parent user namespace knows it: the root of a user
    namespace is a user like any other.
    """
    named = os.environ.get("NUPA_DIR")
    if named:
        return named
    user = outer_uid() if not os.environ.get("NUPA_UID") else int(_user())
    return f"{_SHM}/nupa-{os.geteuid() if user is None else user}"


def file_system() -> str:
    """Returns an existing folder of the file system on which fabrics are made."""
    return os.environ.get("NUPA_DIR") or _SHM


@contextmanager
def open_folder(*, make: bool = False) -> Iterator[int]:
    """Opens the folder and yields its descriptor; *make*: makes it, unless NUPA_DIR names it.

    FileNotFoundError: it does not exist and need not.  LocalError: it is another user's, or others
    may replace files in it.
    """
    named = os.environ.get("NUPA_DIR")
    path = folder()
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    if make and not named:
        _make_folder(path)
    try:
        fd = os.open(path, flags if named else flags | os.O_NOFOLLOW)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not named:
            raise
        raise refused(path, error) from error
    try:
        if named:
            _check_named_folder(fd, path)
        else:
            check_folder(fd, path)
        yield fd
    finally:
        os.close(fd)


def _make_folder(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise refused(path, error) from error


def _check_named_folder(fd: int, path: str) -> None:
    """Checks a folder that several users may share; each file in it is checked on its own."""
    found = os.fstat(fd)
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise LocalError(
            f"NUPA_DIR is {path}, where all users may replace files (mode {mode:04o}, owner: user "
            f"{found.st_uid}): `chmod go-w` or `chmod +t` it, or choose another folder",
            errno.EPERM,
        )


def path_of(name: str) -> str:
    """Returns the path of a fabric's segment.  LocalError: not a valid name."""
    if not _NAME.fullmatch(name):
        raise LocalError(
            f"{name!r} is not a name for a fabric: use 1 to 32 letters, digits, '_', '-' and '.', "
            f"first a letter, a digit or '_'",
            errno.EINVAL,
        )
    return os.path.join(folder(), f"nupa-{_user()}-{name}")


def find(name: str) -> str:
    """Returns path_of() of a name, and a name with a slash as it is: memory that machines share."""
    return name if "/" in name else path_of(name)


def reference(name: str, path: str) -> str:
    """Returns the argument with which find() finds the fabric *name* at *path*."""
    return name if os.path.abspath(path_of(name)) == path else path  # noqa: PTH100


def _user() -> str:
    """Returns the number of the user whose fabrics are meant.

    NUPA_UID names the user in the user namespace of `nupa shell`, where programs run as root.
    """
    user = os.environ.get("NUPA_UID") or str(os.geteuid())
    if not user.isdecimal():
        raise LocalError(f"NUPA_UID is {user!r}: it is a user's number", errno.EINVAL)
    return user


def names() -> list[str]:
    """Lists the names of this user's fabrics, sorted; damaged ones too."""
    return names_of("", "")


def names_of(before: str, after: str) -> list[str]:
    """Lists fabrics that have a file named like the segment, between *before* and *after*."""
    prefix = f"{before}nupa-{_user()}-"
    found = []
    for entry in _entries():
        name = entry.removeprefix(prefix).removesuffix(after)
        if entry == f"{prefix}{name}{after}" and _NAME.fullmatch(name):
            found.append(name)
    return sorted(found)


def _entries() -> list[str]:
    try:
        with open_folder() as fd:
            return os.listdir(fd)
    except FileNotFoundError:
        return []


def control_lock() -> AbstractContextManager[None]:
    """Holds this user's control lock."""
    return locked(f"nupa-{_user()}.lock")


@contextmanager
def locked(name: str, wait_s: float | None = None) -> Iterator[None]:
    """Holds the lock file *name* of the folder; the file exists only meanwhile.

    The folder stays while the lock is held.  LocalError: the file or the folder is not ours
    (EPERM), or others hold the lock for too long (EBUSY).
    """
    path = os.path.join(folder(), name)
    fd = _take_lock(name, path, wait_s)
    try:
        yield
    finally:
        try:
            remove(path)
        finally:
            os.close(fd)
        _tidy()


def _take_lock(name: str, path: str, wait_s: float | None) -> int:
    while True:
        try:
            with open_folder(make=True) as folder_fd:
                fd = open_own(name, os.O_RDWR | os.O_CREAT, folder_fd=folder_fd, shown=path)
        except FileNotFoundError:
            continue  # the previous holder removed the folder
        try:
            locks.hold(fd, fcntl.LOCK_EX, path, wait_s)
            if _is_file_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        # The previous holder removed the file: our lock is on a file without a name.
        os.close(fd)


def _tidy() -> None:
    """Removes the user's own folder once it is empty."""
    if not os.environ.get("NUPA_DIR"):
        with suppress(OSError):  # usually ENOTEMPTY
            os.rmdir(folder())


def _is_file_at(fd: int, path: str) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def is_ours(path: str) -> bool:
    """Tells whether the file at *path* belongs to this user; others' files are never meant."""
    owner = owner_of(path)
    return owner is not None and is_own(owner)


def remove(path: str) -> None:
    """Removes the file, if it exists.  LocalError: it cannot be removed."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise refused(path, error) from error


def remove_shown(path: str) -> None:
    """Removes what belongs to the segment at *path*: files shown to programs (csrc/shim/tree.c),
    the socket of a dead fabric manager (nupa/cxl/fm/server/server.py), the admission policy."""
    head, name = os.path.split(path)
    remove(os.path.join(head, f".{name}.fm"))
    remove(os.path.join(head, policy_name(name)))
    _remove_wires(head, name)
    shown = os.path.join(head, f".{name}.files")
    if os.path.lexists(shown):
        import shutil  # takes 10 ms

        shutil.rmtree(shown, ignore_errors=True)


def _remove_wires(head: str, name: str) -> None:
    """Removes the files of wires: nupa/fabric/wires/place.py."""
    ours = re.compile(re.escape(f".{name}.") + r"(w[0-9]{1,3}g?|wires)")
    for entry in _entries():
        if ours.fullmatch(entry):
            remove(os.path.join(head, entry))


def policy_name(name: str) -> str:
    """Returns the name of the file that has the admission policy (nupa/fabric/tenants/policy.py),
    beside a segment of that file name."""
    return f".{name}.admission"


def use(segment: Segment) -> None:
    """Counts this open segment as a user.  The caller holds the control lock."""
    locks.hold(segment.fd, fcntl.LOCK_SH, segment.path)


def in_use(path: str) -> bool:
    """Tells whether the segment is in use.  A file that is not ours to open is not in use."""
    try:
        fd = open_own(path, os.O_RDONLY)
    except (FileNotFoundError, LocalError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise locks.refused("flock", path, error) from error
    finally:
        os.close(fd)
    return False


def collect(name: str) -> bool:
    """Removes an unused automatic fabric; returns whether it did.

    The caller holds the control lock.  A file whose maker died is removed, too, since makers hold
    the control lock until it is complete.
    """
    path = path_of(name)
    try:
        segment = Segment.open(path)
    except NupaError as error:
        if error.errno != errno.ENODATA and not _is_empty(path):
            return False
    else:
        auto = segment.auto
        segment.close()
        if not auto:
            return False
    if in_use(path):
        from nupa.base.holders import dying_are_gone

        if not dying_are_gone(path):
            return False
    remove(path)
    remove_shown(path)
    return True


def _is_empty(path: str) -> bool:
    """Tells whether it is an empty file of ours."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == 0 and is_own(found.st_uid)


def collect_all() -> None:
    """Removes automatic fabrics that have no user."""
    found = names()
    if found:
        with control_lock():
            for name in found:
                collect(name)
