# SPDX-License-Identifier: BSD-3-Clause
"""Makes a machine, starts one of its guests again, takes all down."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from nupa.base.errors import FabricError, LocalError
from nupa.fabric import Fabric, registry
from nupa.fabric.users import users
from nupa.vm.boot.boot import BootFiles
from nupa.vm.files import nic
from nupa.vm.files.place import AGENT_PORTS, MachineFolder, place_of, try_lock
from nupa.vm.files.state import Guest, MachineState, load, load_up, store
from nupa.vm.files.topology import GUESTS_MAX, MachineTopology
from nupa.vm.machine import interfaces, launch, qemu, room
from nupa.vm.machine.launch import Say
from nupa.vm.machine.qemu import Shared

#: A guest boots in about 10 s; two of them, or a busy machine, take longer.
BOOT_S = 120.0
#: For QEMUs that cannot reconnect: their server must listen before they start.
_NET_S = 15.0
_POLL_S = 0.02
#: The names that guests can have.
_ANY_HOSTS = tuple(f"host{i}" for i in range(GUESTS_MAX))


def up(
    name: str,
    topology: MachineTopology,
    prepare: Callable[[], BootFiles],
    say: Say,
    *,
    timeout_s: float = BOOT_S,
) -> MachineState:
    """Makes the machine: the fabric's segment, then guests, until each has said HELLO.

    *prepare* is called once the machine is known to have room; *say* gets a line for each step.
    A failure or interruption leaves nothing.  LocalError: the name is taken, there is no room, or
    this QEMU cannot do it; FabricError: a guest does not come up.
    """
    place = place_of(name)
    room.check_free(place)
    room.check_room(topology)
    boot = prepare()
    qemu.check_version(topology, boot.qemu_version)
    place.make()
    state: MachineState | None = None
    shared: Shared | None = None
    try:
        with launch.locked(place, "make"):
            boot = room.keep_initramfs(place, boot)
            shared = room.make_segment(name, topology)
            state = _planned(place, topology, boot, shared)
            store(place, state)
            if topology.ivshmem.doorbell:
                state = launch.start_doorbell(place, state)
            for number, guest in enumerate(state.guests):
                if number and topology.guests.network and boot.qemu_version < qemu.NETWORK_HEALS:
                    _await_file(place.net_socket(number))
                state = launch.start(place, state, guest)
                pid = state.guests[number].process
                say(f"{guest.name}: booting on CPU {guest.cpu} (pid {pid.pid if pid else '?'})")
            state = launch.await_up(place, state, topology.hosts, say, timeout_s=timeout_s)
            for guest in state.guests:
                interfaces.set_up(place, guest)
            return state
    except BaseException:
        guests = state.guests if state else ()
        _take_down(place, guests, topology.hosts, segment=shared is not None)
        raise


def start(name: str, host: str, say: Say, *, timeout_s: float = BOOT_S) -> MachineState:
    """Starts a dead guest again, with the same memory.

    LocalError: no such guest, or it runs (EEXIST); FabricError: it does not come up.
    """
    place = place_of(name)
    load_up(place)
    with launch.locked(place, "start a guest of"):
        state = load_up(place)
        guest = state.guest(host)
        if guest.state != "dead" and guest.process is not None:
            raise LocalError(
                f"{guest.name} is {guest.state}, its QEMU is pid {guest.process.pid}: "
                f"end that first",
                errno.EEXIST,
            )
        if state.doorbell is not None and not state.doorbell.alive:
            raise FabricError(
                f"the server of doorbells of {name!r} has ended, and guests cannot start without "
                f"it: take the machine down, and up again",
                errno.ECONNREFUSED,
            )
        launch.end_all(place, (), [guest.name])
        # Frees the resources of the dead guest, above all its ports, for the new one.
        with Fabric.open(name) as fabric:
            fabric.evict(guest.name)
        state = launch.start(place, state, guest)
        guest = state.guest(guest.name)
        pid = guest.process.pid if guest.process else "?"
        say(f"{guest.name}: booting on CPU {guest.cpu} (pid {pid})")
        try:
            state = launch.await_up(place, state, [guest.name], say, timeout_s=timeout_s)
            interfaces.set_up(place, guest)
            return state
        except BaseException:
            launch.end_all(place, [guest], [guest.name])
            raise


class Down(NamedTuple):
    """The outcome of `down`.  was_up: there was a machine; ended: how many guests still ran."""

    was_up: bool
    ended: int
    segment: bool


def down(name: str, *, force: bool = False) -> Down:
    """Ends the guests, removes the fabric and the folder; does nothing if there is no machine.

    LocalError: commands run in guests, or programs use the fabric, and not *force* (EBUSY).
    """
    place = place_of(name)
    if not place.exists:
        # The folder may have gone: systemd removes /run/user/UID when its user logs out.
        ended = launch.end_all(place, (), _ANY_HOSTS)
        return Down(bool(ended), ended, bool(ended) and _remove_segment(name))
    if force:
        return _down(place)
    with launch.locked(place, "take down"):
        _check_idle(place)
        return _down(place)


def _down(place: MachineFolder) -> Down:
    guests = _known_guests(place)
    hosts = [guest.name for guest in guests] or _ANY_HOSTS
    return _take_down(place, guests, hosts, segment=True)


def _known_guests(place: MachineFolder) -> tuple[Guest, ...]:
    """Returns no guests if the state is damaged; their processes are found without it."""
    try:
        state = load(place)
    except FabricError:
        return ()
    return state.guests if state else ()


def _take_down(
    place: MachineFolder, guests: Sequence[Guest], hosts: Sequence[str], *, segment: bool
) -> Down:
    ended = launch.end_all(place, guests, hosts)
    launch.end_doorbell(place)
    removed = segment and _remove_segment(place.name)
    place.remove()
    return Down(True, ended, removed)


def _remove_segment(name: str) -> bool:
    """Removes the fabric, after its network interfaces; returns whether it existed."""
    from nupa.netdev import state as netdev

    if name in netdev.names():
        # Imported here because it takes long.
        from nupa.netdev.down import down as net_down

        net_down(name, keep_fabric=True)
    try:
        Fabric.remove(name, force=True)
    except LocalError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return True


def _planned(
    place: MachineFolder, topology: MachineTopology, boot: BootFiles, shared: Shared
) -> MachineState:
    cpus = sorted(os.sched_getaffinity(0))
    guests = (
        Guest(
            host,
            cpus[i % len(cpus)],
            qemu.argv(boot, topology, place, shared, i),
            set_up=nic.set_up(i, topology.nics_of(host)),
        )
        for i, host in enumerate(topology.hosts)
    )
    return MachineState(
        name=place.name,
        kind=topology.kind,
        coherence=topology.coherence,
        memory_bytes=topology.memory_bytes,
        ram_bytes=topology.guests.ram_bytes,
        machine_host=topology.machine_host,
        segment=shared.path,
        qemu_version=".".join(map(str, boot.qemu_version)),
        kernel=boot.release,
        created_s=time.time(),
        guests=tuple(guests),
    )


def _check_idle(place: MachineFolder) -> None:
    """Raises LocalError if commands run in guests, or programs of the machine use the fabric."""
    for guest in _known_guests(place):
        locks = [try_lock(place.port_lock(guest.name, port)) for port in range(AGENT_PORTS)]
        for lock in locks:
            if lock is not None:
                os.close(lock)
        busy = locks.count(None)
        if busy and guest.state != "dead":
            raise LocalError(
                f"{busy} {'command runs' if busy == 1 else 'commands run'} in {guest.name}: "
                f"end them first, or take the machine down with --force",
                errno.EBUSY,
            )
    used = users(registry.path_of(place.name), only_programs=True)
    if used:
        raise LocalError(
            f"the fabric {place.name!r} is in use{used}: end its users first, "
            f"or take the machine down with --force",
            errno.EBUSY,
        )


def _await_file(path: str) -> None:
    """Waits for a file.  FabricError: it did not appear in time."""
    until = time.monotonic() + _NET_S
    while not Path(path).exists():
        if time.monotonic() > until:
            raise FabricError(f"host0 does not listen at {path}", errno.ETIMEDOUT)
        time.sleep(_POLL_S)
