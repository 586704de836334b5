# SPDX-License-Identifier: BSD-3-Clause
"""A fabric: create, open, show and remove it, set its ports, allocate from its pool."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from nupa import PROVIDERS
from nupa.base.errors import LocalError, NupaError
from nupa.base.ownership import open_own
from nupa.core.lines import requests, written
from nupa.core.open_fabric import OpenFabric
from nupa.core.segment import HostInfo, Segment
from nupa.fabric import registry, users
from nupa.fabric.meant import meant_name, missing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from nupa.core.segment import TrunkPart
    from nupa.fabric.fault import Fault, FaultEntry
    from nupa.fabric.faulty import FabricPort
    from nupa.fabric.host import FabricHost
    from nupa.fabric.tenants.accelerators import Accelerators
    from nupa.fabric.tenants.event import Events
    from nupa.fabric.tenants.partition import Partitions
    from nupa.fabric.tenants.tenant import Tenants
    from nupa.fabric.wires.wires import Wires
    from nupa.memory.group import Group
    from nupa.memory.pool import Pool, PoolMemory
    from nupa.topology.admission import Admission
    from nupa.topology.topology import Topology


def default_topology(hosts: int = 2, spare: int = 0) -> Topology:
    """Returns the topology of a fabric that is made because none is up: the preset `pair`, with
    this many hosts, and *spare* places that are free.

    It does not read the preset's file, since tomllib takes 10 ms to import.
    """
    from nupa.topology.topology import star

    return star(hosts, spare=spare)


class Fabric(OpenFabric):
    """A fabric of this process alone, or an open named one; a context manager that closes it.

    Fabric(hosts=2) lives in memory of this process and goes with it.  Fabric.create(name, topology)
    makes a named fabric, which stays until Fabric.remove(name); Fabric.open(name) opens one.

    >>> with Fabric(hosts=2) as fabric:
    ...     [host.name for host in fabric.hosts]
    ['host0', 'host1']
    """

    def __init__(self, hosts: int = 2, *, topology: Topology | None = None) -> None:
        from nupa.topology.topology import star

        topology = topology or star(hosts, "local")
        self._segment = Segment.create(None, topology.name, topology)
        self._named = False
        self._topology: Topology | None = topology
        self._switch: Any = None
        #: The admission policy of a fabric without a name: nupa.fabric.tenants.policy.
        self.own_admission: Admission | None = None
        self._wires: Wires | None = None
        self._declare(topology)
        self._begin_wires(topology)

    @classmethod
    def _of(cls, segment: Segment, topology: Topology | None = None) -> Fabric:
        fabric = cls.__new__(cls)
        fabric._segment = segment
        fabric._named = True
        fabric._topology = topology
        fabric._switch = None
        fabric.own_admission = None
        fabric._wires = None
        return fabric

    def _declare(self, topology: Topology) -> None:
        """Makes the tenants and the rest that *topology* declares; the caller has the control lock.

        On an error the fabric is closed.
        """
        if not topology.declares:
            return
        from nupa.fabric.tenants.declared import declare

        # Each change would take the lock, which is held.
        named, self._named = self._named, False
        try:
            declare(self, topology)
        except BaseException:
            self._segment.close()
            raise
        finally:
            self._named = named

    @classmethod
    def create(
        cls, name: str, topology: Topology, *, auto: bool = False, trunk: TrunkPart | None = None
    ) -> Fabric:
        """Makes the named fabric and uses it.  auto: the fabric goes with its last user.

        trunk: it is this machine's copy of one that several machines have.

        LocalError: it exists (EEXIST), or name or topology pass a limit; FabricError: no room.
        """
        with registry.control_lock():
            fabric = cls._create_locked(name, topology, auto, trunk)
        # Without the lock, which keepers take.
        fabric._begin_wires(topology)
        return fabric

    def _begin_wires(self, topology: Topology) -> None:
        """Makes the wires that *topology* declares.  On an error the fabric is taken away."""
        try:
            for wire in topology.wires:
                self.wires.add(
                    wire.host,
                    wire.address,
                    listen=wire.listen or None,
                    frames=wire.frames or None,
                    raw=wire.raw,
                )
        except BaseException:
            name = self.name
            if self._named:
                self.wires.end_keepers()
            self.close()
            if self._named:
                with suppress(NupaError):
                    Fabric.remove(name)
            raise

    @property
    def wires(self) -> Wires:
        """Its wires: hosts that are reached by RoCE v2 at an address."""
        from nupa.fabric.wires.wires import Wires

        if self._wires is None:
            self._wires = Wires(self)
        return self._wires

    @classmethod
    def _create_locked(
        cls, name: str, topology: Topology, auto: bool, trunk: TrunkPart | None = None
    ) -> Fabric:
        path = registry.path_of(name)
        # A segment left by a dead `nupa run` is removed and is not in the way.
        registry.collect(name)
        if os.path.lexists(path):
            os.close(open_own(path, os.O_RDONLY))  # a file of another user is refused here
            raise LocalError(
                f"the fabric {name!r} is up already: `nupa show {name}` shows it, "
                f"`nupa down {name}` takes it down",
                errno.EEXIST,
            )
        # Files of a fabric of this name whose segment was removed by other means.
        registry.remove_shown(path)
        segment = Segment.create(path, name, topology, auto, trunk)
        registry.use(segment)
        fabric = cls._of(segment, topology)
        try:
            fabric._declare(topology)
        except BaseException:
            registry.remove(path)
            registry.remove_shown(path)
            raise
        return fabric

    @classmethod
    def open(cls, name: str | None = None) -> Fabric:
        """Opens the named fabric and uses it, which keeps it up until it is closed here.

        None: the fabric of NUPA_FABRIC, else "default", else the only one that is up.  A name with
        a slash is a path, as of memory that a guest shares with its machine.  LocalError: no such
        fabric (ENOENT), or no permission; FabricError: it is damaged, or of another layout version.
        """
        with registry.control_lock():
            return cls._open_locked(name or meant_name())

    @classmethod
    def _open_locked(cls, name: str) -> Fabric:
        path = registry.find(name)
        if not os.path.lexists(path):
            raise missing(name)
        segment = Segment.open(path)
        registry.use(segment)
        return cls._of(segment)

    @classmethod
    def lease(
        cls,
        name: str | None,
        host: str | int | None,
        default: Callable[[], Topology],
        own: Callable[[Fabric, str | int | None], Sequence[str]] | None = None,
    ) -> tuple[Fabric, HostInfo]:
        """Returns the fabric, and a host that is leased until the fabric is closed, for `nupa run`.

        name None: as for open(); if none is up, *default()* is made and goes with its last user.
        host: a name or index; None: of the hosts that *own* returns, by default of all, the one
        that is ready and has the fewest programs, the first of equals.  *own* raises LocalError if
        *host* is another machine's.
        LocalError: the host is not ready (EHOSTDOWN).
        """
        with registry.control_lock():
            fabric, _ = cls._open_or_create_locked(name, default, auto=True)
            try:
                among = own(fabric, host) if own is not None else ()
                chosen = fabric.host(host) if host is not None else fabric._quietest_host(among)
                fabric.check_ready(chosen)
                users.take_lease(fabric._segment, chosen.index)
            except BaseException:
                # Not fabric.close(): that takes the control lock, which we hold.
                name = fabric.name
                fabric._segment.close()
                registry.collect(name)
                raise
            return fabric, chosen

    @classmethod
    def open_or_create(
        cls, name: str | None, default: Callable[[], Topology]
    ) -> tuple[Fabric, bool]:
        """Returns the fabric, chosen as by lease(), and whether it was made; a made one stays."""
        with registry.control_lock():
            return cls._open_or_create_locked(name, default, auto=False)

    @classmethod
    def _open_or_create_locked(
        cls, name: str | None, default: Callable[[], Topology], *, auto: bool
    ) -> tuple[Fabric, bool]:
        name = name or meant_name()
        if name == registry.DEFAULT_NAME and not os.path.lexists(registry.path_of(name)):
            return cls._create_locked(name, default(), auto), True
        return cls._open_locked(name), False

    @staticmethod
    def remove(name: str, *, force: bool = False) -> None:
        """Takes a named fabric down, even a damaged one.

        LocalError: there is none, or it is in use (EBUSY).  With *force* its users keep their
        mappings, but no new user finds it.
        """
        with registry.control_lock():
            path = registry.path_of(name)
            if not os.path.lexists(path):
                raise LocalError(f"no fabric is named {name!r}: `nupa ls` lists them", errno.ENOENT)
            if not force and registry.in_use(path):
                raise LocalError(
                    f"the fabric {name!r} is in use{users.users(path)}: "
                    f"end its users first, or take it down with --force",
                    errno.EBUSY,
                )
            registry.remove(path)
            registry.remove_shown(path)

    def close(self) -> None:
        """Stops using the fabric.  A fabric of this process alone goes with its last open
        device."""
        if self._segment.closed:
            return
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        if self._wires is not None:
            self._wires.close()
        name = self._segment.name if self._named and self._segment.auto else None
        self._segment.close()
        if name is not None:
            with registry.control_lock():
                registry.collect(name)

    def host(self, which: str | int) -> FabricHost:
        """Returns the host of that name, else of that index.  LocalError: no such host (ENOENT)."""
        from nupa.fabric.host import FabricHost

        return FabricHost.of(self, super().host(which))

    def _quietest_host(self, among: Sequence[str] = ()) -> HostInfo:
        """Returns the host with the fewest programs, attached or leased for, whichever are more.

        *among*: names of hosts; empty: all.

        Hosts that are not ready are the last choice, which is refused then.
        """
        self._segment.reap()
        attached = [0] * len(self.hosts)
        for slot in self._segment.slots():
            attached[slot.host] += not slot.net_queue
        return min(
            [host for host in self.hosts if host.name in among] or self.hosts,
            key=lambda host: (
                not self.is_ready(host),
                max(attached[host.index], users.leases(self._segment, host.index)),
            ),
        )

    def lease_net(self, host: HostInfo) -> None:
        """Counts this fabric as a user of the host's network interface, until drop_net()."""
        users.take_lease(self._segment, users.NET_LEASES + host.index)

    def drop_net(self, host: HostInfo) -> int:
        """Ends that use; returns how many other users the interface has."""
        users.drop_lease(self._segment, users.NET_LEASES + host.index)
        return users.leases(self._segment, users.NET_LEASES + host.index)

    def set_port(self, which: str | int, up: bool, *, wait: bool = True) -> None:
        """Sets a link, both ends of it, down or up; *which* as for port(), or a host's number.

        Windows whose memory is reached by the link are lost at once, in all processes, for good:
        map them again once it is up.  Without *wait* that may happen after the return.

        LocalError: no such link; RemoteError: a stopped process keeps its windows until it runs
        (ETIMEDOUT, after 5 s).
        """
        from nupa.core.place import find_port

        port = find_port(self.ports, self.hosts, which)
        with self.control_lock():
            self._segment.set_port(port.peer, up)
            self._segment.set_port(port.index, up)
        if wait:
            self.await_links()

    def await_links(self) -> None:
        """Waits until all processes have acted on the ports that were set: see set_port."""
        if self._switch is not None:
            self._switch.follow()  # here, as the caller may have its lock
        self._segment.await_links()

    def control_lock(self) -> AbstractContextManager[None]:
        """Returns the lock to hold while the fabric changes: watches, faults, ports."""
        return registry.control_lock() if self._named else nullcontext()

    def port(self, which: str | int) -> FabricPort:
        """Returns a port for Faulty, by its name, its host's or its link's.

        Names: "host0/1", "host0", "host0-switch0".  LocalError: no such port (ENOENT), or several
        (EINVAL).
        """
        from nupa.core.place import find_port
        from nupa.fabric.faulty import FabricPort

        return FabricPort(self, find_port(self.ports, self.hosts, which).name)

    def faults(self) -> list[FaultEntry]:
        """Lists the faults that were added and not cleared, oldest first."""
        from nupa.fabric import fault

        return fault.entries(self._segment)

    def add_fault(self, port: str | int, fault: Fault, rng: Random | None = None) -> FaultEntry:
        """Adds a fault to a port, named as for port().

        It applies to all packets that pass the port, in either direction.  A missing seed is drawn
        from *rng*, else from the system.

        LocalError: no such port; FabricError: the table is full (ENOSPC).
        """
        from random import SystemRandom

        from nupa.core.place import find_port
        from nupa.fabric import fault as table

        with self.control_lock():
            at = find_port(self.ports, self.hosts, port)
            seeded = fault.seeded(rng or SystemRandom())
            number = table.add(self._segment, at, seeded)
            self._tell("fault.added", at.name, f"fault {number}: {seeded}")
            (entry,) = [found for found in table.entries(self._segment) if found.id == number]
        # With all of its time, of which a moment has passed already.
        return entry._replace(fault=seeded)

    def clear_fault(self, number: int) -> bool:
        """Clears the fault with this id; returns whether it was there."""
        from nupa.fabric import fault

        if number == 0:
            return False  # to the table it means all
        with self.control_lock():
            found = fault.clear(self._segment, number)
            if found:
                self._tell("fault.cleared", str(number), f"fault {number} is cleared")
            return found

    def clear_faults(self) -> None:
        """Clears all faults."""
        from nupa.fabric import fault

        with self.control_lock():
            had = fault.entries(self._segment)
            fault.clear(self._segment, 0)
            if had:
                self._tell("fault.cleared", self.name, "all faults are cleared")

    def _tell(self, kind: str, subject: str, text: str) -> None:
        """Posts an event about a fault, where the fabric keeps events."""
        severity = "warning" if kind == "fault.added" else "ok"
        with suppress(NupaError):
            self.events.post(kind, subject, text, severity)

    def alloc(self, size_bytes: int) -> PoolMemory:
        """Allocates zeroed memory of the pool, which all hosts can load from and store to.

        LocalError: a size below 1; FabricError: the pool (ENOMEM) or the file system (ENOSPC) has
        no room.  See PoolMemory.
        """
        # Imported here, since ctypes takes a while to import.
        from nupa.memory.pool import allocate

        return allocate(self.handle, size_bytes)

    @property
    def pool(self) -> Pool:
        """The pool: regions that hosts share, and their quotas."""
        from nupa.memory.pool import Pool

        return Pool(self)

    @property
    def tenants(self) -> Tenants:
        """Its tenants: who shares the fabric, with which rate and quotas."""
        from nupa.fabric.tenants.tenant import Tenants

        return Tenants(self)

    @property
    def partitions(self) -> Partitions:
        """Its partitions: which hosts may speak with which."""
        from nupa.fabric.tenants.partition import Partitions

        return Partitions(self)

    @property
    def events(self) -> Events:
        """Its events: what changed."""
        from nupa.fabric.tenants.event import Events

        return Events(self)

    @property
    def accelerators(self) -> Accelerators:
        """The controller of its UALink pod: partitions are virtual pods."""
        from nupa.fabric.tenants.accelerators import Accelerators

        return Accelerators(self)

    def set_host_state(self, host: str | int, state: str) -> None:
        """Sets a host's state: "ready", "absent", "onboarding", "draining" or "failed".

        Processes attach to a host that is ready.  LocalError: no such host or state.
        """
        from nupa.fabric.host import set_state

        with self.control_lock():
            set_state(self, self.host(host), state)

    def group(self, hosts: Sequence[str | int | HostInfo], size: int, name: str = "") -> Group:
        """Makes a group: zeroed memory of *size* bytes at each of *hosts*, which the switches
        store to, load from and reduce as one.  *name*: for find_group of other processes.

        LocalError: no host, more than 64, one given twice, a name that is taken (EEXIST) or too
        long; FabricError: no room.
        """
        from nupa.memory.group import make

        return make(self, hosts, size, name)

    def find_group(self, name: str) -> Group:
        """Returns the group of that name.  LocalError: there is none (ENOENT)."""
        from nupa.memory.group import find

        return find(self, name)

    @property
    def switch(self) -> Any:
        """The CXL switch of its hosts and the devices on it, a nupa.cxl.site.site.Site.

        It is made in this process at first use and goes with this object.  `switch.host(0)`
        enumerates, `FabricManager.of(switch.manager)` binds.
        """
        if self._switch is None:
            from importlib import import_module

            site = import_module(PROVIDERS["FabricSite"])
            self._switch = site.FabricSite(self, self._topology)
        return self._switch

    def cache_requests(self) -> dict[int, dict[str, int]]:
        """Returns CXL.cache requests and snoops of the fast channel by opcode, by host number.

        They include those of programs that have ended: `nupa.core.lines`.
        """
        return dict(enumerate(requests(len(self.hosts), written(self._segment))))

    def leases(self) -> int:
        """Returns how many hosts are leased, by `nupa run` and others that run a program on one."""
        return sum(users.leases(self._segment, host.index) for host in self.hosts)

    def show(self, *, lists: bool = True) -> dict[str, Any]:
        """Returns the whole state as plain values: the output of `nupa show --json`.

        Without *lists*: no channels, listeners, queue pairs, memory regions and their like.
        """
        from nupa.fabric.shown import show

        return show(self, self._segment, lists=lists)
