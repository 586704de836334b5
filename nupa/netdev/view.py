# SPDX-License-Identifier: BSD-3-Clause
"""The state of interfaces as `nupa net ls`, `nupa ls` and `nupa show` print it."""

from __future__ import annotations

from typing import Any

from nupa.fabric import Fabric, NupaError
from nupa.netdev import interface, state
from nupa.netdev.state import HostNet, State


def interfaces(name: str) -> list[dict[str, Any]]:
    """Returns the interfaces of the fabric as plain values.

    counters: of served interfaces, as in `struct nupa_net_counters` (csrc/segment/layout/layout.h).
    state: "up", "port down" (no carrier until the port is up), "no pump" or "no namespace"
    (`net up` repairs both), or "no fabric".

    FabricError: the state file is damaged, or not ours.
    """
    up = state.load(name)
    if up is None:
        return []
    try:
        with Fabric.open(up.reference) as fabric:
            return rows(up, fabric)
    except NupaError:
        return rows(up, None)


def rows(up: State, fabric: Fabric | None) -> list[dict[str, Any]]:
    """Returns the interfaces of *up*, whose fabric is open; None: it cannot be opened."""
    if fabric is not None and fabric.generation == up.generation:
        same = True
        served = {(slot.pid, slot.host) for slot in fabric.processes() if slot.net_queue}
        counters, ports = fabric.net_counters(), fabric.ports
        states = {host.index: ports[host.port].state for host in fabric.hosts}
    else:
        same, served, states, counters = False, set(), {}, {}

    def state_of(host: HostNet) -> str:
        if not same:
            return "no fabric"
        if not host.netns.alive:
            return "no namespace"
        if not host.pump.alive or (host.pump.pid, host.number) not in served:
            return "no pump"
        return "up" if states[host.number] == "ACTIVE" else "port down"

    return [
        {
            "fabric": up.fabric,
            "host": host.name,
            "interface": interface.NAME,
            "state": state_of(host),
            "mac": host.mac,
            "ipv4": host.ipv4,
            "addresses": list(host.addresses),
            "mtu": host.mtu_bytes,
            "queues": host.queues,
            "netns": host.netns.path,
            "pump": host.pump.pid,
            "counters": counters.get(host.number, {}),
        }
        for host in up.hosts.values()
    ]
