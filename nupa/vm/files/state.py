# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa vm run` 10 ms.
# ruff: noqa: PTH123
"""The state of a machine: machine.json in its folder, replaced atomically, checked on reading."""

from __future__ import annotations

import errno
import json
import os
from typing import Any, NamedTuple

from nupa.base.errors import FabricError, LocalError
from nupa.base.ownership import open_own
from nupa.base.process import Process
from nupa.vm.files.place import MachineFolder

_VERSION = 1
_FILE = "machine.json"
_FILE_BYTES_MAX = 1 << 20


class Guest(NamedTuple):
    """A guest.

    process: its QEMU; None before its first start.  up_s: the seconds that it took to boot; None
    before its HELLO.  device, device_bytes: the shared memory, as the guest reports it.
    """

    name: str
    cpu: int
    argv: tuple[str, ...]
    process: Process | None = None
    started_s: float = 0.0  #: time.time()
    up_s: float | None = None
    device: str = ""
    device_bytes: int = 0
    bell: bool = False  #: whether it has a doorbell

    @property
    def state(self) -> str:
        """ "up", "booting" or "dead"."""
        if self.process is None or not self.process.alive:
            return "dead"
        return "booting" if self.up_s is None else "up"


class MachineState(NamedTuple):
    name: str
    kind: str
    coherence: str
    memory_bytes: int
    ram_bytes: int
    machine_host: str  #: of the fabric: the machine itself
    segment: str  #: path
    qemu_version: str
    kernel: str
    created_s: float  #: time.time()
    guests: tuple[Guest, ...]
    doorbell: Process | None = None  #: the server; None: guests poll

    def guest(self, host: str) -> Guest:
        """Returns a guest by its name or number.  LocalError: there is none (ENOENT)."""
        for number, guest in enumerate(self.guests):
            if host in (guest.name, str(number)):
                return guest
        guests = ", ".join(guest.name for guest in self.guests)
        raise LocalError(
            f"the machine {self.name!r} has no guest {host!r}: its guests are {guests}, "
            f"and {self.machine_host} is the machine itself",
            errno.ENOENT,
        )

    def is_machine_host(self, host: str) -> bool:
        return host in (self.machine_host, str(len(self.guests)))

    def with_guest(self, changed: Guest) -> MachineState:
        """Returns a state with *changed* instead of the guest of that name."""
        guests = (changed if guest.name == changed.name else guest for guest in self.guests)
        return self._replace(guests=tuple(guests))


def load(place: MachineFolder) -> MachineState | None:
    """Returns None if there is no state.  FabricError: the file is damaged, or another user's."""
    path = place.file(_FILE)
    try:
        fd = open_own(path, os.O_RDONLY)
        with open(fd, "rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise ValueError(f"it has more than {_FILE_BYTES_MAX} bytes")
        return _parse(json.loads(data), place.name)
    except FileNotFoundError:
        return None
    except (LocalError, OSError, ValueError, KeyError, TypeError) as error:
        raise FabricError(
            f"cannot read {path}: {error}; `nupa vm down {place.name}` takes the machine down"
        ) from error


def load_up(place: MachineFolder) -> MachineState:
    """Returns the state.  LocalError: no machine of that name is up."""
    state = load(place) if place.exists else None
    if state is None:
        raise LocalError(
            f"no machine is named {place.name!r}: `nupa vm up --name {place.name}` makes it, "
            f"`nupa vm ls` lists those that are up",
            errno.ENOENT,
        )
    return state


def store(place: MachineFolder, state: MachineState) -> None:
    """Writes the state; the caller holds the machine's lock.  FabricError: no room."""
    path = place.file(_FILE)
    beside = f"{path}.{os.urandom(8).hex()}"
    guests = [{**guest._asdict(), "argv": list(guest.argv)} for guest in state.guests]
    value = {"version": _VERSION, **state._asdict(), "guests": guests}
    try:
        fd = open_own(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
        os.rename(beside, path)  # noqa: PTH104
    except OSError as error:
        raise FabricError(f"cannot write {path}: {error.strerror}", error.errno or 0) from error


def _parse(value: Any, name: str) -> MachineState:
    if _field(value, "version", int) != _VERSION:
        raise ValueError(f"it has version {value['version']}, this NUPA has {_VERSION}")
    guests = _field(value, "guests", list)
    state = MachineState(
        name=_field(value, "name", str),
        kind=_field(value, "kind", str),
        coherence=_field(value, "coherence", str),
        memory_bytes=_field(value, "memory_bytes", int),
        ram_bytes=_field(value, "ram_bytes", int),
        machine_host=_field(value, "machine_host", str),
        segment=_field(value, "segment", str),
        qemu_version=_field(value, "qemu_version", str),
        kernel=_field(value, "kernel", str),
        created_s=float(_field(value, "created_s", (int, float))),
        guests=tuple(_guest(entry) for entry in guests),
        doorbell=_optional_process(value, "doorbell"),
    )
    if state.name != name:
        raise ValueError(f"it is of a machine {state.name!r}")
    return state


def _guest(value: Any) -> Guest:
    up_s = _field(value, "up_s", (int, float, type(None)))
    return Guest(
        name=_field(value, "name", str),
        cpu=_field(value, "cpu", int),
        argv=tuple(_all_text(_field(value, "argv", list))),
        process=_optional_process(value, "process"),
        started_s=float(_field(value, "started_s", (int, float))),
        up_s=None if up_s is None else float(up_s),
        device=_field(value, "device", str),
        device_bytes=_field(value, "device_bytes", int),
        bell=_flag(value, "bell"),
    )


def _optional_process(value: Any, key: str) -> Process | None:
    found = _field(value, key, (list, type(None)))
    return None if found is None else _process(found)


def _process(value: list[Any]) -> Process:
    if len(value) != 2 or not all(type(number) is int and number > 0 for number in value):
        raise ValueError(f"`process` is {value!r}: a pid and its start time are needed")
    return Process(*value)


def _all_text(values: list[Any]) -> list[str]:
    if not values or not all(type(word) is str for word in values):
        raise ValueError("`argv` is not a list of words")
    return values


def _field(value: Any, key: str, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, dict) or key not in value:
        raise ValueError(f"the key `{key}` is missing")
    found = value[key]
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"`{key}` is {found!r}")
    return found


def _flag(value: Any, key: str) -> bool:
    if not isinstance(value, dict) or type(value.get(key)) is not bool:
        raise ValueError(f"the key `{key}` is missing, or not true or false")
    return bool(value[key])
