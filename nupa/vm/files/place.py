# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa vm run` 10 ms.
# ruff: noqa: PTH102, PTH106, PTH108, PTH110, PTH117, PTH118, PTH119, PTH120, PTH208
"""The folder of a machine, which its user alone can enter: state, locks, logs and sockets.

The folder is nupa-vm-NAME in $XDG_RUNTIME_DIR, else in /run/user/UID, else in nupa-UID in the
temporary folder.  UID is the number in the parent of this user namespace.
    machine.json            the state (nupa/vm/files/state.py)
    initramfs               a copy of the cache's, as long as the machine is up
    lock                    flock: held by the command that makes, starts or ends guests
    HOST.log                console, and the output of QEMU
    HOST.N.sock, .N.lock    a port of the guest's agent; flock: held by its client
    net.N.sock              the network between host0 and guest N
    bell.sock               the server of doorbells (nupa/vm/machine/doorbell.py), if there is one
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
from nupa.fabric.meant import told_name

#: Ports of each guest's agent, and so commands in a guest at once.
AGENT_PORTS = 8
DEFAULT_NAME = "vm"
# As in nupa/fabric/registry.py: the machine's fabric has the same name.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,31}")
_PREFIX = "nupa-vm-"
_SOCKET_PATH_BYTES_MAX = 107  # unix(7): sun_path has 108, one of them NUL
_REMOVALS_MAX = 100
_LONGEST_FILE = "net.00.sock.tmp"


def parent() -> str:
    """Returns the folder of this user's machines, which may not exist yet.

    LocalError: other users own it or can enter it.
    """
    user = outer_uid()
    if user is None:
        user = os.geteuid()
    for folder in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}"):
        if folder and os.path.isabs(folder) and _is_ours(folder):
            return folder
    # As tempfile.gettempdir() does; importing tempfile takes 10 ms.
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"nupa-{user}")
    if os.path.lexists(folder) and not _is_ours(folder):
        raise LocalError(
            f"{folder} is not a folder that only you can enter (owner: user {owner_of(folder)}, "
            f"and you are user {os.geteuid()}): have it removed, or set XDG_RUNTIME_DIR",
            errno.EPERM,
        )
    return folder


def _is_ours(folder: str) -> bool:
    """Returns whether it is a folder, not a link, that this user alone owns and can enter."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and is_own(found.st_uid)
        and not stat.S_IMODE(found.st_mode) & 0o077
    )


class MachineFolder(NamedTuple):
    """The folder of one machine, which may not exist."""

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
        """Returns the file that QEMU writes; its path, a word of the command line, identifies
        QEMU."""
        return self.file(f"{host}.pid")

    def socket(self, host: str, port: int) -> str:
        return self.file(f"{host}.{port}.sock")

    def port_lock(self, host: str, port: int) -> str:
        return self.file(f"{host}.{port}.lock")

    def net_socket(self, guest: int) -> str:
        return self.file(f"net.{guest}.sock")

    @property
    def bell_socket(self) -> str:
        """The socket of the doorbells' server; its path identifies the server, too."""
        return self.file("bell.sock")

    def make(self) -> None:
        """Makes the folder.  LocalError: it exists (EEXIST), or its path is too long."""
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
            parent()  # checks its owner
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
        """Removes the folder and its files.  FabricError: it stays."""
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
            raise FabricError(
                f"{self.folder} cannot be removed: files are added to it all the time",
                errno.ENOTEMPTY,
            )


def place_of(name: str) -> MachineFolder:
    """Returns the place of the machine *name*.  LocalError: the name is invalid."""
    if not _NAME.fullmatch(name):
        raise LocalError(
            f"{name!r} is not a name for a machine: use 1 to 32 letters, digits, '_', '-' and '.', "
            f"first a letter, a digit or '_'",
            errno.EINVAL,
        )
    return MachineFolder(name, os.path.join(parent(), f"{_PREFIX}{name}"))


def machine_of(segment: str) -> MachineFolder | None:
    """Returns the place of the machine whose guests have the fabric at *segment*; None: no guests
    do."""
    _, ours, name = os.path.basename(segment).rpartition(f"nupa-{os.geteuid()}-")
    return place_of(name) if ours and is_machine(name) else None


def bell_of(segment: str) -> str | None:
    """Returns the path of the doorbell of the fabric at *segment*, for a process of this machine.

    None: no machine has that fabric, or its guests poll.
    """
    place = machine_of(segment)
    if place is None:
        return None
    path = place.bell_socket
    return path if os.path.exists(path) else None


def names() -> list[str]:
    """Returns the names of this user's machines, sorted, including damaged ones."""
    try:
        entries = os.listdir(parent())
    except FileNotFoundError:
        return []
    found = (entry.removeprefix(_PREFIX) for entry in entries if entry.startswith(_PREFIX))
    return sorted(name for name in found if _NAME.fullmatch(name))


def is_machine(name: str) -> bool:
    """Returns whether this user has a machine of that name; raises nothing."""
    try:
        return place_of(name).exists
    except LocalError:
        return False


def default_name() -> str:
    """Returns the machine to make or to take down where none is named: NUPA_FABRIC's, else "vm".

    A path in NUPA_FABRIC, as `nupa run` sets it, is meant if its fabric is a machine's.
    """
    told = told_name()
    if told and "/" not in told and (told == os.environ["NUPA_FABRIC"] or is_machine(told)):
        return told
    return DEFAULT_NAME


def meant_name() -> str:
    """Returns the machine for commands that name none: default_name(), else the only one.

    LocalError: there are several.
    """
    up, default = names(), default_name()
    if not up or default != DEFAULT_NAME or default in up:
        return default
    if len(up) > 1:
        raise LocalError(
            f"several machines are up, {', '.join(up)}: name one with --fabric", errno.EINVAL
        )
    return up[0]


def try_lock(path: str) -> int | None:
    """Returns an open file that holds the lock at *path* until it is closed; None: it is held.

    The file stays until the machine's folder is removed.  LocalError: there is no such folder, or
    another user owns the file.
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
