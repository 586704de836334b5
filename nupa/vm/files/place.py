# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa vm run` 10 ms.
# ruff: noqa: PTH102, PTH106, PTH108, PTH110, PTH117, PTH118, PTH119, PTH120, PTH208
"""Where a machine is kept: a folder of its user alone, with what its guests are spoken to by.

nupa-vm-NAME in $XDG_RUNTIME_DIR, else in /run/user/UID, else in nupa-UID in the temporary folder
(UID as the parent of this user namespace knows it):
    machine.json            what is up (nupa/vm/files/state.py)
    initramfs               what guests boot from, as long as the machine is up
    lock                    flock: held by whoever makes, starts or ends guests
    HOST.log                console, and what QEMU says
    HOST.N.sock, .N.lock    a port of the guest's agent; flock: held by who uses it
    net.N.sock              the network between host0 and guest N
    bell.sock               of the server of doorbells (nupa/vm/machine/doorbell.py), if it has any
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from contextlib import suppress
from typing import NamedTuple

from nupa.base.errors import FabricError, LocalError
from nupa.base.ownership import is_own, open_own, outer_uid, owner_of

#: Ports of each guest's agent: so many commands run in it at once.
AGENT_PORTS = 8
DEFAULT_NAME = "vm"
# As a fabric's name (nupa/fabric/registry.py): it is one, too.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,31}")
_PREFIX = "nupa-vm-"
_SOCKET_PATH_BYTES_MAX = 107  # unix(7): sun_path has 108, one of them NUL
_REMOVALS_MAX = 100
_LONGEST_FILE = "net.00.sock.tmp"


def parent() -> str:
    """The folder of this user's machines, which may not be there yet.

    LocalError: it is not ours alone.
    """
    user = outer_uid()
    if user is None:
        user = os.geteuid()
    for folder in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}"):
        if folder and os.path.isabs(folder) and _is_ours(folder):
            return folder
    # As tempfile.gettempdir(), which takes 10 ms to import.
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"nupa-{user}")
    if os.path.lexists(folder) and not _is_ours(folder):
        raise LocalError(
            f"{folder} is not a folder that only you can enter (owner: user {owner_of(folder)}, "
            f"and you are user {os.geteuid()}): have it removed, or name another one by "
            f"XDG_RUNTIME_DIR",
            errno.EPERM,
        )
    return folder


def _is_ours(folder: str) -> bool:
    """A folder, no link, that nobody else can write into or, but for us, enter."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and is_own(found.st_uid)
        and not stat.S_IMODE(found.st_mode) & 0o077
    )


class Place(NamedTuple):
    """The folder of one machine, which may not be there."""

    name: str
    folder: str

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.folder)

    def file(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def log(self, host: str) -> str:
        return self.file(f"{host}.log")

    def pid_file(self, host: str) -> str:
        """Written by QEMU; the word by which its process is known."""
        return self.file(f"{host}.pid")

    def socket(self, host: str, port: int) -> str:
        return self.file(f"{host}.{port}.sock")

    def port_lock(self, host: str, port: int) -> str:
        return self.file(f"{host}.{port}.lock")

    def net_socket(self, guest: int) -> str:
        return self.file(f"net.{guest}.sock")

    @property
    def bell_socket(self) -> str:
        """Also the word by which the server's process is known."""
        return self.file("bell.sock")

    def make(self) -> None:
        """Makes the folder.  LocalError: it is there (EEXIST), or its path is too long."""
        longest = len(os.fsencode(self.file(_LONGEST_FILE)))
        if longest > _SOCKET_PATH_BYTES_MAX:
            raise LocalError(
                f"sockets in {self.folder} would have paths of {longest} bytes, and "
                f"{_SOCKET_PATH_BYTES_MAX} is the limit (unix(7)): choose a shorter name, "
                f"or a shorter folder by XDG_RUNTIME_DIR",
                errno.ENAMETOOLONG,
            )
        try:
            with suppress(FileExistsError):
                os.mkdir(os.path.dirname(self.folder), 0o700)
            parent()  # is it ours, whoever made it?
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            raise LocalError(
                f"the machine {self.name!r} is up already: `nupa vm ls` shows it, "
                f"`nupa vm down {self.name}` takes it down",
                errno.EEXIST,
            ) from None
        except OSError as error:
            raise FabricError(
                f"cannot make {self.folder}: {error.strerror}", error.errno or 0
            ) from error

    def remove(self) -> None:
        """Removes the folder and its files, also while another one does.  FabricError: it stays."""
        for _ in range(_REMOVALS_MAX):
            try:
                for name in os.listdir(self.folder):
                    with suppress(FileNotFoundError):
                        os.unlink(self.file(name))
                os.rmdir(self.folder)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise FabricError(
                        f"cannot remove {self.folder}: {error.strerror}", error.errno or 0
                    ) from error
        if self.exists:
            raise FabricError(f"{self.folder} is written to again and again", errno.ENOTEMPTY)


def place_of(name: str) -> Place:
    """LocalError if it is no name."""
    if not _NAME.fullmatch(name):
        raise LocalError(
            f"{name!r} is no name for a machine: use 1 to 32 letters, digits, '_', '-' and '.', "
            f"first a letter, a digit or '_'",
            errno.EINVAL,
        )
    return Place(name, os.path.join(parent(), f"{_PREFIX}{name}"))


def bell_of(segment: str) -> str | None:
    """Where a process of this machine finds the doorbell of the fabric at that path; None: the
    fabric is no machine's, or its guests poll."""
    _, ours, name = os.path.basename(segment).rpartition(f"nupa-{os.geteuid()}-")
    if not ours or not _NAME.fullmatch(name):
        return None
    try:
        path = place_of(name).bell_socket
    except LocalError:
        return None
    return path if os.path.exists(path) else None


def names() -> list[str]:
    """The names of this user's machines, sorted; damaged ones too."""
    try:
        entries = os.listdir(parent())
    except FileNotFoundError:
        return []
    found = (entry.removeprefix(_PREFIX) for entry in entries if entry.startswith(_PREFIX))
    return sorted(name for name in found if _NAME.fullmatch(name))


def is_machine(name: str) -> bool:
    """Whether a machine of ours has that name; never an error."""
    try:
        return place_of(name).exists
    except LocalError:
        return False


def meant_name() -> str:
    """The machine that is meant when none is named: "vm", else the only one.

    LocalError: there are several."""
    up = names()
    if not up or DEFAULT_NAME in up:
        return DEFAULT_NAME
    if len(up) > 1:
        raise LocalError(
            f"several machines are up, {', '.join(up)}: name one with --name", errno.EINVAL
        )
    return up[0]


def try_lock(path: str) -> int | None:
    """An open file that holds the lock at *path* until it is closed; None: another holds it.

    The file stays: its folder goes with the machine.  LocalError: no such folder, or the file is
    not ours.
    """
    try:
        fd = open_own(path, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError as error:
        raise LocalError(f"cannot lock {path}: {error.strerror}", error.errno or 0) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
