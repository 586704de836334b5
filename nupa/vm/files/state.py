# SPDX-License-Identifier: BSD-3-Clause
"""The state of a machine: machine.json in its folder, replaced atomically, checked on reading."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

from nupa.base import state_file
from nupa.base.errors import LocalError
from nupa.base.process import Process
from nupa.vm.files.place import MachineFolder

_VERSION = 2
_FILE = "machine.json"


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
    set_up: tuple[tuple[str, ...], ...] = ()  #: commands after each start

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

    def parse(value: Any) -> MachineState:
        state = state_file.record(MachineState, value)
        if state.name != place.name:
            raise ValueError(f"it is of a machine {state.name!r}")
        if not all(guest.argv for guest in state.guests):
            raise ValueError("`argv` is empty")
        return state

    remedy = f"`nupa vm down {place.name}` takes the machine down"
    return state_file.load(place.file(_FILE), _VERSION, parse, remedy)


def load_up(place: MachineFolder) -> MachineState:
    """Returns the state.  LocalError: no machine of that name is up."""
    state = load(place) if place.exists else None
    if state is None:
        raise LocalError(
            f"no machine is named {place.name!r}: `nupa vm up --fabric {place.name}` makes it, "
            f"`nupa vm ls` lists those that are up",
            errno.ENOENT,
        )
    return state


def store(place: MachineFolder, state: MachineState) -> None:
    """Writes the state; the caller holds the machine's lock.  FabricError: no room."""
    state_file.store(place.file(_FILE), _VERSION, state._asdict())
