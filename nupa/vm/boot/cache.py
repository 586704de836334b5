# SPDX-License-Identifier: BSD-3-Clause
"""The cache of QEMU, kernels and initramfs, outside any checkout; entries are complete or absent.

An entry is a folder or a file.  One process at a time makes an entry in a temporary folder beside
it and renames it.  The next process removes the remains of an interrupted one.  Guests boot and
QEMU runs from the cache, so other users must not be able to write to it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nupa.base import locks
from nupa.base.errors import LocalError
from nupa.base.ownership import is_own, open_own

_LOCK = "lock"
_TEMPORARY = ".making-"
# So many builds of NUPA can boot guests by turns without making their initramfs again.
_KEPT = 4
# Another process may be downloading QEMU.
_LOCK_WAIT_S = 1800.0


def folder() -> Path:
    """Returns $NUPA_VM_CACHE, else $XDG_CACHE_HOME/nupa/vm, else ~/.cache/nupa/vm.

    It is made if it is missing.  LocalError: it cannot be made, or others may write to it (EPERM).
    """
    named = os.environ.get("NUPA_VM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    path = Path(named) if named else Path(base or "~/.cache").expanduser() / "nupa" / "vm"
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(
            f"cannot make {path}, the cache of guests' files: {error.strerror}; "
            f"set NUPA_VM_CACHE to a folder that you may write to",
            error.errno or errno.EIO,
        ) from error
    if stat.S_IMODE(_checked(path).stat().st_mode) & 0o022:
        raise _refusal(path)
    return path.absolute()


def _checked(path: Path) -> Path:
    """Returns *path*.  LocalError: another ordinary user owns it (EPERM)."""
    user = path.stat().st_uid
    if not is_own(user) and user != 0:
        raise _refusal(path)
    return path


def _refusal(path: Path) -> LocalError:
    found = path.stat()
    return LocalError(
        f"{path}, from which guests boot, is refused: others may write it (owner: "
        f"user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}); `chmod go-w` it, or set "
        "NUPA_VM_CACHE to your own folder",
        errno.EPERM,
    )


class Cache:
    """The entries below *path*; *progress* gets a line when it waits for another process."""

    def __init__(self, path: Path, progress: Callable[[str], None]) -> None:
        self.path = path
        self._progress = progress

    def entry(self, name: str, make: Callable[[Path], None]) -> Path:
        """Returns the path of the entry *name*; if it is missing, make(path) makes it at *path*.

        Exceptions of *make* pass through, and leave no entry.
        """
        path = self.path / name
        if path.exists():
            return _checked(path)
        with self._locked():
            if path.exists():  # another process has made it
                return _checked(path)
            self._tidy()
            with self.scratch() as temporary:
                make(temporary / name)
                (temporary / name).rename(path)
        return path

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Makes a folder beside the entries, removed at the end, or by the next process.

        For a *make* of entry() alone, which holds the lock.
        """
        path = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.path))
        fd = os.open(path, os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # in use until this process ends
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(fd)

    def keep_newest(self, pattern: str, kept: int = _KEPT) -> None:
        """Removes all but the newest entries of that pattern."""
        with self._locked():
            entries = [(path.stat().st_mtime, path) for path in self.path.glob(pattern)]
            for _, path in sorted(entries)[:-kept]:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def _tidy(self) -> None:
        for path in self.path.glob(f"{_TEMPORARY}*"):
            fd = os.open(path, os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            except BlockingIOError:
                pass  # another process uses it
            finally:
                os.close(fd)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = str(self.path / _LOCK)
        fd = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._progress(f"another process fills {self.path}: waiting for it")
                locks.hold(fd, fcntl.LOCK_EX, path, _LOCK_WAIT_S)
            yield
        finally:
            os.close(fd)
