# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa net exec` 10 ms.
# ruff: noqa: PTH118, PTH119, PTH123
"""The state of `net up` for a fabric: a JSON file beside the segment, replaced as a whole.

.nupa-UID-NAME.net lists namespaces, interfaces and pumps; .nupa-UID-NAME.log has the pumps'
messages.  Changes to any of them happen under the lock, .nupa-UID-NAME.lock.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple

from nupa.base import state_file
from nupa.base.errors import LocalError
from nupa.base.ownership import open_own
from nupa.base.process import Process
from nupa.base.state_file import field
from nupa.fabric import meant, registry
from nupa.netdev.namespace import Netns

_VERSION = 3
# A holder may be starting the pumps of many hosts.
_LOCK_WAIT_S = 300.0


class HostNet(NamedTuple):
    """The interface of a host.  addresses: as assigned to it.

    lifeline: the keeper's, of an interface that goes with its last user; else empty.
    """

    name: str
    number: int  #: of the host in its fabric
    mac: str
    ipv4: str
    addresses: tuple[str, ...]
    mtu_bytes: int
    queues: int
    netns: Netns
    pump: Process
    lifeline: str


class State(NamedTuple):
    """The interfaces of a fabric.

    path: of the segment, absolute.  generation: of the fabric; a fabric with another generation is
    a later one of the same name.  made_fabric: `net up` made the fabric, and `net down` removes it.
    """

    fabric: str
    path: str
    generation: str
    made_fabric: bool
    hosts: Mapping[str, HostNet]

    @property
    def reference(self) -> str:
        """The argument of Fabric.open(): the name, or the path of memory that machines share."""
        return registry.reference(self.fabric, self.path)

    def host(self, which: str) -> HostNet:
        """Returns the host of that name, else of that number.  LocalError: it is not up."""
        for host in self.hosts.values():
            if which in (host.name, str(host.number)):
                return host
        up = ", ".join(self.hosts) or "none"
        raise LocalError(
            f"no interface is up for the host {which!r} of {self.fabric!r}; up are: {up}; "
            f"`nupa net up --fabric {self.fabric}` makes those of all hosts",
            errno.ENOENT,
        )


def lock(name: str) -> AbstractContextManager[None]:
    """Returns the lock to hold while interfaces of this fabric are made or removed."""
    return registry.locked(os.path.basename(_beside(name, "lock")), _LOCK_WAIT_S)


def path_of(name: str) -> str:
    return _beside(name, "net")


def log_path_of(name: str) -> str:
    return _beside(name, "log")


def _beside(name: str, suffix: str) -> str:
    head, segment = os.path.split(registry.path_of(name))
    return os.path.join(head, f".{segment}.{suffix}")


def names() -> list[str]:
    """Lists the names of the fabrics whose interfaces `net up` has made, sorted."""
    return registry.names_of(".", ".net")


def meant_name(said: str | None = None) -> str:
    """Returns the name of the fabric *said*, a name or a path; None: NUPA_FABRIC's, else "default",
    else of the only one with interfaces, else of the only one.

    LocalError: several have interfaces; none has, and several are up; nothing is at the path.
    """
    said = said or meant.told_name()
    if said is not None:
        return meant.name_of(said)
    found = [name for name in names() if registry.is_ours(path_of(name))]
    if not found:
        return meant.meant_name()
    if registry.DEFAULT_NAME in found:
        return registry.DEFAULT_NAME
    if len(found) > 1:
        raise LocalError(
            f"several fabrics have interfaces, {', '.join(found)}: name one with --fabric",
            errno.EINVAL,
        )
    return found[0]


def load(name: str) -> State | None:
    """Returns the state, or None: no interfaces.  FabricError: the file is damaged, or not ours."""

    def parse(value: Any) -> State:
        fabric, path, generation = (
            field(str, value, key) for key in ("fabric", "path", "generation")
        )
        hosts = {host.name: host for host in field(tuple[HostNet, ...], value, "hosts")}
        return State(fabric, path, generation, field(bool, value, "made_fabric"), hosts)

    remedy = f"`nupa net down --fabric {name}` takes it away"
    return state_file.load(path_of(name), _VERSION, parse, remedy)


def load_up(name: str) -> State:
    """Returns the state.  LocalError: no interfaces are up."""
    state = load(name)
    if state is None:
        raise LocalError(
            f"the fabric {name!r} has no interfaces: `nupa net up --fabric {name}` makes them",
            errno.ENOENT,
        )
    return state


def store(state: State) -> None:
    """Writes the file.  The caller holds the lock.  FabricError: no room."""
    hosts = tuple(state.hosts.values())
    state_file.store(path_of(state.fabric), _VERSION, state._asdict() | {"hosts": hosts})


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
