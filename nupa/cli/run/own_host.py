# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH100
"""The host of a fabric that is this machine, where several machines share the fabric."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nupa.fabric import registry
from nupa.vm.files.place import machine_of

if TYPE_CHECKING:
    from nupa.fabric import Fabric


def own_host(fabric: Fabric) -> str | None:
    """Returns this machine's host; None: all hosts of the fabric are this machine's.

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
