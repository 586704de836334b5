# SPDX-License-Identifier: BSD-3-Clause
"""Where what guests boot from is kept, outside any checkout: each entry whole or not there.

An entry is a folder or a file.  It is made in a temporary folder beside it and renamed, by one
process at a time; what an interrupted one left is removed by the next.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nupa.fabric.errors import LocalError

_LOCK = "lock"
_TEMPORARY = ".making-"
# As many builds of NUPA may boot guests in turn without making their initramfs again.
_KEPT = 4


def folder() -> Path:
    """$NUPA_VM_CACHE, else $XDG_CACHE_HOME/nupa/vm, else ~/.cache/nupa/vm; made if missing.

    LocalError: it cannot be made."""
    named = os.environ.get("NUPA_VM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    path = Path(named) if named else Path(base or "~/.cache").expanduser() / "nupa" / "vm"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(
            f"cannot make {path}, where guests' files are kept: {error.strerror}; "
            f"set NUPA_VM_CACHE to a folder that you may write to",
            error.errno or errno.EIO,
        ) from error
    return path.absolute()


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
            return path
        with self._locked():
            if path.exists():  # another process has made it
                return path
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
        fd = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._progress(f"another process fills {self.path}: waiting until it is done")
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)
