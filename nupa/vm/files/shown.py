# SPDX-License-Identifier: BSD-3-Clause
"""The machines of this user, as `nupa vm ls` lists them."""

from __future__ import annotations

import time
from typing import Any

from nupa.base.errors import NupaError
from nupa.vm.files.place import MachineFolder, names, place_of
from nupa.vm.files.state import Guest, load


def machines() -> list[dict[str, Any]]:
    """Returns all machines of this user as plain values, for `nupa vm ls --json`."""
    return [machine(name) for name in names()]


def machine(name: str) -> dict[str, Any]:
    """Returns one of them."""
    place = place_of(name)
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
        "wakeup": "doorbell" if state.doorbell and state.doorbell.alive else "polling",
        "guests": [_guest(place, guest) for guest in state.guests],
    }


def _guest(place: MachineFolder, guest: Guest) -> dict[str, Any]:
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
        "wakeup": "doorbell" if guest.bell else "polling",
        "log": place.log(guest.name),
    }
