# SPDX-License-Identifier: BSD-3-Clause
"""Several switches that are one for their hosts: requests pass from edge port to edge port by PIDs.

CXL 3.1 2.7, 7.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nupa.cxl.function.port import Port, downstream_port
from nupa.cxl.link.wire import Wire
from nupa.cxl.switch.pbr import PbrError, PbrFabric, SwitchPort
from nupa.cxl.switch.switch import Switch
from nupa.topology.topology import LinkConfig, Topology


class Passage(NamedTuple):
    """The passage of a request between edge ports: source and destination PID, of 12 bits each, and
    the ports and links between."""

    spid: int
    dpid: int
    ports: tuple[Port, ...]
    links: tuple[LinkConfig, ...]


class Stack:
    """A stack of switches: each physical port of *switch* is an edge port of *topology*.

    The ports of hosts come first.  Then *devices* gives the switch of each device's port, by index.
    `fabric` has PIDs and routing tables, and `pids` has the PID of each physical port.
    *wire*(port): the state of the link between switches at a port of *topology*.
    PbrError: a switch has more than 256 ports."""

    def __init__(
        self,
        topology: Topology,
        switch: Switch,
        devices: list[int],
        wire: Callable[[int], Wire] = lambda _port: Wire(),
    ) -> None:
        self.fabric = PbrFabric()
        self._switch = switch
        self._ports: dict[SwitchPort, Port] = {}
        self._links: dict[SwitchPort, LinkConfig] = {}
        self._wires: dict[SwitchPort, Wire] = {}
        self._seen: dict[SwitchPort, tuple[bool, int]] = {}  # up, and how often down
        names = [each.name for each in topology.switches]
        hosts = len(topology.hosts)
        linked = topology.ports[hosts:]
        room = [max([0, *(p.number for p in linked if p.node == n)]) + 1 for n in range(len(names))]
        for number, name in enumerate(names):
            self.fabric.add_switch(name, room[number] + devices.count(number))
        for i in range(hosts, len(linked), 2):
            ends = [SwitchPort(names[port.node], port.number) for port in linked[i : i + 2]]
            self.fabric.link(*ends)
            self._wires[ends[0]] = wire(hosts + i)
            self._seen[ends[0]] = (True, self._wires[ends[0]].downs)
            for end in ends:
                self._ports[end] = downstream_port(end.port)
                self._ports[end].name = f"{end.switch}/{end.port}"
                self._links[end] = linked[i].link
        edges = [SwitchPort(names[port.node], port.number) for port in linked[:hosts]]
        for node in devices:
            edges.append(SwitchPort(names[node], room[node]))
            room[node] += 1
        self.pids = [self.fabric.assign(edge) for edge in edges]
        switch.between = self._between
        self.follow()

    def passage(self, source: int, destination: int) -> Passage:
        """Returns the passage from one physical port to another.  PbrError: there is no way now."""
        spid, dpid = self.pids[source], self.pids[destination]
        ports: list[Port] = []
        links: list[LinkConfig] = []
        for egress in self.fabric.route(spid, dpid)[:-1]:  # the last one is the edge port
            ports += (self._ports[egress], self._ports[self.fabric.peer(egress)])
            links.append(self._links[egress])
        return Passage(spid, dpid, tuple(ports), tuple(links))

    def set_link(self, end: SwitchPort, up: bool) -> None:
        """Takes a link between switches down, or up, for both sides.  Requests take another way at
        once, if there is one; otherwise their devices are gone.  PbrError: no link is there;
        RemoteError: as by `Fabric.set_port`."""
        wire = self._wires.get(end) or self._wires.get(self.fabric.peer(end))
        if wire is None:
            raise PbrError(f"{end} has no link")
        wire.set(up)
        self.follow()
        wire.settle()

    def follow(self) -> None:
        """Catches up with the links, which others may have set."""
        for end, wire in self._wires.items():
            downs, up = wire.downs, wire.up
            was_up, before = self._seen[end]
            self._seen[end] = (up, downs)
            if was_up and up and downs != before:  # it was down for a moment
                self._set_link(end, False)
                self._set_link(end, True)
            elif up != was_up:
                self._set_link(end, up)

    def _set_link(self, end: SwitchPort, up: bool) -> None:
        self.fabric.set_link(end, up)
        for port in (self._ports[end], self._ports[self.fabric.peer(end)]):
            port.config["pcie"].preset("link_status.active", int(up))
        for virtual in self._switch.virtual:
            for binding in tuple(virtual.bindings.values()):
                if binding.done:
                    binding.vppb.reroute()
                    binding.settle()

    def _between(self, source: int, destination: int) -> tuple[Port, ...] | None:
        try:
            return self.passage(source, destination).ports
        except PbrError:
            return None
