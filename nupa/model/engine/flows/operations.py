# SPDX-License-Identifier: BSD-3-Clause
"""The flow engine for operations: each starts when others complete, and shares links while it runs.

Flows of a connection follow each other.  Those of one pair share its rate alike, so they are one
class: a class counts the bytes that each of its flows was sent since the start, and a flow ends
when that count reaches its own mark.  Rates are computed anew for the classes that an arrival or an
end can reach over shared links.

csrc/model/flows.c does the same, about ten times as fast; it is taken where it is built.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from nupa.model.engine.flows.compiled import is_built
from nupa.model.engine.flows.compiled import run as run_compiled
from nupa.model.engine.flows.fairness import FlowDemand, max_min
from nupa.model.engine.prepared import Done, FlowClass, OperationTimes, Prepared, prepare
from nupa.model.engine.routes import Routes
from nupa.model.network.network import Network
from nupa.model.work.phase import RankOperation

#: Ends within this part of a nanosecond are one event.
_NS = 1e-6
_STARTS, _COMPLETES = 0, 1


@dataclass
class _RunningClass:
    """A class.  *sent*: bytes that each of its flows was sent since the class exists."""

    number: int
    of: FlowClass
    flows: int = 0
    sent: float = 0.0
    rate: float = 0.0
    at: float = 0.0
    turn: int = 0  #: of its rate: an older event is void
    marks: list[tuple[float, int]] = field(default_factory=list)
    bound: Hashable = None

    def advance(self, now: float) -> float:
        """Returns what all its flows together were sent since the last time."""
        more = self.rate * (now - self.at) * 1e-9
        self.sent += more
        self.at = now
        return more * self.flows


class _Engine:
    def __init__(self, made: Prepared) -> None:
        self.made = made
        count = len(made.operations)
        self.times = OperationTimes([0.0] * count, [-1.0] * count, [-1] * count, [False] * count,
                           [None] * count)  # fmt: skip
        self.waits = [len(each.after) for each in made.operations]
        self.followers: dict[int, list[int]] = {}
        self.classes = [_RunningClass(number, each) for number, each in enumerate(made.classes)]
        self.users: dict[Hashable, dict[int, _RunningClass]] = {}
        self.pending: list[tuple[float, int, int, int]] = []  #: time, order, kind, index
        self.finishes: list[tuple[float, int, int, _RunningClass]] = []  #: time, class, turn
        self.latest: dict[tuple[int, int], int] = {}
        #: of each connection with a flow: the operations whose bytes wait for its end
        self.waiting: dict[int, deque[int]] = {}
        self.sequence = 0
        for index, each in enumerate(made.operations):
            for earlier in each.after:
                self.followers.setdefault(earlier, []).append(index)

    def _later(self, time: float, kind: int, index: int) -> None:
        self.sequence += 1
        heappush(self.pending, (time, self.sequence, kind, index))

    def run(self) -> OperationTimes:
        for index, waits in enumerate(self.waits):
            if not waits:
                self._ready(index, 0.0, -1)
        while (now := self._next_time()) is not None:
            changed: dict[int, _RunningClass] = {}
            while self.pending and self.pending[0][0] <= now:
                _, _, kind, index = heappop(self.pending)
                if kind == _STARTS:
                    self._start(index, now, changed)
                else:
                    self._complete(index, now)
            while self.finishes and self.finishes[0][0] <= now:
                _, _, turn, found = heappop(self.finishes)
                if turn == found.turn:
                    self._finish(found, now, changed)
            if changed:
                self._share(now, changed)
        return self.times

    def _next_time(self) -> float | None:
        while self.finishes and self.finishes[0][2] != self.finishes[0][3].turn:
            heappop(self.finishes)
        return min([heap[0][0] for heap in (self.pending, self.finishes) if heap], default=None)

    def _ready(self, index: int, now: float, cause: int) -> None:
        """Takes an operation whose predecessors have completed."""
        times, known = self.times, self.made.known[index]
        times.ready[index], times.cause[index] = now, cause
        each = self.made.operations[index]
        lane = (each.rank, each.lane)
        last = self.latest.get(lane, -1)
        free = times.ready[last] + self.made.known[last].busy if last >= 0 else 0.0
        if free > now:
            times.ready[index] = free
            times.cause[index], times.in_turn[index] = last, True
        self.latest[lane] = index
        kind = _STARTS if self.made.class_of[index] >= 0 else _COMPLETES
        self._later(times.ready[index] + known.before, kind, index)

    def _start(self, index: int, now: float, changed: dict[int, _RunningClass]) -> None:
        """Puts an operation's bytes on the wire, or behind those of its connection."""
        connection = self.made.connection_of[index]
        if connection in self.waiting:
            self.waiting[connection].append(index)
            return
        self.waiting[connection] = deque()
        self._send(index, now, changed)

    def _send(self, index: int, now: float, changed: dict[int, _RunningClass]) -> None:
        found = self.classes[self.made.class_of[index]]
        self.times.received += found.advance(now)
        if not found.flows:
            for resource in found.of.uses:
                self.users.setdefault(resource, {})[found.number] = found
        found.flows += 1
        heappush(found.marks, (found.sent + self.made.known[index].size, index))
        changed[found.number] = found

    def _finish(self, found: _RunningClass, now: float, changed: dict[int, _RunningClass]) -> None:
        """Ends the flows of a class whose last byte has been sent."""
        self.times.received += found.advance(now)
        mark = found.marks[0][0]
        found.sent = max(found.sent, mark)  # rounding leaves no byte behind
        slack = _NS * found.rate * 1e-9 + mark * 1e-14
        following = []
        while found.marks and found.marks[0][0] <= found.sent + slack:
            _, index = heappop(found.marks)
            self.times.bound[index] = found.bound
            found.flows -= 1
            self._later(now + self.made.known[index].after, _COMPLETES, index)
            connection = self.made.connection_of[index]
            if self.waiting[connection]:
                following.append(self.waiting[connection].popleft())
            else:
                del self.waiting[connection]
        if not found.flows:
            for resource in found.of.uses:
                del self.users[resource][found.number]
        changed[found.number] = found
        for index in following:
            self._send(index, now, changed)

    def _complete(self, index: int, now: float) -> None:
        self.times.ends[index] = now
        for follower in self.followers.get(index, ()):
            self.waits[follower] -= 1
            if not self.waits[follower]:
                self._ready(follower, now, index)

    def _share(self, now: float, changed: dict[int, _RunningClass]) -> None:
        """Computes the rates of all classes that share links with the changed ones, near or far."""
        group: dict[int, _RunningClass] = {}
        seen: set[Hashable] = set()
        stack = list(changed.values())
        while stack:
            found = stack.pop()
            if found.number in group:
                continue
            group[found.number] = found
            for resource in found.of.uses:
                if resource not in seen:
                    seen.add(resource)
                    stack.extend(self.users.get(resource, {}).values())
        active = [found for found in group.values() if found.flows]
        rates, bounds = max_min(
            self.made.routes.capacity, [FlowDemand(f.of.uses, f.flows, f.of.limit) for f in active]
        )
        for found, rate, bound in zip(active, rates, bounds, strict=True):
            self.times.received += found.advance(now)
            found.rate, found.bound = rate, bound
            found.turn += 1
            left = max(0.0, found.marks[0][0] - found.sent)
            end = now + left / rate * 1e9
            heappush(self.finishes, (end, found.number, found.turn, found))
        for found in changed.values():
            if not found.flows:
                found.rate = 0.0
                found.turn += 1


def fluid(
    network: Network,
    operations: Iterable[RankOperation],
    routes: Routes,
    compiled: bool | None = None,
) -> Done:
    """Returns when each operation completes, and why the last one does then.

    *compiled*: whether the engine in C runs; None: if it is built.  ModelError: a rank or
    predecessor that there is not, operations that wait in a circle, no engine in C where one was
    asked for.
    """
    made = prepare(network, operations, routes)
    if compiled is None:
        compiled = is_built()
    return made.done(run_compiled(made) if compiled else _Engine(made).run())
