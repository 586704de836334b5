# SPDX-License-Identifier: BSD-3-Clause
"""Where what guests boot from is kept, outside any checkout: each entry whole or not there.

An entry is a folder or a file.  It is made in a temporary folder beside it and renamed, by one
process at a time; what an interrupted one left is removed by the next.  What is there is booted
and executed, so nobody else may write to it.
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
# As many builds of NUPA may boot guests in turn without making their initramfs again.
_KEPT = 4
# Another process may be downloading what all guests boot from.
_LOCK_WAIT_S = 1800.0


def folder() -> Path:
    """$NUPA_VM_CACHE, else $XDG_CACHE_HOME/nupa/vm, else ~/.cache/nupa/vm; made if missing.

    LocalError: it cannot be made, or others may write to it (EPERM)."""
    named = os.environ.get("NUPA_VM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    path = Path(named) if named else Path(base or "~/.cache").expanduser() / "nupa" / "vm"
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(
            f"cannot make {path}, where guests' files are kept: {error.strerror}; "
            f"set NUPA_VM_CACHE to a folder that you may write to",
            error.errno or errno.EIO,
        ) from error
    if stat.S_IMODE(_checked(path).stat().st_mode) & 0o022:
        raise _refusal(path)
    return path.absolute()


def _checked(path: Path) -> Path:
    """LocalError (EPERM): it is another ordinary user's."""
    user = path.stat().st_uid
    if not is_own(user) and user != 0:
        raise _refusal(path)
    return path


def _refusal(path: Path) -> LocalError:
    found = path.stat()
    return LocalError(
        f"{path}, from which guests are booted, is refused: other users may write to it (owner: "
        f"user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}); `chmod go-w` it, or set "
        f"NUPA_VM_CACHE to a folder of your own",
        errno.EPERM,
    )


class Cache:
    """The entries below *path*; *progress* gets a line when another process is waited for."""

    def __init__(self, path: Path, progress: Callable[[str], None]) -> None:
        self.path = path
        self._progress = progress

    def entry(self, name: str, make: Callable[[Path], None]) -> Path:
        """The entry *name*; if it is not there, make(path) has to make it at *path*.

        What *make* raises goes through, and then there is no entry."""
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
        """A folder beside the entries, removed at the end; after a SIGKILL, by the next process.

        Only for use by a *make* of entry(), which is alone then."""
        path = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.path))
        fd = os.open(path, os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # in use, as long as we live
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(fd)

    def keep_newest(self, pattern: str, kept: int = _KEPT) -> None:
        """Removes all but the newest files of that pattern."""
        with self._locked():
            files = [(path.stat().st_mtime, path) for path in self.path.glob(pattern)]
            for _, path in sorted(files)[:-kept]:
                path.unlink()

    def _tidy(self) -> None:
        for path in self.path.glob(f"{_TEMPORARY}*"):
            fd = os.open(path, os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            except BlockingIOError:
                pass  # somebody works there
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
                self._progress(f"another process fills {self.path}: waiting until it is done")
                locks.hold(fd, fcntl.LOCK_EX, path, _LOCK_WAIT_S)
            yield
        finally:
            os.close(fd)
