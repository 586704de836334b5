# SPDX-License-Identifier: BSD-3-Clause
"""Topologies: hosts, switches, links, and the routes that follow from them.

Plain values, checked when made, without file or segment.  `file.py` reads them from TOML.
Named tuples, not dataclasses: `nupa run` makes some, and dataclasses takes 15 ms to import.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from nupa.topology.error import TopologyError as TopologyError
from nupa.topology.names import NAME_BYTES_MAX, check_names

if TYPE_CHECKING:
    from nupa.topology.admission import Admission
    from nupa.topology.tenants import PartitionConfig, TenantConfig


# csrc/segment/layout/limits.h
HOSTS_MAX = 254
PORTS_MAX = 1024
HOPS_MAX = 15
POOL_BYTES_MAX = 1 << 40
EXTENTS_MAX = 1 << 20
WIRES_MAX = 16
EXTENT_BYTES = 64 << 10  # by default: csrc/segment/layout/plan.c
# CXL 3.1 8.1.3.8: the granularity of memory behind decoders.
MEMORY_STEP_BYTES = 256 << 20

COHERENCE = ("hardware", "software")
LINK_LAYERS = ("infiniband", "ethernet")
WIDTHS_LANES = (1, 2, 4, 8, 16)
# Mega-transfers a second per lane (PCI Express Base 6.0, 1.2; CXL has the same).
SPEEDS_MTPS = {"gen3": 8000, "gen4": 16000, "gen5": 32000, "gen6": 64000}


class LinkConfig(NamedTuple):
    """width_lanes: one of WIDTHS_LANES; speed_mtps: mega-transfers a second per lane."""

    width_lanes: int = 4
    speed_mtps: int = SPEEDS_MTPS["gen5"]


class SwitchConfig(NamedTuple):
    name: str
    ports: int


class HostConfig(NamedTuple):
    """A host has one port, linked to *port* of *switch*; 0: its lowest free one.

    *state*: "ready", or "absent": the place is free until `nupa host add`.
    """

    name: str
    switch: str
    port: int = 0
    link: LinkConfig = LinkConfig()
    state: str = "ready"


class TrunkConfig(NamedTuple):
    """A link between two switches.  A port of 0: the lowest free one."""

    switches: tuple[str, str]
    ports: tuple[int, int] = (0, 0)
    link: LinkConfig = LinkConfig()


class WireConfig(NamedTuple):
    """A host that is reached by RoCE v2 at *address*; listen: our address, empty: by the route.

    frames: where a guest's Ethernet frames come, PATH[,mtu=N] (nupa/fabric/wires); empty: UDP.
    raw: UDP, received by raw sockets.
    """

    host: str
    address: str
    listen: str = ""
    frames: str = ""
    raw: bool = False


class LinkEnd(NamedTuple):
    """One end of a link; *peer* is the index of the other end, *node* of its host or switch."""

    name: str
    peer: int
    is_switch: bool
    node: int
    number: int
    link: LinkConfig


class SegmentConfig(NamedTuple):
    """Sizes of the shared segment; 0 means the default (struct nupa_config in layout.h).

    segment_bytes: the size of memory that several kernels share, as of a CXL device in QEMU guests;
    the segment lies there.  coherence: "hardware" if their caches agree; "software" if each store
    has to be flushed to be seen by others.
    """

    slots: int = 0
    ring_lines: int = 0
    dma_bytes: int = 0
    qp_entries: int = 0
    mr_entries: int = 0
    extent_bytes: int = 0
    pool_bytes: int = 0
    segment_bytes: int = 0
    coherence: str = "hardware"

    def with_pool(self, pool_bytes: int) -> SegmentConfig:
        """Returns the same with a pool of this size, and extents that are large enough for it."""
        extent_bytes = self.extent_bytes
        while pool_bytes > (extent_bytes or EXTENT_BYTES) * EXTENTS_MAX:
            extent_bytes = 2 * (extent_bytes or EXTENT_BYTES)
        return self._replace(pool_bytes=pool_bytes, extent_bytes=extent_bytes)


class MemoryConfig(NamedTuple):
    """A memory device of the CXL switch.

    *size_bytes*: a multiple of 256 MiB.  *logical*: for up to 16 hosts.  *dynamic_bytes*: the
    dynamic capacity of a logical one, a multiple of 512 MiB.
    """

    size_bytes: int
    logical: bool = False
    dynamic_bytes: int = 0


class Topology:
    """Hosts on switches.  TopologyError where names, ports or links contradict each other.

    >>> t = star(2)
    >>> [t.ports[p].name for p in t.routes[0][1]]
    ['host0/1', 'switch0/1', 'switch0/2', 'host1/1']
    """

    def __init__(
        self,
        name: str,
        switches: tuple[SwitchConfig, ...],
        hosts: tuple[HostConfig, ...],
        trunks: tuple[TrunkConfig, ...] = (),
        link_layer: str = "ethernet",
        segment: SegmentConfig | None = None,
        memory: tuple[MemoryConfig, ...] = (),
        tenants: tuple[TenantConfig, ...] = (),
        partitions: tuple[PartitionConfig, ...] = (),
        admission: Admission | None = None,
        wires: tuple[WireConfig, ...] = (),
    ) -> None:
        # A wire may name a host, or make one on the first switch.
        known = {host.name for host in hosts}
        hosts += tuple(
            HostConfig(name, switches[0].name if switches else "")
            for name in dict.fromkeys(wire.host for wire in wires)
            if name not in known
        )
        self.wires = wires
        self.name = name
        self.memory = memory
        self.switches = switches
        self.hosts = hosts
        self.trunks = trunks
        self.link_layer = link_layer
        self.tenants = tenants
        self.partitions = partitions
        self.admission = admission
        self.segment = segment or SegmentConfig()
        if link_layer not in LINK_LAYERS:
            raise TopologyError(
                f"link_layer is {link_layer!r}: choose one of {', '.join(LINK_LAYERS)}"
            )
        if self.segment.coherence not in COHERENCE:
            raise TopologyError(
                f"coherence is {self.segment.coherence!r}: choose one of {', '.join(COHERENCE)}"
            )
        if self.segment.coherence != "hardware" and not self.segment.segment_bytes:
            raise TopologyError(
                "coherence matters only in memory that machines share: give segment_bytes, too"
            )
        _check_memory(memory)
        if wires:
            self._check_wires()
        if not 1 <= len(hosts) <= HOSTS_MAX:
            raise TopologyError(f"there are {len(hosts)} hosts: a fabric has 1 to {HOSTS_MAX}")
        check_names("host", (host.name for host in hosts))
        check_names("switch", (switch.name for switch in switches))
        both = {host.name for host in hosts} & {switch.name for switch in switches}
        if both:
            raise TopologyError(f"{min(both)!r} names a host and a switch: give one another name")
        if len(self.ports) > PORTS_MAX:
            raise TopologyError(
                f"there are {len(self.ports)} linked ports: a fabric has at most {PORTS_MAX}"
            )
        self._check_control()
        # Computed now, so that an unreachable host is an error here and not later.
        _ = self.routes

    @property
    def declares(self) -> bool:
        """Whether the fabric needs more than its segment: tenants, partitions, free places."""
        absent = any(host.state != "ready" for host in self.hosts)
        return bool(absent or self.tenants or self.partitions or self.admission)

    def with_wires(self, wires: tuple[WireConfig, ...]) -> Topology:
        """Returns the same with further wires; the first switch gets a port for each new host."""
        known = {host.name for host in self.hosts}
        new = len({wire.host for wire in wires} - known)
        first, *rest = self.switches
        return Topology(
            self.name,
            (first._replace(ports=first.ports + new), *rest),
            self.hosts,
            self.trunks,
            self.link_layer,
            self.segment,
            self.memory,
            self.tenants,
            self.partitions,
            self.admission,
            self.wires + wires,
        )

    def _check_wires(self) -> None:
        import ipaddress

        if self.link_layer != "ethernet":
            raise TopologyError("wires speak RoCE: set link_layer to ethernet")
        if self.segment.coherence != "hardware":
            raise TopologyError("wires need memory that is coherent: set coherence to hardware")
        if len(self.wires) > WIRES_MAX:
            raise TopologyError(
                f"there are {len(self.wires)} wires: a fabric has at most {WIRES_MAX}"
            )
        hosts: dict[str, str] = {}
        for wire in self.wires:
            for key, address in (("address", wire.address), ("listen", wire.listen)):
                try:
                    ipaddress.ip_address(address or "::1")
                except ValueError:
                    raise TopologyError(
                        f"the wire of {wire.host}: `{key}` is {address!r}: give an IPv4 or IPv6 "
                        f"address"
                    ) from None
            if wire.host in hosts:
                raise TopologyError(f"two wires are for {wire.host}: a host has one")
            if wire.address in hosts.values():
                raise TopologyError(f"two wires lead to {wire.address}: each needs its own")
            hosts[wire.host] = wire.address

    def _check_control(self) -> None:
        if not self.declares:
            return
        # Imported here: `nupa run` makes topologies that have none of it.
        from nupa.topology.tenants import HOST_STATES, check_tenants

        if self.segment.coherence != "hardware":
            raise TopologyError(
                "tenants, partitions and absent hosts need memory that is coherent: "
                "set coherence to hardware"
            )
        for host in self.hosts:
            if host.state not in HOST_STATES:
                raise TopologyError(
                    f"the state of {host.name} is {host.state!r}: choose {' or '.join(HOST_STATES)}"
                )
        check_tenants((host.name for host in self.hosts), self.tenants, self.partitions)
        if self.admission:
            self.admission.check(
                {tenant.name: tenant for tenant in self.tenants},
                {partition.name: partition.tenant for partition in self.partitions},
            )

    @cached_property
    def ports(self) -> tuple[LinkEnd, ...]:
        """All linked ports: ports[i] is host i's; the switches' follow in the order of links."""
        return _link_up(self)

    @cached_property
    def routes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """routes[src][dst]: the ports that a frame passes, in order; empty for src itself.

        Of equally short paths it is the one over the switches that come first in the topology, and
        the lower port of parallel links.  The way back is the way there.
        """
        return _route_all(self)


def star(hosts: int, name: str = "star", pool_bytes: int = 0, spare: int = 0) -> Topology:
    """Makes *hosts* hosts (host0, host1, …) on one switch; *pool_bytes* of 0: the default.

    *spare*: so many places behind them are absent.  TopologyError past HOSTS_MAX.
    """
    places = hosts + spare
    return Topology(
        name,
        switches=(SwitchConfig("switch0", max(places, 1)),),
        hosts=tuple(
            HostConfig(f"host{i}", "switch0", state="ready" if i < hosts else "absent")
            for i in range(places)
        ),
        segment=SegmentConfig(pool_bytes=pool_bytes),
    )


def speed_name(speed_mtps: int) -> str:
    """Returns 'Gen5' for 32000, other speeds in GT/s."""
    for name, speed in SPEEDS_MTPS.items():
        if speed == speed_mtps:
            return name.capitalize()
    return f"{speed_mtps / 1000:g} GT/s"


def _check_memory(devices: Iterable[MemoryConfig]) -> None:
    for device in devices:
        if device.size_bytes <= 0 or device.size_bytes % MEMORY_STEP_BYTES:
            raise TopologyError(
                f"a memory device has {device.size_bytes} bytes: give a multiple of 256 MiB"
            )
        if device.dynamic_bytes % (2 * MEMORY_STEP_BYTES) or device.dynamic_bytes < 0:
            raise TopologyError(
                f"{device.dynamic_bytes} bytes of dynamic capacity: give a multiple of 512 MiB"
            )
        if device.dynamic_bytes and not device.logical:
            raise TopologyError("dynamic capacity is a logical device's: set `logical = true`")


class _Sockets:
    """The ports of the switches, and the user of each."""

    def __init__(self, switches: tuple[SwitchConfig, ...]) -> None:
        self.index = {switch.name: i for i, switch in enumerate(switches)}
        self._switches = switches
        self._user: list[dict[int, str]] = [{} for _ in switches]

    def find(self, name: str, user: str) -> int:
        if name not in self.index:
            known = ", ".join(self.index) or "none"
            raise TopologyError(f"{user}: there is no switch {name!r}; the switches are: {known}")
        return self.index[name]

    def reserve(self, name: str, number: int, user: str) -> None:
        """Connects *user* to the port that it names."""
        switch = self._switches[self.find(name, user)]
        used = self._user[self.index[name]]
        if not 1 <= number <= switch.ports:
            raise TopologyError(
                f"{user}: {name} has no port {number}; its ports are 1 to {switch.ports}"
            )
        if number in used:
            raise TopologyError(f"{user}: port {number} of {name} is taken by {used[number]}")
        used[number] = user

    def take(self, name: str, user: str) -> int:
        """Connects *user* to the lowest free port; returns its number."""
        switch = self._switches[self.find(name, user)]
        used = self._user[self.index[name]]
        for number in range(1, switch.ports + 1):
            if number not in used:
                used[number] = user
                return number
        raise TopologyError(
            f"{user}: all {switch.ports} ports of {name} are taken; "
            f"give it more ports, or put {user} on another switch"
        )


def _link_up(topology: Topology) -> tuple[LinkEnd, ...]:
    sockets = _Sockets(topology.switches)
    ends = [[(host.switch, host.port, host.name)] for host in topology.hosts]
    for trunk in topology.trunks:
        a, b = trunk.switches
        user = f"the trunk {a} - {b}"
        if a == b:
            raise TopologyError(f"{user}: a trunk joins two switches")
        ends.append([(a, trunk.ports[0], user), (b, trunk.ports[1], user)])
    # Named ports come first: no default may take one of them.
    for switch, number, user in (end for link in ends for end in link):
        if number:
            sockets.reserve(switch, number, user)
    numbers = [
        [number or sockets.take(switch, user) for switch, number, user in link] for link in ends
    ]

    ports: list[LinkEnd] = []
    n_hosts = len(topology.hosts)
    for i, host in enumerate(topology.hosts):
        ports.append(LinkEnd(f"{host.name}/1", n_hosts + i, False, i, 1, host.link))
    for i, host in enumerate(topology.hosts):
        number = numbers[i][0]
        node = sockets.index[host.switch]
        ports.append(LinkEnd(f"{host.switch}/{number}", i, True, node, number, host.link))
    for trunk, pair in zip(topology.trunks, numbers[n_hosts:], strict=True):
        at = len(ports)
        for end in (0, 1):
            name, number = trunk.switches[end], pair[end]
            node = sockets.index[name]
            ports.append(LinkEnd(f"{name}/{number}", at + 1 - end, True, node, number, trunk.link))
    for port in ports:
        if len(port.name.encode()) > NAME_BYTES_MAX:
            raise TopologyError(
                f"the port name {port.name!r} has more than {NAME_BYTES_MAX} bytes: "
                f"shorten the part before the slash"
            )
    return tuple(ports)


def _trunk_ports(topology: Topology) -> dict[tuple[int, int], tuple[int, int]]:
    """Returns (switch, switch) -> the ports (egress, ingress) of the first link between them."""
    ports = topology.ports
    joined: dict[tuple[int, int], tuple[int, int]] = {}
    for at in range(2 * len(topology.hosts), len(ports)):
        port = ports[at]
        pair = (port.node, ports[port.peer].node)
        best = joined.get(pair)
        if best is None or port.number < ports[best[0]].number:
            joined[pair] = (at, port.peer)
    # Of parallel links, both directions take the one that is lowest on the lower switch.
    for a, b in joined:
        if a < b:
            egress, ingress = joined[(a, b)]
            joined[(b, a)] = (ingress, egress)
    return joined


def _shortest_paths(start: int, neighbours: dict[int, list[int]]) -> dict[int, tuple[int, ...]]:
    """Searches breadth first, neighbours in order: of the shortest paths the first by index."""
    paths: dict[int, tuple[int, ...]] = {start: (start,)}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        for following in neighbours.get(at, ()):
            if following not in paths:
                paths[following] = (*paths[at], following)
                queue.append(following)
    return paths


def _route_all(topology: Topology) -> tuple[tuple[tuple[int, ...], ...], ...]:
    ports, hosts = topology.ports, topology.hosts
    trunks = _trunk_ports(topology)
    neighbours: dict[int, list[int]] = {}
    for a, b in sorted(trunks):
        neighbours.setdefault(a, []).append(b)
    switch_of = [ports[ports[i].peer].node for i in range(len(hosts))]
    paths = {start: _shortest_paths(start, neighbours) for start in set(switch_of)}

    def route(src: int, dst: int) -> tuple[int, ...]:
        if src == dst:
            return ()
        if src > dst:
            return route(dst, src)[::-1]
        path = paths[switch_of[src]].get(switch_of[dst])
        if path is None:
            raise TopologyError(
                f"no way from {hosts[src].name} to {hosts[dst].name}: "
                f"add a trunk that joins {hosts[src].switch} and {hosts[dst].switch}"
            )
        hops = [src, ports[src].peer]
        for a, b in pairwise(path):
            hops += trunks[(a, b)]
        hops += [ports[dst].peer, dst]
        if len(hops) > HOPS_MAX:
            raise TopologyError(
                f"the way from {hosts[src].name} to {hosts[dst].name} passes {len(hops)} ports: "
                f"at most {HOPS_MAX}; add trunks that shorten it"
            )
        return tuple(hops)

    everyone = range(len(hosts))
    return tuple(tuple(route(src, dst) for dst in everyone) for src in everyone)
