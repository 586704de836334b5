# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH100
"""The hosts of a fabric that are this machine's, where several machines share the fabric."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nupa.fabric import registry
from nupa.trunk.here import check_own, own_hosts
from nupa.vm.files.place import machine_of

if TYPE_CHECKING:
    from nupa.fabric import Fabric


def choice(fabric: Fabric, asked: str | int | None) -> Sequence[str]:
    """Returns the hosts of which a program gets one, unless a host was *asked* for; empty: all.

    LocalError: another machine has that host; FabricError: the state of a machine is damaged.
    """
    if asked is not None:
        check_own(fabric, fabric.host(asked).name)
        return ()
    guest = own_host(fabric)
    return own_hosts(fabric) if guest is None else (guest,)


def own_host(fabric: Fabric) -> str | None:
    """Returns the machine's host in a fabric of guests; None: it has no guests.

    FabricError: the state of the machine of guests is damaged.
    """
    path = os.path.abspath(fabric.path)
    if registry.reference(fabric.name, path) != fabric.name:
        # In a guest the fabric is a device, and its programs know their host.
        return os.environ.get("NUPA_HOST") if os.environ.get("NUPA_FABRIC") == path else None
    place = machine_of(path)
    if place is None:
        return None
    from nupa.vm.files import state

    up = state.load(place)
    return up.machine_host if up and os.path.abspath(up.segment) == path else None
