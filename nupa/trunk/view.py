# SPDX-License-Identifier: BSD-3-Clause
"""The machines of a fabric as `nupa trunk ls` and `nupa show` print them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from nupa.base.errors import NupaError
from nupa.base.printable import printable
from nupa.core.trunk import MachineInfo, machines
from nupa.fabric import Fabric
from nupa.trunk import state
from nupa.trunk.cluster import Cluster, Machine
from nupa.trunk.remote import MachineAnswer


def part(name: str) -> dict[str, Any]:
    """Returns this machine's part, and what its trunk tells of the others.

    trunk: "up", or "dead" (`nupa trunk up` starts another one).  The state of a machine: "here",
    else as nupa.core.trunk.MachineInfo has it; "unknown" where no trunk runs here.
    LocalError: there is no part; FabricError: its state is damaged.
    """
    up = state.load_up(name)
    infos: list[MachineInfo] = []
    with suppress(NupaError), Fabric.open(name) as fabric:
        if fabric.generation == up.generation:
            infos = machines(fabric)
    alive = up.process.alive
    return {
        "fabric": name,
        "machine": up.machine,
        "generation": up.generation,
        "made_by": up.made_by,
        "trunk": "up" if alive and infos else "dead",
        "engine": up.engine,
        "pid": up.process.pid,
        "log": state.last_log_line(name),
        "machines": [
            _machine(machine, info, machine.name == up.machine, alive)
            for machine, info in zip_longest(up.machines, infos[: len(up.machines)])
        ],
    }


def _machine(machine: Machine, info: MachineInfo | None, own: bool, alive: bool) -> dict[str, Any]:
    told = {} if info is None else info._asdict()
    told.pop("own", None)
    if own:
        told["state"] = "here"
    elif info is None or not alive:
        told["state"] = "unknown"
    return {**_place(machine), **told}


def _place(machine: Machine) -> dict[str, Any]:
    return {
        "name": machine.name,
        "address": machine.address,
        "port": machine.port,
        "hosts": list(machine.hosts),
    }


def asked(cluster: Cluster, looks: Mapping[str, MachineAnswer]) -> dict[str, Any]:
    """Returns the machines of a cluster, each as it told of itself.

    state: "up", "dead", "absent" (no part is there) or "unknown" (see error).
    """
    return {
        "fabric": cluster.name,
        "machines": [
            {**_place(machine), **_told(looks[machine.name])} for machine in cluster.machines
        ],
    }


def _told(look: MachineAnswer) -> dict[str, Any]:
    """Returns what an answer says, checked: it comes from another machine."""
    if look.error:
        return {"state": "unknown", "joined": [], "error": look.error}
    value = look.value
    if "machine" not in value:
        return {"state": "absent", "joined": [], "error": ""}
    peers = value.get("machines")
    joined = [
        printable(str(peer.get("name")))
        for peer in (peers if isinstance(peers, list) else [])
        if isinstance(peer, dict) and peer.get("state") == "up"
    ]
    alive = value.get("alive") is True
    return {"state": "up" if alive else "dead", "joined": joined, "error": ""}


def places(name: str) -> dict[str, str]:
    """Returns the machine of each host by the host's name; empty: the fabric has no trunk."""
    try:
        up = state.load(name)
    except NupaError:
        return {}
    return {host: machine.name for machine in up.machines for host in machine.hosts} if up else {}
