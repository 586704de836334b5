# SPDX-License-Identifier: BSD-3-Clause
"""The shared segment through `nupa._engine`, with Python's values and exceptions."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import FabricError, LocalError, NupaError, RemoteError
from nupa.base.printable import printable

if TYPE_CHECKING:
    from nupa.topology.topology import Topology

#: Room for C's text of an error.
WHY_BYTES = 512
_LINK_LAYERS = {lib.NUPA_LINK_INFINIBAND: "infiniband", lib.NUPA_LINK_ETHERNET: "ethernet"}
_NO_TRAFFIC = bytes(ffi.sizeof("struct nupa_flow_info"))
_PORT_STATES = {lib.NUPA_PORT_DOWN: "DOWN", lib.NUPA_PORT_ACTIVE: "ACTIVE"}
_PORT_SPACES = {0x0106: "tcp", 0x0111: "udp", 0x013F: "ib", 0x0002: "ipoib"}  # rdma_port_space
_SLOT_STATES = {
    lib.NUPA_SLOT_ATTACHING: "attaching",
    lib.NUPA_SLOT_LIVE: "live",
    lib.NUPA_SLOT_REAPING: "reaping",
}
#: The caller's own error; any other errno is the fabric's.
_LOCAL_ERRNOS = {
    errno.EACCES,
    errno.EBUSY,
    errno.EEXIST,
    errno.EHOSTDOWN,  # a host that is not ready: csrc/segment/control/admit.h
    errno.EINVAL,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.EPERM,
}


def check(rc: int, what: str, why: str = "") -> int:
    """Returns *rc* if it is not negative; else raises LocalError or FabricError by its errno.

    *what*: what was asked; *why*: what C found, by default the errno's own text.
    """
    if rc >= 0:
        return rc
    kind: type[NupaError] = LocalError if -rc in _LOCAL_ERRNOS else FabricError
    raise kind(f"{what}: {why or os.strerror(-rc)}", -rc)


class HostInfo(NamedTuple):
    name: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    port: int  # index in the port table
    link_layer: str
    ipv4: str
    mac: str
    lid: int


class PortInfo(NamedTuple):
    name: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    peer: int
    is_switch: bool
    node: int
    number: int
    width_lanes: int
    speed_mtps: int
    nominal_mbps: int  # of all lanes, as InfiniBand's next lower rate; nothing enforces it
    state: str  # "ACTIVE" or "DOWN"
    link_downed: int
    rate: str  # that rate as the kernel names it: "100 Gb/sec (4X EDR)"


class SlotInfo(NamedTuple):
    """An attachment of a process to a host."""

    slot: int
    state: str
    epoch: int
    pid: int
    uid: int
    host: int
    qps: int
    mrs: int
    alive: bool
    comm: str
    net_queue: int  # 1 + its number as a queue of the host's network interface; 0: a program


class TrunkPart(NamedTuple):
    """A machine's copy of a segment that a trunk joins with others' (csrc/segment/layout).

    generation: the fabric's, the same in all copies.  machine: this one's number.  first_slots: of
    each machine.  host_machines: the machine of each host.
    """

    generation: int
    machine: int
    first_slots: Sequence[int]
    host_machines: Sequence[int]


class Listener(NamedTuple):
    """A listening rdma_cm id; address: one of its host's ("any", "host", "loopback", …)."""

    slot: int
    host: int
    space: str  # "tcp", "udp", "ib", "ipoib"
    port: int
    ipv6: bool
    address: str


class Contact(NamedTuple):
    """An open channel from one attachment to another; mover: as `enum nupa_mover` names it."""

    source: SlotInfo
    target: SlotInfo
    mover: str


class HostTraffic(NamedTuple):
    """Traffic of attachments to *host* with *peer*, in bytes and packets."""

    host: int
    peer: int
    xmit_bytes: int
    xmit_packets: int
    rcv_bytes: int
    rcv_packets: int
    xmit_wait: int
    xmit_discards: int


def text(chars: Any) -> str:
    """Decodes a C string."""
    return bytes(ffi.string(chars)).decode(errors="replace")


