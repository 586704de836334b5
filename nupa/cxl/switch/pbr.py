# SPDX-License-Identifier: BSD-3-Clause
"""Stacked switches with port-based routing: PIDs of edge ports, and routing tables by DPID.

CXL 3.1 2.7, 7.7.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from nupa.base.errors import LocalError

PID_BITS = 12  # 7.7
PIDS = 1 << PID_BITS
PORTS = 256  # of a switch: one byte names a port in its routing table


class PbrError(LocalError):
    """No such switch, port or PID; a place that is taken; or none left.  Nothing has changed."""


class SwitchPort(NamedTuple):
    """A port of a switch."""

    switch: str
    port: int


class PbrFabric:
    """Switches, links between their ports, and edge ports.

    `table(switch)` is a DPID routing table (7.7): the egress port of each PID that is reached from
    there.  Every change of a link makes all tables anew: shortest ways, and among these those over
    the switches and ports that were added first."""

    def __init__(self) -> None:
        self._ports: dict[str, int] = {}
        self._links: dict[SwitchPort, SwitchPort] = {}
        self._down: set[SwitchPort] = set()
        self._edges: dict[int, SwitchPort] = {}
        self._tables: dict[str, dict[int, int]] = {}

    def add_switch(self, name: str, ports: int) -> None:
        """Adds a switch.  PbrError: the name is taken, or *ports* is not 1 to 256."""
        if name in self._ports or not 1 <= ports <= PORTS:
            raise PbrError(f"switch {name!r} of {ports} ports: give a new name, 1 to {PORTS} ports")
        self._ports[name] = ports
        self._tables[name] = {}

    def link(self, one: SwitchPort, other: SwitchPort) -> None:
        """Connects two ports.  PbrError: one is not there or in use, or both are the same."""
        self._check_free(one)
        self._check_free(other)
        if one == other:
            raise PbrError(f"{one} cannot be linked to itself")
        self._links[one], self._links[other] = other, one
        self._route()

    def set_link(self, end: SwitchPort, up: bool) -> None:
        """Takes a link down, or up, by one of its ends.  PbrError: no link is there."""
        if end not in self._links:
            raise PbrError(f"{end} has no link")
        for each in (end, self._links[end]):
            (self._down.discard if up else self._down.add)(each)
        self._route()

    def assign(self, edge: SwitchPort, pid: int | None = None) -> int:
        """Assigns a PID to an edge port, by default the lowest free one.  PbrError: it is taken or
        has more than 12 bits, all are taken, or the port is not there or in use."""
        self._check_free(edge)
        if pid is None:
            pid = next((n for n in range(PIDS) if n not in self._edges), PIDS)
        if pid in self._edges or not 0 <= pid < PIDS:
            raise PbrError(f"PID {pid:#x} is taken, or not below {PIDS:#x}")
        self._edges[pid] = edge
        for name, port in self._ways(edge).items():
            self._tables[name][pid] = port
        return pid

    def withdraw(self, pid: int) -> None:
        """Withdraws a PID.  PbrError: it is not assigned."""
        if self._edges.pop(pid, None) is None:
            raise PbrError(f"PID {pid:#x} is not assigned")
        for table in self._tables.values():
            table.pop(pid, None)

    def table(self, switch: str) -> dict[int, int]:
        """Returns the routing table of a switch.  PbrError: no such switch."""
        if switch not in self._tables:
            raise PbrError(f"no switch is called {switch!r}")
        return dict(self._tables[switch])

    def route(self, source: int, destination: int) -> list[SwitchPort]:
        """Returns the egress ports of a message; the last is the destination.  PbrError: no such
        PID, or no way."""
        for pid in (source, destination):
            if pid not in self._edges:
                raise PbrError(f"PID {pid:#x} is not assigned")
        here, passed = self._edges[source].switch, []
        while True:
            port = self._tables[here].get(destination)
            if port is None:
                raise PbrError(f"no way leads from PID {source:#x} to {destination:#x}")
            passed.append(SwitchPort(here, port))
            if passed[-1] == self._edges[destination]:
                return passed
            here = self._links[passed[-1]].switch

    def peer(self, end: SwitchPort) -> SwitchPort:
        """Returns the other end of a link.  PbrError: there is none."""
        if end not in self._links:
            raise PbrError(f"{end} has no link")
        return self._links[end]

    def _check_free(self, at: SwitchPort) -> None:
        if not 0 <= at.port < self._ports.get(at.switch, 0):
            raise PbrError(f"{at} is not there")
        if at in self._links or at in self._edges.values():
            raise PbrError(f"{at} is in use")

    def _route(self) -> None:
        self._tables = {name: {} for name in self._ports}
        ways = {edge.switch: self._ways(edge) for edge in self._edges.values()}
        for pid, edge in self._edges.items():
            for name, port in (ways[edge.switch] | {edge.switch: edge.port}).items():
                self._tables[name][pid] = port

    def _ways(self, edge: SwitchPort) -> dict[str, int]:
        """Returns the egress port towards *edge* of each switch that reaches it, breadth first."""
        found = {edge.switch: edge.port}
        waiting = deque([edge.switch])
        while waiting:
            near = waiting.popleft()
            for port in range(self._ports[near]):
                far = self._links.get(SwitchPort(near, port))
                if far is not None and far not in self._down and far.switch not in found:
                    found[far.switch] = far.port
                    waiting.append(far.switch)
        return found
