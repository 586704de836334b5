# SPDX-License-Identifier: BSD-3-Clause
"""Finds the actors of a transfer, and the two between which each record goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from nupa.diagram.find.event import Event, Way
from nupa.diagram.find.labels import is_completion_name
from nupa.diagram.find.transfer import UNKNOWN, Transfer, host_of, qpn_text
from nupa.diagram.find.transmissions import Transmission
from nupa.packet.pcapng.reader import INBOUND, OUTBOUND

_OF_QUEUES = (Way.POST, Way.COMPLETE)
# Operations that bring data from the target.
_READS = ("RDMA READ", "CMP AND SWP", "FETCH AND ADD", "FLUSH")
_AT_POOL = (Way.TO_POOL, Way.FROM_POOL)
_PROTOCOLS = {"cache": "CXL.cache", "tlp": "CXL.mem"}
_INSIDE = (Way.POST, Way.COMPLETE, Way.AT_PORT)


class Side(Enum):
    """The side of an actor in the transfer."""

    SOURCE = "source"
    POOL = "pool"
    TARGET = "target"


@dataclass(frozen=True)
class Actor:
    """A column of the diagram.  *kind*: program, port, host or pool; *lines*: its name."""

    kind: str
    side: Side
    lines: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "side": self.side.value, "name": " ".join(self.lines)}


class Actors:
    """The columns: *actors* from the initiator's program to the target's."""

    def __init__(self, transfer: Transfer, transmissions: Sequence[Transmission]) -> None:
        self._transfer = transfer
        self._first = next((t.event for t in transmissions if t.event.source), None)
        self._source_host = _source_host(transmissions)
        hosts = {
            t.event.is_target: t.event.host for t in transmissions if t.event.way in _OF_QUEUES
        }
        self._is_loopback = hosts.get(False, -1) == hosts.get(True, -2) or bool(
            transfer.source and transfer.source == transfer.target
        )
        self._reads = transfer.op in _READS
        # TLPs that write CQEs, and whether these are the target's.
        self._entries = {
            after.event.packet: before.event.is_target
            for before, after in pairwise(transmissions)
            if before.event.way == Way.COMPLETE
            and after.event.way == Way.AT_PORT
            and before.ts_ns == after.ts_ns
        }
        at_pool = {t.event.level for t in transmissions if t.event.way in _AT_POOL}
        self._pool = _PROTOCOLS.get("".join(at_pool), "CXL")
        inside = {self._ends(t.event)[0] for t in transmissions if t.event.way in _INSIDE}
        ports = self._ports(transmissions)
        needed = {end for transmission in transmissions for end in self._ends(transmission.event)}
        self.actors: list[Actor] = []
        self._column: dict[tuple[Side, str], int] = {}  # "" is the program, or the host as a whole
        for side in Side:
            self._add(side, ports.get(side, []), side in needed, side in inside)

    # --- sides ---

    def _ends(self, event: Event) -> tuple[Side, Side]:
        """Returns the sides from which and to which a record goes."""
        source, target = Side.SOURCE, Side.TARGET
        if event.way == Way.REQUEST:
            return source, target
        if event.way == Way.RESPONSE:
            return target, source
        if event.way in _OF_QUEUES:
            side = target if event.is_target else source
            return side, side
        if event.way in _AT_POOL:
            host = source if event.host in (self._source_host, -1) else target
            return (host, Side.POOL) if event.way == Way.TO_POOL else (Side.POOL, host)
        if event.way == Way.AT_PORT:
            side = source if self._is_at_source(event) else target
            return side, side
        forward = self._first is None or event.source == self._first.source
        return (source, target) if forward else (target, source)

    def _is_at_source(self, event: Event) -> bool:
        """Tells whether a TLP crosses the port of the initiator's host."""
        if not self._is_loopback:
            return event.host in (self._source_host, -1)
        if event.packet in self._entries:
            return not self._entries[event.packet]
        # One host is both: reads go to the side that is written.
        if event.direction == OUTBOUND and not is_completion_name(event.name):
            return True  # a doorbell
        reads = not event.name.startswith("MWr")
        return reads != self._reads

    # --- ports ---

    def _port_side(self, event: Event) -> Side | None:
        """Returns the side at which a record was seen; None if the capture does not say."""
        sender, receiver = self._ends(event)
        if Side.POOL in (sender, receiver):
            return receiver if sender == Side.POOL else sender
        if event.way in _INSIDE:
            return sender
        if not event.interface or event.direction not in (INBOUND, OUTBOUND):
            return None
        return sender if event.direction == OUTBOUND else receiver

    def _ports(self, transmissions: Iterable[Transmission]) -> dict[Side, list[str]]:
        """Returns the ports of each side, in their order from source to target."""
        found: dict[Side, list[str]] = {}
        for transmission in sorted(transmissions, key=lambda one: -len(one.events)):
            forward = self._ends(transmission.event)[0] == Side.SOURCE
            before: dict[Side, int] = {}
            for event in transmission.events if forward else reversed(transmission.events):
                side = self._port_side(event)
                if side is None or not event.interface:
                    continue
                ports = found.setdefault(side, [])
                if event.interface not in ports:
                    at = before.get(side, -1) + 1 if side in before else len(ports)
                    ports.insert(at, event.interface)
                before[side] = ports.index(event.interface)
        return found

    # --- actors ---

    def _add(self, side: Side, ports: list[str], is_needed: bool, is_inside: bool) -> None:
        if side == Side.POOL:
            if is_needed:
                self._put(Actor("pool", side, ("pool", self._pool)), "")
            return
        if not ports and not is_needed:
            return
        transfer = self._transfer
        is_source = side == Side.SOURCE
        number = transfer.source_qpn if is_source else transfer.target_qpn
        address = transfer.source if is_source else transfer.target
        name = transfer.source_host if is_source else transfer.target_host
        nearest = (ports[0] if is_source else ports[-1]) if ports else ""
        host = name or host_of(nearest) or address or ("initiator" if is_source else "target")
        qp = (f"QP {qpn_text(number)}",) if number != UNKNOWN else ()
        whole: list[tuple[Actor, str]] = []
        if is_inside:
            whole = [(Actor("program", side, (host, *qp)), "")]
            qp = ()
        elif not ports:
            whole = [(Actor("host", side, (host, *qp)), "")]
        between = []
        for port in ports:
            lines = (port, *qp) if port == nearest else (port,)
            if not host_of(port) and not is_inside:
                lines = (host, port, *qp)
            between.append((Actor("port", side, lines), port))
        for actor, key in [*whole, *between] if is_source else [*between, *whole]:
            self._put(actor, key)

    def _put(self, actor: Actor, key: str) -> None:
        self._column[(actor.side, key)] = len(self.actors)
        self.actors.append(actor)

    def _network_end(self, side: Side) -> int:
        """Returns the column where packets of a side leave: its host's port, if known."""
        columns = {key: column for (of, key), column in self._column.items() if of == side}
        chosen = [column for key, column in columns.items() if key] or list(columns.values())
        return max(chosen) if side == Side.TARGET else min(chosen)

    def place(self, transmission: Transmission) -> tuple[int, int, tuple[int, ...]]:
        """Returns the two columns of a transmission, and the others where it was seen."""
        event = transmission.event
        sender, receiver = self._ends(event)
        seen = {
            self._column[(side, one.interface)]
            for one in transmission.events
            if (side := self._port_side(one)) is not None and (side, one.interface) in self._column
        }
        if event.way in _INSIDE:
            inside = self._column[(sender, "")]
            port = max(seen, key=lambda column: abs(column - inside), default=inside)
            out = event.way == Way.POST or (
                event.way == Way.AT_PORT and event.direction == OUTBOUND
            )
            ends = (inside, port) if out else (port, inside)
            return (*ends, tuple(sorted(seen - set(ends))))
        source, target = self._network_end(sender), self._network_end(receiver)
        if transmission.is_copy and seen and source not in seen:  # the last part of its route
            target = seen.pop()
            source = target + (1 if source > target else -1)
        return source, target, tuple(sorted(seen - {source, target}))


def _source_host(transmissions: Sequence[Transmission]) -> int:
    """Returns the number of the initiator's host in the fabric; -1: unknown."""
    events = [event for transmission in transmissions for event in transmission.events]
    for event in events:
        if event.way in _OF_QUEUES and not event.is_target:
            return event.host
    hosts = {event.interface: event.host for event in events if event.host >= 0}
    for event in events:
        if event.way == Way.REQUEST and event.direction == OUTBOUND and event.interface in hosts:
            return hosts[event.interface]
    for event in events:
        if event.host >= 0 and not is_completion_name(event.name):
            return event.host
    return -1