class Segment:
    """An open segment; *handle* is its `struct nupa_fabric *`, None once closed."""

    def __init__(self, handle: Any, path: str) -> None:
        self._handle = handle
        self.path = path

    @classmethod
    def create(
        cls,
        path: str | None,
        name: str,
        topology: Topology,
        auto: bool = False,
        trunk: TrunkPart | None = None,
    ) -> Segment:
        """Makes the file *path* (None: a memfd); *trunk*: one of several machines' copies.

        LocalError: it exists, or a limit is passed; FabricError: no room.
        """
        config = ffi.new("struct nupa_config *")
        sizes = topology.segment._asdict()
        software = sizes.pop("coherence") == "software"
        for key, value in sizes.items():
            setattr(config, key, value)
        config.flags = (
            auto * lib.NUPA_SEGMENT_AUTO
            | bool(config.segment_bytes) * lib.NUPA_SEGMENT_MACHINES
            | software * lib.NUPA_SEGMENT_SOFTWARE
        )
        if trunk is not None:
            _set_trunk(config, trunk)
        hosts, ports, routes = _tables(topology)
        out = ffi.new("struct nupa_fabric **")
        why = ffi.new("char[]", WHY_BYTES)
        rc = lib.nupa_fabric_create(
            ffi.NULL if path is None else os.fsencode(path),
            name.encode(),
            config,
            hosts,
            len(topology.hosts),
            ports,
            len(topology.ports),
            routes,
            out,
            why,
            WHY_BYTES,
        )
        check(rc, f"cannot make the fabric {name!r}", text(why))
        return cls(out[0], path or "")

    @classmethod
    def open(cls, path: str) -> Segment:
        """Opens the file *path*.

        LocalError: no such file, no permission, not a regular file, path too long; FabricError: not
        a fabric, of another version, truncated or corrupt.
        """
        out = ffi.new("struct nupa_fabric **")
        why = ffi.new("char[]", WHY_BYTES)
        rc = lib.nupa_fabric_open(os.fsencode(path), out, why, WHY_BYTES)
        check(rc, "cannot open the fabric", text(why))
        return cls(out[0], path)

    @property
    def handle(self) -> Any:
        """The C `struct nupa_fabric *`.  LocalError once closed."""
        if self._handle is None:
            raise LocalError("the fabric is closed: open it again", errno.EBADF)
        return self._handle

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Drops this reference; the mapping goes with the last one."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            lib.nupa_fabric_put(handle)

    @property
    def fd(self) -> int:
        return int(lib.nupa_fabric_fd(self.handle))

    @property
    def name(self) -> str:
        return text(lib.nupa_fabric_name(self.handle))

    @property
    def generation(self) -> int:
        return int(lib.nupa_fabric_generation(self.handle))

    @property
    def created_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return int(lib.nupa_fabric_created_ns(self.handle))

    @property
    def auto(self) -> bool:
        """Whether `nupa run` made it: such a fabric goes with its last user."""
        return bool(lib.nupa_fabric_flags(self.handle) & lib.NUPA_SEGMENT_AUTO)

    def hosts(self) -> tuple[HostInfo, ...]:
        return tuple(self.host(index) for index in range(self.n_hosts))

    @property
    def n_hosts(self) -> int:
        return int(lib.nupa_fabric_n_hosts(self.handle))

    def host(self, index: int) -> HostInfo:
        """Returns the host of that index, which is below n_hosts."""
        host = lib.nupa_fabric_host(self.handle, index)
        return HostInfo(
            name=text(host.name),
            index=index,
            port=host.port,
            link_layer=_LINK_LAYERS[host.link_layer],
            ipv4=".".join(map(str, int(host.ipv4).to_bytes(4, "big"))),
            mac=bytes(host.mac).hex(":"),
            lid=host.lid,
        )

    def ports(self) -> tuple[PortInfo, ...]:
        return tuple(self._port(i) for i in range(lib.nupa_fabric_n_ports(self.handle)))

    def _port(self, index: int) -> PortInfo:
        port = lib.nupa_fabric_port(self.handle, index)
        rate = lib.nupa_port_rate(port)
        return PortInfo(
            name=text(port.name),
            index=index,
            peer=port.peer,
            is_switch=bool(port.is_switch),
            node=port.node,
            number=port.number,
            width_lanes=port.width_lanes,
            speed_mtps=port.speed_mtps,
            nominal_mbps=rate.mbps,
            state=_PORT_STATES.get(port.state, "DOWN"),
            link_downed=port.link_downed,
            rate=f"{rate.mbps / 1000:g} Gb/sec ({rate.lanes}X {text(rate.name)})",
        )

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Returns the indices of the ports from host to host."""
        route = lib.nupa_fabric_route(self.handle, src, dst)
        return tuple(route.port[hop] for hop in range(route.hops))

    def set_port(self, index: int, up: bool) -> None:
        """Sets one port's state.  The caller holds the control lock."""
        state = lib.NUPA_PORT_ACTIVE if up else lib.NUPA_PORT_DOWN
        check(lib.nupa_fabric_set_port(self.handle, index, state), f"cannot set port {index}")

    def await_links(self) -> None:
        """Waits until windows behind links that are down are gone and all followers of ports have
        acted.

        RemoteError (ETIMEDOUT): a process has not acted for 5 s; it may be stopped.
        """
        rc = lib.nupa_region_await_links(self.handle)
        if rc == -errno.ETIMEDOUT:
            raise RemoteError(
                "the port is set, but a process still has its windows and may be stopped: they "
                "read as all ones once it runs again",
                errno.ETIMEDOUT,
            )
        check(rc, "cannot wait for windows")

    def is_ready(self, host: int) -> bool:
        """Tells whether a new process may attach to a host."""
        why = ffi.new("char[]", WHY_BYTES)
        return bool(lib.nupa_host_admits(self.handle, host, why, WHY_BYTES) == 0)

    def check_ready(self, host: int) -> None:
        """Raises LocalError (EHOSTDOWN) for a host to which no process may attach."""
        why = ffi.new("char[]", WHY_BYTES)
        rc = lib.nupa_host_admits(self.handle, host, why, WHY_BYTES)
        check(rc, "no program can run there", text(why))

    def reap(self) -> int:
        """Frees the slots of dead processes; returns how many."""
        return check(lib.nupa_fabric_reap(self.handle), "cannot reap")

    def evict(self, host: int) -> int:
        """Frees the slots of other kernels' processes on *host*; returns how many."""
        return check(lib.nupa_fabric_evict(self.handle, host), "cannot evict")

    def slots(self) -> Iterator[SlotInfo]:
        """Iterates over the current attachments."""
        info = ffi.new("struct nupa_slot_info *")
        for slot in range(1, lib.nupa_fabric_n_slots(self.handle)):
            rc = lib.nupa_fabric_slot(self.handle, slot, info)
            if rc == -errno.ENOENT:
                continue
            check(rc, f"cannot read slot {slot}")
            yield SlotInfo(
                slot=slot,
                state=_SLOT_STATES.get(info.state, f"state {info.state}"),
                epoch=info.epoch,
                pid=info.pid,
                uid=info.uid,
                host=info.host,
                qps=info.qps,
                mrs=info.mrs,
                alive=bool(info.alive),
                comm=printable(text(info.comm)),
                net_queue=info.net_queue,
            )

    def flows(self) -> Iterator[HostTraffic]:
        """Iterates over traffic, of current and of former attachments, where there was any."""
        flow = ffi.new("struct nupa_flow_info *")
        everyone = range(lib.nupa_fabric_n_hosts(self.handle))
        for host in everyone:
            for peer in everyone:
                rc = lib.nupa_fabric_past_flow(self.handle, host, peer, flow)
                check(rc, "cannot read past traffic")
                yield from _flow(host, peer, flow)
        for slot in self.slots():
            for peer in everyone:
                rc = lib.nupa_fabric_flow(self.handle, slot.slot, peer, flow)
                check(rc, f"cannot read the traffic of slot {slot.slot}")
                yield from _flow(slot.host, peer, flow)

    def net_counters(self, slot: int) -> dict[str, int]:
        """Returns `struct nupa_net_counters` by name, of a slot that is a queue of an interface."""
        found = ffi.new("struct nupa_net_counters *")
        check(lib.nupa_fabric_net_counters(self.handle, slot, found), f"cannot read slot {slot}")
        return _by_name(found)

    def hw_counters(self, host: int) -> dict[str, int]:
        """Returns `struct nupa_hw_counters` by name, of current and former attachments to
        *host*."""
        found = ffi.new("struct nupa_hw_counters *")
        rc = lib.nupa_fabric_hw_counters(self.handle, host, found)
        check(rc, f"cannot read the errors and faults of host {host}")
        return _by_name(found)

    def listeners(self) -> Iterator[Listener]:
        """Iterates over the listening rdma_cm ids, by host."""
        for host in range(lib.nupa_fabric_n_hosts(self.handle)):
            n = lib.nupa_fabric_listeners(self.handle, host, ffi.NULL, 0)
            infos = ffi.new("struct nupa_listener_info[]", n)
            found = lib.nupa_fabric_listeners(self.handle, host, infos, n)
            for info in infos[0 : min(n, found)]:
                space = _PORT_SPACES.get(info.space, f"space {info.space:#x}")
                ipv6, address = bool(info.ipv6), text(info.address)
                yield Listener(info.slot, host, space, info.port, ipv6, address)

    def mover(self, from_slot: int, to_slot: int) -> str | None:
        """Returns the name of `enum nupa_mover` ("cma", …), or None where no channel is open."""
        rc = lib.nupa_fabric_mover(self.handle, from_slot, to_slot)
        if rc == -errno.ENOENT:
            return None
        check(rc, f"cannot read the channel {from_slot} - {to_slot}")
        name = str(ffi.string(ffi.cast("enum nupa_mover", rc)))
        return name.removeprefix("NUPA_MOVER_").lower()


