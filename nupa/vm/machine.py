# SPDX-License-Identifier: BSD-3-Clause
"""A machine made, one of its guests started again, all taken down."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from nupa.fabric import Fabric, registry
from nupa.fabric.errors import FabricError, LocalError, NupaError
from nupa.vm import launch, qemu
from nupa.vm.launch import Say
from nupa.vm.place import AGENT_PORTS, Place, names, place_of, try_lock
from nupa.vm.qemu import Boot, Shared
from nupa.vm.state import Guest, State, load, load_up, store
from nupa.vm.topology import GUESTS_MAX, Topology, say_bytes

#: Guests boot in about 10 s; two of them, and a busy machine, take longer.
BOOT_S = 120.0
#: A QEMU that cannot reconnect has to find the one that it connects to.
_NET_S = 15.0
_POLL_S = 0.02


def up(
    name: str,
    topology: Topology,
    prepare: Callable[[], Boot],
    say: Say,
    *,
    timeout_s: float = BOOT_S,
) -> State:
    """Makes the machine: the fabric's segment, then guests, until each has said HELLO.

    *prepare* is called once it is known that the machine has room; *say* gets a line for each step.
    Nothing is left if it fails or is interrupted.  LocalError: the name is taken, no room, or not
    with this QEMU; FabricError: a guest does not come up.
    """
    place = place_of(name)
    _check_free(place)
    _check_room(topology)
    boot = prepare()
    qemu.check_version(topology, boot.version)
    place.make()
    state: State | None = None
    shared: Shared | None = None
    try:
        with launch.locked(place, "make"):
            shared = make_segment(name, topology)
            state = _planned(place, topology, boot, shared)
            store(place, state)
            for number, guest in enumerate(state.guests):
                if number and topology.guests.network and boot.version < qemu.NETWORK_HEALS:
                    _await_file(place.net_socket(number))
                state = launch.start(place, state, guest)
                pid = state.guests[number].process
                say(f"{guest.name}: booting on CPU {guest.cpu} (pid {pid.pid if pid else '?'})")
            return launch.await_up(place, state, topology.hosts, say, timeout_s=timeout_s)
    except BaseException:
        _take_down(place, state.guests if state else (), topology.hosts, shared is not None)
        raise


def start(name: str, host: str, say: Say, *, timeout_s: float = BOOT_S) -> State:
    """Starts a dead guest again, with the same memory.

    LocalError: no such guest, or it runs (EEXIST); FabricError: it does not come up."""
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
        launch.end_all(place, (), [guest.name])
        state = launch.start(place, state, guest)
        guest = state.guest(guest.name)
        pid = guest.process.pid if guest.process else "?"
        say(f"{guest.name}: booting on CPU {guest.cpu} (pid {pid})")
        try:
            return launch.await_up(place, state, [guest.name], say, timeout_s=timeout_s)
        except BaseException:
            launch.end_all(place, [guest], [guest.name])
            raise


class Down(NamedTuple):
    """What was taken down.  was_up: there was a machine; ended: so many guests still ran."""

    was_up: bool
    ended: int
    segment: bool


def down(name: str, *, force: bool = False) -> Down:
    """Ends its guests, removes the fabric and the folder; nothing to do if there is none.

    LocalError: commands run in guests, or programs use the fabric, and not *force* (EBUSY)."""
    place = place_of(name)
    if not place.exists:
        return Down(False, 0, False)
    if force:
        return _down(place)
    with launch.locked(place, "take down"):
        _check_idle(place)
        return _down(place)


def _down(place: Place) -> Down:
    try:
        state = load(place)
    except FabricError:
        state = None  # damaged: its guests are found all the same
    guests = state.guests if state else ()
    hosts = [guest.name for guest in guests] or [f"host{i}" for i in range(GUESTS_MAX)]
    ours = state is None or state.segment == registry.path_of(place.name)
    return _take_down(place, guests, hosts, ours)


def _take_down(
    place: Place, guests: tuple[Guest, ...], hosts: list[str] | tuple[str, ...], segment: bool
) -> Down:
    ended = launch.end_all(place, guests, hosts)
    removed = segment and _remove_segment(place.name)
    with suppress(FileNotFoundError):
        shutil.rmtree(place.folder)
    return Down(True, ended, removed)


def machines() -> list[dict[str, Any]]:
    """All machines of this user, as plain values: what `nupa vm ls --json` prints."""
    return [_shown(place_of(name)) for name in names()]


def _shown(place: Place) -> dict[str, Any]:
    try:
        state = load(place)
    except NupaError as error:
        return {"name": place.name, "folder": place.folder, "error": str(error)}
    if state is None:
        return {"name": place.name, "folder": place.folder, "error": "half made"}
    return {
        "name": state.name,
        "folder": place.folder,
        "error": None,
        "kind": state.kind,
        "coherence": state.coherence,
        "memory_bytes": state.memory_bytes,
        "segment": state.segment,
        "qemu": state.qemu_version,
        "kernel": state.kernel,
        "machine_host": state.machine_host,
        "uptime_s": round(time.time() - state.created_s, 1),
        "guests": [_shown_guest(place, guest) for guest in state.guests],
    }


def _shown_guest(place: Place, guest: Guest) -> dict[str, Any]:
    alive = guest.state != "dead"
    return {
        "name": guest.name,
        "state": guest.state,
        "pid": guest.process.pid if guest.process and alive else None,
        "cpu": guest.cpu,
        "boot_s": guest.up_s,
        "uptime_s": round(time.time() - guest.started_s, 1) if alive else None,
        "device": guest.device,
        "device_bytes": guest.device_bytes,
        "log": place.log(guest.name),
    }


def make_segment(name: str, topology: Topology) -> Shared:
    """The fabric of the guests and the machine, of exactly the memory's size, wholly allocated: no
    store of a guest may meet a full file system.  FabricError: no room."""
    path, size = registry.path_of(name), topology.memory_bytes
    with registry.control_lock():
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FabricError(f"cannot make {path}: {error.strerror}", error.errno or 0) from error
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            registry.remove(path)
            raise FabricError(
                f"cannot allocate {say_bytes(size)} for {path}: {error.strerror}", error.errno or 0
            ) from error
        finally:
            os.close(fd)
    return Shared(path, size)


def _remove_segment(name: str) -> bool:
    """Whether it was there.  Its network interfaces go first."""
    from nupa.netdev import state as netdev

    if name in netdev.names():
        # Only now: it takes its time to import.
        from nupa.netdev.down import down as net_down

        net_down(name, keep_fabric=True)
    try:
        Fabric.remove(name, force=True)
    except LocalError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return True


def _planned(place: Place, topology: Topology, boot: Boot, shared: Shared) -> State:
    cpus = sorted(os.sched_getaffinity(0))
    guests = (
        Guest(host, cpus[i % len(cpus)], qemu.argv(boot, topology, place, shared, i))
        for i, host in enumerate(topology.hosts)
    )
    return State(
        name=place.name,
        kind=topology.kind,
        coherence=topology.coherence,
        memory_bytes=topology.memory_bytes,
        ram_bytes=topology.guests.ram_bytes,
        machine_host=topology.machine_host,
        segment=shared.path,
        qemu_version=".".join(map(str, boot.version)),
        kernel=boot.release,
        created_s=time.time(),
        guests=tuple(guests),
    )


def _check_free(place: Place) -> None:
    if place.exists:
        raise LocalError(
            f"the machine {place.name!r} is up already: `nupa vm ls` shows it, "
            f"`nupa vm down {place.name}` takes it down",
            errno.EEXIST,
        )
    if os.path.lexists(registry.path_of(place.name)):
        raise LocalError(
            f"a fabric is named {place.name!r}, and that of the machine would be: "
            f"`nupa down {place.name}` takes it down, --name gives the machine another name",
            errno.EEXIST,
        )


def _check_room(topology: Topology) -> None:
    folder = registry.folder()
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise LocalError(f"cannot use {folder}: {error.strerror}", error.errno or 0) from error
    free = found.f_bavail * found.f_frsize
    if free < topology.memory_bytes:
        raise LocalError(
            f"{folder} has {_say_mib(free)} free, and the guests' memory takes "
            f"{say_bytes(topology.memory_bytes)}: make room, or name another folder by NUPA_DIR",
            errno.ENOSPC,
        )
    ram = topology.guests.ram_bytes * topology.guests.count
    available = _available_bytes()
    if available < topology.memory_bytes + ram:
        raise LocalError(
            f"{topology.guests.count} guests of {say_bytes(topology.guests.ram_bytes)} and their "
            f"memory of {say_bytes(topology.memory_bytes)} need more than the "
            f"{_say_mib(available)} that are available: take fewer guests, or less `ram` "
            f"(--topology)",
            errno.ENOMEM,
        )


def _available_bytes() -> int:
    """proc_meminfo(5): MemAvailable."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise FabricError("/proc/meminfo says nothing of MemAvailable", errno.EIO)


def _say_mib(size: int) -> str:
    return f"{size >> 20}M"


def _check_idle(place: Place) -> None:
    """LocalError: commands run in guests, or programs of the machine use the fabric."""
    state = load(place)
    for guest in state.guests if state else ():
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
    users = registry.users(registry.path_of(place.name))
    if users:
        raise LocalError(
            f"the fabric {place.name!r} is in use{users}: end its users first, "
            f"or take the machine down with --force",
            errno.EBUSY,
        )


def _await_file(path: str) -> None:
    """FabricError: it is not there in time."""
    until = time.monotonic() + _NET_S
    while not Path(path).exists():
        if time.monotonic() > until:
            raise FabricError(f"host0 does not listen at {path}", errno.ETIMEDOUT)
        time.sleep(_POLL_S)
