# SPDX-License-Identifier: BSD-3-Clause
"""The resources of a machine: its name, memory, and the file that its guests share."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from nupa.base.errors import FabricError, LocalError
from nupa.base.quantity import say_bytes
from nupa.fabric import Fabric, registry
from nupa.topology.topology import SegmentConfig, Topology, star
from nupa.vm.boot.boot import BootFiles
from nupa.vm.files.place import MachineFolder
from nupa.vm.files.topology import MachineTopology
from nupa.vm.machine.qemu import Shared


def make_segment(name: str, topology: MachineTopology) -> Shared:
    """Makes the fabric of the guests and the machine, of exactly the memory's size.

    All of it is allocated, so that no store of a guest meets a full file system.
    LocalError: it does not fit; FabricError: no room.
    """
    hosts = star(topology.guests.count + 1, name)
    size = topology.memory_bytes
    config = SegmentConfig(segment_bytes=size, coherence=topology.coherence)
    meant = Topology(name, hosts.switches, hosts.hosts, segment=config)
    with Fabric.create(name, meant) as fabric:
        return Shared(fabric.path, size)


def keep_initramfs(place: MachineFolder, boot: BootFiles) -> BootFiles:
    """Copies the initramfs to the machine's folder, because the cache removes old ones.

    FabricError: it cannot be copied.
    """
    copy = Path(place.file("initramfs"))
    try:
        shutil.copyfile(boot.initramfs, copy)
    except OSError as error:
        raise FabricError(
            f"cannot copy {boot.initramfs} to {copy}: {error.strerror}", error.errno or 0
        ) from error
    return boot._replace(initramfs=copy)


def check_free(place: MachineFolder) -> None:
    if place.exists:
        raise LocalError(
            f"the machine {place.name!r} is up already: `nupa vm ls` shows it, "
            f"`nupa vm down {place.name}` takes it down",
            errno.EEXIST,
        )
    if os.path.lexists(registry.path_of(place.name)):
        raise LocalError(
            f"a fabric is named {place.name!r}, and the machine's would have the same name: "
            f"`nupa down {place.name}` takes it down, --fabric gives the machine another name",
            errno.EEXIST,
        )


def check_room(topology: MachineTopology) -> None:
    folder = registry.file_system()
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise LocalError(f"cannot use {folder}: {error.strerror}", error.errno or 0) from error
    free = found.f_bavail * found.f_frsize
    if free < topology.memory_bytes:
        raise LocalError(
            f"{folder} has {_say_mib(free)} free, and the guests' memory takes "
            f"{say_bytes(topology.memory_bytes)}: make room, or set NUPA_DIR to another folder",
            errno.ENOSPC,
        )
    ram = topology.guests.ram_bytes * topology.guests.count
    available = _available_bytes()
    if available < topology.memory_bytes + ram:
        raise LocalError(
            f"{topology.guests.count} guests of {say_bytes(topology.guests.ram_bytes)} and their "
            f"memory of {say_bytes(topology.memory_bytes)} need more than the "
            f"{_say_mib(available)} that are available: use fewer guests, or less `ram` "
            f"(--topology)",
            errno.ENOMEM,
        )


def _available_bytes() -> int:
    """Returns MemAvailable of proc_meminfo(5)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise FabricError("/proc/meminfo has no MemAvailable", errno.EIO)


def _say_mib(size: int) -> str:
    return f"{size >> 20}MiB"
