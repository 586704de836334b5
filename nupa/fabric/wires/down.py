# SPDX-License-Identifier: BSD-3-Clause
"""The end of a fabric's wires, before it is taken down."""

from __future__ import annotations

from nupa.base.errors import NupaError
from nupa.base.process import end, find_all
from nupa.fabric import registry
from nupa.fabric.fabric import Fabric


def end_wires(name: str, force: bool) -> None:
    """Ends the wires and their keepers; programs that use the fabric keep them, without *force*."""
    try:
        with Fabric.open(name) as fabric:
            wires = list(fabric.wires)
            if not wires:
                return
            keepers = {wire.pid for wire in wires}
            used = fabric.leases() or any(
                slot.pid not in keepers and not slot.net_queue for slot in fabric.processes()
            )
            if force or not used:
                fabric.wires.end_keepers()
    except NupaError:
        # Damaged: its keepers are found by their command lines.
        folder = registry.folder()
        for process in find_all("nupa.fabric.wires.process", folder, name):
            end(process)
