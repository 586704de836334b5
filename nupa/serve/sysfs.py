# SPDX-License-Identifier: BSD-3-Clause
"""A folder in the shape of /sys with the adapter of each host, for monitors that read files.

node_exporter, Telegraf, netdata and PCP's agent read /sys/class/infiniband below a folder that is
given to them.  They are no programs of `nupa run`, so that somebody has to keep the files.
"""

from __future__ import annotations

import errno
import shutil
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.live.adapter import adapters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nupa.live.snapshot import Snapshot
    from nupa.live.snapshots import Snapshots

_CLASS = Path("class") / "infiniband"
#: A device is made under this name and gets its own once it is complete.
_MAKING = ".making-"
#: Readers find the old or the new text of a file, whole.
_FRESH = ".fresh"


@contextmanager
def kept(path: Path, snapshots: Snapshots) -> Iterator[None]:
    """Keeps the folder as each new snapshot says; closes the snapshots at the end, and removes it.

    Files that cannot be written for a while are old meanwhile; stderr says so once.
    LocalError: as SysfsFolder.
    """
    with SysfsFolder(path) as folder:
        folder.update(snapshots.latest())
        thread = threading.Thread(target=_follow, args=(folder, snapshots), name="sysfs")
        thread.start()
        try:
            yield
        finally:
            snapshots.close()
            thread.join()


def _follow(folder: SysfsFolder, snapshots: Snapshots) -> None:
    told = False
    for snapshot in snapshots.follow(lists=False):
        try:
            folder.update(snapshot)
            told = False
        except LocalError as error:
            if not told:
                print(f"nupa: {error}", file=sys.stderr, flush=True)
            told = True


class SysfsFolder(Closing):
    """DIR/class/infiniband, with a folder for each host, named as the host.

    update() writes what has changed.  The folder must be empty or not exist; close() removes
    what was made.

    LocalError: it is not empty (ENOTEMPTY), or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._root = path
        self._made = False
        self._texts: dict[str, dict[str, str]] = {}
        self._generation = ""
        try:
            self._make()
        except OSError as error:
            raise self._refused(error) from error

    def _make(self) -> None:
        try:
            self._root.mkdir()
            self._made = True
        except FileExistsError:
            if any(self._root.iterdir()):
                raise LocalError(
                    f"{self._root} is not empty: name a new folder, or an empty one",
                    errno.ENOTEMPTY,
                ) from None
        (self._root / _CLASS).mkdir(parents=True)

    def update(self, snapshot: Snapshot) -> None:
        """Makes the files say what the snapshot says.

        Without a fabric there is no adapter.  LocalError: a file cannot be written.
        """
        try:
            found = {adapter.name: adapter.files() for adapter in adapters(snapshot)}
            if snapshot.generation != self._generation:
                self._remove_all()
                self._generation = snapshot.generation
            for name, files in found.items():
                if name in self._texts:
                    self._renew(name, files)
                else:
                    self._add(name, files)
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Removes the files, and the folder if it was made here."""
        shutil.rmtree(self._root / "class", ignore_errors=True)
        if self._made:
            with suppress(OSError):  # others have put files there
                self._root.rmdir()

    def _add(self, name: str, files: dict[str, str]) -> None:
        making = self._root / _CLASS.parent / f"{_MAKING}{name}"
        for path, text in files.items():
            file = making / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        making.rename(self._root / _CLASS / name)
        self._texts[name] = dict(files)

    def _renew(self, name: str, files: dict[str, str]) -> None:
        known, folder = self._texts[name], self._root / _CLASS / name
        # Beside the devices: a reader lists the folders of counters.
        fresh = self._root / _CLASS.parent / _FRESH
        for path, text in files.items():
            if known[path] != text:
                fresh.write_text(text)
                fresh.replace(folder / path)
                known[path] = text

    def _remove_all(self) -> None:
        for name in self._texts:
            shutil.rmtree(self._root / _CLASS / name)
        self._texts.clear()

    def _refused(self, error: OSError) -> LocalError:
        return LocalError(
            f"the folder {self._root} for --sysfs cannot be written: "
            f"{error.filename or self._root}: {error.strerror}",
            error.errno or 0,
        )
