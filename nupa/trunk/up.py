# SPDX-License-Identifier: BSD-3-Clause
"""This machine's part of a cluster: its copy of the segment, and the trunk's process.

All of it stays, or none.  Until the state is written, the process waits for us to confirm.
"""

from __future__ import annotations

import errno
import os
import select
import time
from contextlib import ExitStack
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.base.process import end, find_all, signals_held
from nupa.fabric import Fabric, registry
from nupa.trunk import state, view
from nupa.trunk.cluster import Cluster, Machine
from nupa.trunk.segment import create
from nupa.trunk.start import StartedTrunk
from nupa.trunk.state import PartState

JOINED = ("here", "up")
_LOOK_S = 0.05


class PartUp(NamedTuple):
    """The result.  made: a new segment; started: a new process; else all was up already."""

    fabric: str
    made: bool
    started: bool
    trunk: StartedTrunk | None = None


def up(
    cluster: Cluster, machine: Machine, session: str, made_by: str, *, attached: bool = False
) -> PartUp:
    """Makes this machine's part, or repairs it; a process that lives stays.

    attached: the process ends with this one; the caller keeps the report's *trunk*.
    LocalError, FabricError: nothing was made.
    """
    name = cluster.name
    generation = f"{cluster.generation(session):016x}"
    with state.lock(name), ExitStack() as undo:
        before = _before(name, generation)
        if before is not None and before.process.alive:
            _refuse_other(before, machine)
            return PartUp(name, False, False)
        end_strays(name)
        if before is None:
            undo.callback(state.forget, name)
        fabric, made = _segment(cluster, machine, generation, undo)
        with fabric:
            with signals_held():
                trunk = StartedTrunk(fabric, cluster, machine, attached=attached)
                undo.callback(trunk.close)
            engine = trunk.wait()
            after = PartState(
                name,
                os.path.abspath(fabric.path),  # noqa: PTH100
                generation,
                session,
                machine.name,
                cluster.machines,
                made_by,
                engine,
                trunk.process,
            )
            with signals_held():
                state.store(after)
                trunk.go()
                undo.pop_all()
    return PartUp(name, made, True, trunk)


def _before(name: str, generation: str) -> PartState | None:
    """Returns the state of this very fabric, after others' are gone."""
    before = state.load(name)
    if before is None or before.generation == generation:
        return before
    if before.process.alive:
        raise LocalError(
            f"a trunk of another fabric {name!r} is up here, of other machines, another file or "
            f"another start: `nupa trunk down --fabric {name} --here` first",
            errno.EEXIST,
        )
    state.forget(name)
    return None


def _refuse_other(before: PartState, machine: Machine) -> None:
    if before.machine != machine.name:
        raise LocalError(
            f"this machine is {before.machine!r} of the fabric {before.fabric!r} already, not "
            f"{machine.name!r}: NUPA_DIR separates two on one machine",
            errno.EEXIST,
        )


def _segment(
    cluster: Cluster, machine: Machine, generation: str, undo: ExitStack
) -> tuple[Fabric, bool]:
    """Opens this machine's copy if it is there, else makes it."""
    if os.path.lexists(registry.path_of(cluster.name)):
        fabric = Fabric.open(cluster.name)
        if fabric.generation == generation:
            return fabric, False
        fabric.close()
        # It is another one: create() says so.
    with signals_held():
        fabric = create(cluster, machine, int(generation, 16))
        undo.callback(Fabric.remove, cluster.name, force=True)
    return fabric, True


def end_strays(name: str) -> int:
    """Ends the fabric's trunk processes that no state names; returns how many."""
    folder = os.path.abspath(registry.folder())  # noqa: PTH100
    strays = find_all("nupa.trunk.process", folder, name)
    for process in strays:
        end(process)
    return len(strays)


def await_peers(name: str, wait_s: float) -> list[str]:
    """Waits until all machines are joined to this one; returns those that are not by then."""
    until = time.monotonic() + wait_s
    while True:
        missing = unjoined(name)
        left_s = until - time.monotonic()
        if not missing or left_s <= 0:
            return missing
        select.select([], [], [], min(_LOOK_S, left_s))


def unjoined(name: str) -> list[str]:
    """Lists the machines that are not joined to this one.  LocalError: no trunk is up."""
    return [each["name"] for each in view.part(name)["machines"] if each["state"] not in JOINED]