def _set_trunk(config: Any, trunk: TrunkPart) -> None:
    config.flags |= lib.NUPA_SEGMENT_TRUNK
    config.generation = trunk.generation
    config.machine, config.machines = trunk.machine, len(trunk.first_slots)
    for number, slot in enumerate(trunk.first_slots):
        config.machine_slots[number] = slot
    for host, number in enumerate(trunk.host_machines):
        config.host_machine[host] = number


def _by_name(counters: Any) -> dict[str, int]:
    """Returns the fields of a C struct of counters."""
    fields = ffi.typeof(counters).item.fields
    return {name: int(getattr(counters, name)) for name, _ in fields if name != "reserved"}


def _flow(host: int, peer: int, flow: Any) -> Iterator[HostTraffic]:
    # Most pairs of hosts have none: compared as a whole, as there may be 64,516 of them.
    if ffi.buffer(flow)[:] != _NO_TRAFFIC:
        yield HostTraffic(host, peer, *(getattr(flow, name) for name in HostTraffic._fields[2:]))


def _tables(topology: Topology) -> tuple[Any, Any, Any]:
    link_layers = {name: value for value, name in _LINK_LAYERS.items()}
    hosts = ffi.new("struct nupa_host[]", len(topology.hosts))
    for i, host in enumerate(topology.hosts):
        number = i + 1
        hosts[i].name = host.name.encode()
        hosts[i].port = i
        hosts[i].link_layer = link_layers[topology.link_layer]
        hosts[i].ipv4 = 10 << 24 | number
        hosts[i].lid = number if topology.link_layer == "infiniband" else 0
        # Locally administered (IEEE 802, 8.4), the IPv4 address in its last bytes.
        hosts[i].mac = (2, 0, 10, 0, 0, number)
    ports = ffi.new("struct nupa_port[]", len(topology.ports))
    for i, port in enumerate(topology.ports):
        ports[i].name = port.name.encode()
        ports[i].peer = port.peer
        ports[i].is_switch = port.is_switch
        ports[i].node = port.node
        ports[i].number = port.number
        ports[i].width_lanes = port.link.width_lanes
        ports[i].speed_mtps = port.link.speed_mtps
        ports[i].state = lib.NUPA_PORT_ACTIVE
    n_hosts = len(topology.hosts)
    routes = ffi.new("struct nupa_route[]", n_hosts * n_hosts)
    for src, row in enumerate(topology.routes):
        for dst, hops in enumerate(row):
            route = routes[src * n_hosts + dst]
            route.hops = len(hops)
            for hop, index in enumerate(hops):
                route.port[hop] = index
    return hosts, ports, routes
