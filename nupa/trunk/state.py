# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa run` 10 ms.
# ruff: noqa: PTH118, PTH119, PTH123
"""The state of this machine's part of a cluster: a JSON file beside the segment.

.nupa-UID-NAME.trunk lists the machines, their hosts and the trunk's process;
.nupa-UID-NAME.trunk-log has its messages.  Changes happen under the lock,
.nupa-UID-NAME.trunk-lock.
"""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple

from nupa.base import state_file
from nupa.base.errors import LocalError
from nupa.base.ownership import open_own
from nupa.base.process import Process
from nupa.fabric import meant, registry
from nupa.trunk.cluster import Machine

_VERSION = 1
# The process of another command may be starting for as long.
_LOCK_WAIT_S = 120.0
SUFFIX = ".trunk"


class PartState(NamedTuple):
    """This machine's part.  generation: of the fabric; session: what it was made of, see
    Cluster.generation().  machine: this one's name.  made_by: "ssh", "hand" or "srun".
    engine: UCX's version and path."""

    fabric: str
    path: str
    generation: str
    session: str
    machine: str
    machines: tuple[Machine, ...]
    made_by: str
    engine: str
    process: Process

    def own(self) -> Machine:
        return next(machine for machine in self.machines if machine.name == self.machine)

    def machine_of(self, host: str) -> Machine | None:
        return next((machine for machine in self.machines if host in machine.hosts), None)


def lock(name: str) -> AbstractContextManager[None]:
    """Returns the lock to hold while this machine's part is made or removed."""
    return registry.locked(os.path.basename(_beside(name, f"{SUFFIX}-lock")), _LOCK_WAIT_S)


def path_of(name: str) -> str:
    return _beside(name, SUFFIX)


def log_path_of(name: str) -> str:
    return _beside(name, f"{SUFFIX}-log")


def _beside(name: str, suffix: str) -> str:
    head, segment = os.path.split(registry.path_of(name))
    return os.path.join(head, f".{segment}{suffix}")


def names() -> list[str]:
    """Lists the names of the fabrics of which this machine has a part, sorted."""
    return registry.names_of(".", SUFFIX)


def meant_name(said: str | None = None) -> str:
    """Returns the fabric *said*; None: NUPA_FABRIC's, else the only one with a trunk.

    LocalError: there is none, or several.
    """
    said = said or meant.told_name()
    if said is not None:
        return meant.name_of(said) if "/" in said else said
    found = [name for name in names() if registry.is_ours(path_of(name))]
    if len(found) == 1:
        return found[0]
    if not found:
        raise LocalError("no trunk is up here: `nupa trunk up FILE` starts one", errno.ENOENT)
    raise LocalError(
        f"several fabrics have trunks, {', '.join(found)}: name one with --fabric", errno.EINVAL
    )


def load(name: str) -> PartState | None:
    """Returns the state, or None: no trunk.  FabricError: the file is damaged, or not ours."""
    remedy = f"`nupa trunk down --fabric {name} --here` takes it away"
    return state_file.load(path_of(name), _VERSION, _parse, remedy)


def _parse(value: Any) -> PartState:
    found = state_file.record(PartState, value)
    names = [machine.name for machine in found.machines]
    if found.machine not in names:
        raise ValueError(f"`machine` is {found.machine!r}, none of its machines")
    return found


def load_up(name: str) -> PartState:
    """Returns the state.  LocalError: no trunk is up."""
    state = load(name)
    if state is None:
        raise LocalError(
            f"the fabric {name!r} has no trunk here: `nupa trunk up FILE` starts one", errno.ENOENT
        )
    return state


def store(state: PartState) -> None:
    """Writes the file.  The caller holds the lock.  FabricError: no room."""
    state_file.store(path_of(state.fabric), _VERSION, state._asdict())


def forget(name: str) -> None:
    """Removes file and log.  The caller holds the lock."""
    registry.remove(path_of(name))
    registry.remove(log_path_of(name))


def last_log_line(name: str) -> str:
    """Returns the last line of the log; empty if there is none."""
    with suppress(OSError, LocalError):
        fd = open_own(log_path_of(name), os.O_RDONLY)
        with open(fd, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
            return lines[-1] if lines else ""
    return ""


def open_log(name: str) -> int:
    """Opens the log for appending and returns its descriptor.  LocalError: it is not ours."""
    return open_own(log_path_of(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
