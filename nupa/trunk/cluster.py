# SPDX-License-Identifier: BSD-3-Clause
"""A cluster: machines, the hosts of one fabric that each of them has, and the trunk between them.

Plain values, checked when made; `file.py` reads them from TOML.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.topology.error import TopologyError
from nupa.topology.names import check_names
from nupa.topology.topology import Topology

#: csrc/trunk/trunk.h
MACHINES_MAX = 64
PORT = 4790
ENGINES = ("ucx",)
#: csrc/segment/layout/limits.h; slot 0 is not used.
SLOTS_DEFAULT = 256


class Machine(NamedTuple):
    """A machine.  *address*: a name or a number of IP; *port*: where its trunk listens.

    *ssh*: the destination of ssh; empty: *address*.  *command*: the words that run `nupa` there.
    *hosts*: names of its hosts, in the topology's order.
    """

    name: str
    address: str
    hosts: tuple[str, ...] = ()
    ssh: str = ""
    command: tuple[str, ...] = ("nupa",)
    port: int = PORT

    @property
    def destination(self) -> str:
        return self.ssh or self.address


class TrunkSettings(NamedTuple):
    """How lines travel.  *library*: a path or name of libucp; empty: the first that is found.

    *transports*: UCX_TLS of the trunk's process; *devices*: UCX_NET_DEVICES, empty: all.
    """

    by: str = "ucx"
    port: int = PORT
    library: str = ""
    transports: str = "tcp"
    devices: str = ""


class Cluster(NamedTuple):
    """*digest*: of the files that it was read from."""

    name: str
    machines: tuple[Machine, ...]
    topology: Topology
    trunk: TrunkSettings
    digest: bytes = b""

    def machine(self, which: str) -> Machine:
        """Returns the machine of that name.  LocalError: there is none."""
        return self.machines[self.number(which)]

    def number(self, which: str) -> int:
        """Returns the number of that machine.  LocalError: there is none."""
        for index, machine in enumerate(self.machines):
            if machine.name == which:
                return index
        known = ", ".join(machine.name for machine in self.machines)
        raise LocalError(
            f"the cluster {self.name!r} has no machine {which!r}: its machines are {known}",
            errno.ENOENT,
        )

    def machine_of(self, host: str) -> Machine:
        """Returns the machine that has the host, which is one of the topology's."""
        return next(machine for machine in self.machines if host in machine.hosts)

    def generation(self, session: str) -> int:
        """Returns the generation of the fabric, the same on all machines that are told the same
        *session*, and never 0."""
        said = sha256(b"nupa trunk\0" + self.digest + b"\0" + session.encode()).digest()
        return int.from_bytes(said[:8], "big") or 1


def checked(
    name: str,
    machines: Sequence[Machine],
    topology: Topology,
    trunk: TrunkSettings,
    digest: bytes = b"",
) -> Cluster:
    """Returns the cluster, with all hosts divided.  TopologyError: parts contradict each other."""
    if not 2 <= len(machines) <= MACHINES_MAX:
        raise TopologyError(
            f"there are {len(machines)} machines: a cluster has 2 to {MACHINES_MAX}; "
            f"`nupa up` makes a fabric of one"
        )
    check_names("machine", (machine.name for machine in machines))
    _check_places(machines)
    if topology.declares or topology.memory:
        raise TopologyError(
            "tenants, partitions, admission, absent hosts and [[memory]] need memory that is "
            "coherent: a cluster has none of them"
        )
    hosts = tuple(host.name for host in topology.hosts)
    slots = topology.segment.slots or SLOTS_DEFAULT
    if slots - 1 < len(hosts):
        raise TopologyError(
            f"[segment]: `slots` is {slots}: {len(hosts)} hosts need at least {len(hosts) + 1}"
        )
    return Cluster(name, divided(machines, hosts), topology, trunk, digest)


def _check_places(machines: Sequence[Machine]) -> None:
    places: dict[tuple[str, int], str] = {}
    for machine in machines:
        place = (machine.address, machine.port)
        if place in places:
            raise TopologyError(
                f"the machines {places[place]!r} and {machine.name!r} have the same address "
                f"{machine.address} and port {machine.port}: give one another `port`"
            )
        places[place] = machine.name


def divided(machines: Sequence[Machine], hosts: Sequence[str]) -> tuple[Machine, ...]:
    """Gives machines that name no hosts those that none names: evenly, in order.

    >>> two = [Machine("a", "192.0.2.1"), Machine("b", "192.0.2.2")]
    >>> [machine.hosts for machine in divided(two, ["host0", "host1", "host2"])]
    [('host0', 'host1'), ('host2',)]

    TopologyError: a host is unknown, is named twice, is left over, or a machine has none.
    """
    owner: dict[str, str] = {}
    for machine in machines:
        for host in machine.hosts:
            if host not in hosts:
                raise TopologyError(
                    f"machine {machine.name!r}: there is no host {host!r}; the hosts are: "
                    f"{', '.join(hosts)}"
                )
            if host in owner:
                raise TopologyError(
                    f"machine {machine.name!r}: the host {host!r} is on {owner[host]!r} already"
                )
            owner[host] = machine.name
    free = [host for host in hosts if host not in owner]
    open_ = [machine for machine in machines if not machine.hosts]
    if free and not open_:
        raise TopologyError(
            f"no machine has the host {free[0]!r}: name it in the `hosts` of one of them, "
            f"or leave `hosts` out of one"
        )
    if len(free) < len(open_):
        raise TopologyError(
            f"machine {open_[len(free)].name!r} has no host: {len(hosts)} hosts do not suffice "
            f"for {len(machines)} machines; each needs one"
        )
    each, more = divmod(len(free), len(open_) or 1)
    for index, machine in enumerate(open_):
        first = index * each + min(index, more)
        for host in free[first : first + each + (index < more)]:
            owner[host] = machine.name
    return tuple(
        machine._replace(hosts=tuple(host for host in hosts if owner[host] == machine.name))
        for machine in machines
    )
