# SPDX-License-Identifier: BSD-3-Clause
"""The end of this machine's part: its process, its copy of the segment and its state."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import NamedTuple

from nupa.base.errors import FabricError, LocalError, NupaError
from nupa.base.process import end
from nupa.fabric import Fabric, registry
from nupa.trunk import state
from nupa.trunk.up import end_strays


class PartDown(NamedTuple):
    """fabric_is: "removed", "kept" (another one has its name) or "in use"."""

    fabric: str
    fabric_is: str


def down(name: str, *, force: bool = False) -> PartDown:
    """Takes this machine's part away, even where its state is damaged.

    A copy that programs use stays unless *force*; they find the other machines gone.
    LocalError: no part is here.
    """
    with state.lock(name):
        try:
            found = state.load_up(name)
        except (FabricError, LocalError) as error:
            strays = end_strays(name)
            state.forget(name)
            if isinstance(error, LocalError) and not strays:
                raise
            return PartDown(name, "kept")
        end(found.process)
        end_strays(name)
        state.forget(name)
    return PartDown(name, _remove(name, found.generation, force))


def take_away(name: str, generation: str, *, by: int) -> None:
    """Takes the part away, in its own process *by*, which ends then."""
    with suppress(NupaError), state.lock(name):
        found = state.load(name)
        if found is not None and (found.generation, found.process.pid) == (generation, by):
            state.forget(name)
            _remove(name, generation, False)


def _remove(name: str, generation: str, force: bool) -> str:
    if not os.path.lexists(registry.path_of(name)):
        return "removed"
    with suppress(NupaError), Fabric.open(name) as fabric:
        if fabric.generation != generation:
            return "kept"
    try:
        Fabric.remove(name, force=force)
    except LocalError as error:
        if error.errno != errno.EBUSY:
            raise
        return "in use"
    return "removed"
