# SPDX-License-Identifier: BSD-3-Clause
"""`net down`: ends pumps, removes interfaces and namespaces."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from nupa.base.errors import FabricError, LocalError, NupaError
from nupa.base.process import end, find_all
from nupa.fabric import Fabric, registry
from nupa.netdev import interface, namespace, state
from nupa.netdev.state import HostNet, State


class DownReport(NamedTuple):
    """The result of `net down`.

    hosts: the hosts that had interfaces.  fabric_is: "kept", "removed" or "in use"; a fabric that
    `net up` made is removed unless it is in use.
    """

    fabric: str
    hosts: list[str]
    fabric_is: str
    left: dict[str, str]


def down(name: str, *, keep_fabric: bool = False) -> DownReport:
    """Removes all that `net up` made of the fabric, even where parts of it are gone or damaged.

    LocalError: nothing is up.
    """
    with state.lock(name):
        try:
            found = state.load_up(name)
        except (FabricError, LocalError) as error:
            # Damaged or lost: its processes are found by their command lines.
            strays = end_strays(name)
            state.forget(name)
            if isinstance(error, LocalError) and not strays:
                raise
            return DownReport(name, [], "kept", {})
        left = take_away(found)
    fabric_is = "kept"
    if found.made_fabric and not keep_fabric:
        fabric_is = _remove_fabric(found)
    return DownReport(name, list(found.hosts), fabric_is, left)


def sweep(name: str) -> None:
    """Removes the interfaces of a fabric that is gone."""
    if not os.path.lexists(registry.path_of(name)):
        down(name, keep_fabric=True)


def take_away(found: State) -> dict[str, str]:
    """Removes all; returns the interfaces that stay, by host, and why.  The caller holds the
    lock."""
    left = _end(found.hosts.values())
    end_strays(found.fabric)
    state.forget(found.fabric)
    return left


def take_away_host(found: State, which: str) -> None:
    """Removes the interface of one host, whose namespace is its own; the caller holds the lock."""
    rest = {name: host for name, host in found.hosts.items() if name != which}
    _end([found.hosts[which]])
    if rest:
        state.store(found._replace(hosts=rest))
    else:
        state.forget(found.fabric)


def _end(hosts: Collection[HostNet]) -> dict[str, str]:
    """Ends pumps and keepers; returns the interfaces that stay, by host, and why."""
    for pump in {host.pump for host in hosts}:
        end(pump)
    left = {}
    for host in hosts:
        # Also in a namespace of ours: programs in it would keep it, and the interface with it.
        if host.netns.alive:
            try:
                namespace.run_in(host.netns, partial(_remove_interface, host.queues))
            except NupaError as error:
                left[host.name] = str(error)
    for keeper in {host.netns.holder for host in hosts if host.netns.own}:
        if keeper is not None:
            end(keeper)
    return left


def _remove_interface(queues: int) -> tuple[None, list[int]]:
    interface.remove(queues)
    return None, []


def end_strays(name: str) -> int:
    """Ends keepers and pumps of the fabric that no state file names; returns how many.

    The caller holds the lock.
    """
    folder = os.path.abspath(registry.folder())  # noqa: PTH100
    path = os.path.abspath(registry.path_of(name))  # noqa: PTH100
    strays = find_all("nupa.netdev.pump", folder, name) + find_all("nupa_keeper", path)
    for process in strays:
        end(process)
    return len(strays)


def _remove_fabric(found: State) -> str:
    with suppress(LocalError):
        with Fabric.open(found.reference) as fabric:
            if fabric.generation != found.generation:
                return "kept"
        try:
            Fabric.remove(found.fabric)
        except LocalError as error:
            if error.errno != errno.EBUSY:
                raise
            return "in use"
    return "removed"


def in_use_by_others(name: str) -> bool:
    """Tells whether programs use the fabric, and not only its interfaces.

    A fabric that is gone or damaged has no users.
    """
    try:
        with Fabric.open(name) as fabric:
            keepers = {wire.pid for wire in fabric.wires}
            return fabric.leases() > 0 or any(
                not slot.net_queue and slot.pid not in keepers for slot in fabric.processes()
            )
    except NupaError:
        return False
