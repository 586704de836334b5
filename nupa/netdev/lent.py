# SPDX-License-Identifier: BSD-3-Clause
"""Interfaces that are lent: `nupa run --net` makes one that goes with its last user.

The kernel keeps count in two ways.  A lease of the interface for each user (nupa/fabric/users.py)
tells which is the last one, and removes it.  The keeper's lifeline, a pipe that each user holds
open, ends the keeper and so the pump, if users were killed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from nupa.base.errors import LocalError
from nupa.fabric import registry
from nupa.netdev import down, state
from nupa.netdev.keeper import Keeper

if TYPE_CHECKING:
    from nupa.core.segment import HostInfo
    from nupa.fabric import Fabric
    from nupa.netdev.state import HostNet


@contextmanager
def use(fabric: Fabric, host: HostInfo, *, make: bool) -> Iterator[HostNet]:
    """Uses the interface of *host*; with *make*, one is made or repaired where it is missing.

    LocalError: there is none, or it cannot be made; FabricError: its pump does not start.
    """
    with state.lock(fabric.name):
        lifeline, found = _join(fabric, host, make)
        if lifeline >= 0:
            fabric.lease_net(host)
    try:
        yield found
    finally:
        if lifeline >= 0:
            with state.lock(fabric.name):
                _leave(fabric, host)
            os.close(lifeline)


def _join(fabric: Fabric, host: HostInfo, make: bool) -> tuple[int, HostNet]:
    """Returns a writer of the lifeline, -1 where it has none, and the interface."""
    up = state.load(fabric.name)
    same = up is not None and up.generation == fabric.generation
    found = up.hosts.get(host.name) if up is not None and same else None
    if make and (found is None or not found.netns.alive or not found.pump.alive):
        return _make(fabric, host, lent=found is None or bool(found.lifeline))
    if found is None:
        raise LocalError(
            f"no interface is up for {host.name} of {fabric.name!r}: `nupa net up --fabric "
            f"{fabric.name}` makes those of all hosts",
            errno.ENOENT,
        )
    return Keeper.grasp(found.lifeline) if found.lifeline else -1, found


def _make(fabric: Fabric, host: HostInfo, *, lent: bool) -> tuple[int, HostNet]:
    from nupa.netdev.interface import check_device
    from nupa.netdev.up import up_locked
    from nupa.netdev.wish import Wish

    if registry.reference(fabric.name, os.path.abspath(fabric.path)) != fabric.name:  # noqa: PTH100
        raise LocalError(
            "guests have a network of their own: `nupa net up` gives this one the interface of its "
            "host",
            errno.EINVAL,
        )
    check_device()
    with ExitStack() as undo:
        report = up_locked(fabric, False, Wish([host.name], lent=lent), undo)
    for why in report.lost.values():
        raise LocalError(f"{host.name}: {why}", errno.ENOENT)
    (found,) = [entry for entry in report.up if entry.name == host.name]
    if report.lifeline >= 0 or not found.lifeline:
        return report.lifeline, found
    return Keeper.grasp(found.lifeline), found


def _leave(fabric: Fabric, host: HostInfo) -> None:
    """Removes the interface if no other process uses it; the caller holds the lock."""
    if fabric.drop_net(host):
        return
    up = state.load(fabric.name)
    found = up.hosts.get(host.name) if up is not None else None
    if up is not None and found is not None and found.lifeline:
        down.take_away_host(up, host.name)
