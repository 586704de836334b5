# SPDX-License-Identifier: BSD-3-Clause
"""The flow engine for operations: each starts when others complete, and shares links while it runs.

Flows of one pair share its rate alike, so they are one class: a class counts the bytes that each of
its flows was sent since the start, and a flow ends when that count reaches its own mark.  Rates are
computed anew for the classes that an arrival or an end can reach over shared links.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from nupa.model.answer.answer import LinkLoad, Stage
from nupa.model.engine.fairness import Demand, max_min
from nupa.model.engine.message import ANSWERED, message, serialisation_ns, wire_bytes
from nupa.model.engine.routes import Routes
from nupa.model.errors import ModelError
from nupa.model.network.energy import BITS, path_energy
from nupa.model.network.network import Network
from nupa.model.work.phase import Operation

#: Ends within this part of a nanosecond are one event.
_NS = 1e-6
#: Stages of a message that its sender passes before its first byte is on the wire.
_BEFORE = frozenset(
    (
        "computation", "software", "post", "doorbell", "descriptor fetch", "payload fetch",
        "rendezvous", "issue",
    )
)  # fmt: skip


class Done(NamedTuple):
    """*ends_ns* are the operations' completions, in their order; the stages add up to the last.
    *starts_ns*: what they waited for had completed.

    *sent* and *received* are bytes with headers: what was put on links, and what rates moved.
    """

    time_ns: float
    stages: tuple[Stage, ...]
    links: tuple[LinkLoad, ...]
    bottleneck: str
    starts_ns: list[float]
    ends_ns: list[float]
    sent: float
    received: float
    energy_pj: float


@dataclass
class _Class:
    """Flows over the same resources.  *sent*: bytes that each was sent since the class exists."""

    uses: Mapping[Hashable, float]
    limit: float
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


@dataclass
class _State:
    """Where an operation is, and what its time consists of."""

    waits: int
    ready: float = 0.0
    cause: tuple[str, int] = ("", -1)
    before: float = 0.0
    after: float = 0.0
    stages: tuple[Stage, ...] = ()
    start: float = 0.0
    alone: float = 0.0
    payload: int = 0
    bound: Hashable = None


class _Engine:
    def __init__(self, network: Network, operations: Iterable[Operation], routes: Routes) -> None:
        self.network = network
        self.routes = routes
        self.operations = list(operations)
        self.states = [_State(len(each.after)) for each in self.operations]
        self.ends = [-1.0] * len(self.operations)
        self.followers: dict[int, list[int]] = {}
        self.classes: dict[tuple[int, int, float], _Class] = {}
        self.users: dict[Hashable, dict[int, _Class]] = {}
        self.carried: dict[Hashable, float] = {}
        self.pending: list[tuple[float, int, int, int]] = []  #: time, order, kind, index
        self.finishes: list[tuple[float, int, int, _Class]] = []
        self.issued: dict[int, tuple[float, int]] = {}
        self.messages: dict[tuple[int, str, int], tuple[Stage, ...]] = {}
        self.sequence = 0
        self.energy = self.sent = self.received = 0.0
        for index, each in enumerate(self.operations):
            self._check(index, each)
            for earlier in each.after:
                self.followers.setdefault(earlier, []).append(index)

    def _check(self, index: int, each: Operation) -> None:
        for earlier in each.after:
            if not 0 <= earlier < len(self.operations):
                raise ModelError(f"operation {index} waits for {earlier}, which there is not")
        ends = (each.rank,) if each.peer < 0 else (each.rank, each.peer)
        if -each.peer > len(self.network.levels):
            raise ModelError(f"operation {index} is of level {-1 - each.peer}, which there is not")
        for rank in ends:
            if not 0 <= rank < self.network.endpoints:
                raise ModelError(
                    f"operation {index} is of rank {rank}: {self.network.name} has ranks 0 to "
                    f"{self.network.endpoints - 1}"
                )
        if each.bytes < 0 or each.compute_ns < 0:
            raise ModelError(f"operation {index}: {each.bytes} B, {each.compute_ns} ns")

    # --- events -----------------------------------------------------------------------------

    def _later(self, time: float, kind: int, index: int) -> None:
        self.sequence += 1
        heappush(self.pending, (time, self.sequence, kind, index))

    def run(self) -> Done:
        for index, state in enumerate(self.states):
            if not state.waits:
                self._ready(index, 0.0, ("", -1))
        done = 0
        while done < len(self.operations):
            now = self._next_time()
            changed: dict[int, _Class] = {}
            while self.pending and self.pending[0][0] <= now:
                _, _, kind, index = heappop(self.pending)
                if kind == _STARTS:
                    self._start(index, now, changed)
                else:
                    done += 1
                    self._complete(index, now)
            while self.finishes and self.finishes[0][0] <= now:
                _, _, turn, found = heappop(self.finishes)
                if turn == found.turn:
                    self._finish(found, now, changed)
            if changed:
                self._share(now, changed)
        return self._done()

    def _next_time(self) -> float:
        while self.finishes and self.finishes[0][2] != self.finishes[0][3].turn:
            heappop(self.finishes)
        times = [heap[0][0] for heap in (self.pending, self.finishes) if heap]
        if not times:
            stuck = next(index for index, end in enumerate(self.ends) if end < 0)
            raise ModelError(
                f"operation {stuck} never starts: operations wait for each other in a circle"
            )
        return min(times)

    def _ready(self, index: int, now: float, cause: tuple[str, int]) -> None:
        """Takes an operation whose predecessors have completed."""
        state, each = self.states[index], self.operations[index]
        state.ready, state.cause = now, cause
        if each.peer == each.rank:
            state.stages = (Stage("computation", each.compute_ns),)
            self._later(now + each.compute_ns, _ENDS, index)
            return
        level = self._level(each)
        profile = self.network.levels[level].profile
        last = self.issued.get(each.rank)
        if last and "message_rate" in profile.figures:
            turn = last[0] + 1e9 / profile["message_rate"]
            if turn > now:
                state.ready, state.cause = turn, ("message rate", last[1])
        self.issued[each.rank] = (state.ready, index)
        state.stages = self._stages(level, each)
        if each.compute_ns:
            state.stages = (Stage("computation", each.compute_ns), *state.stages)
        state.before = sum(stage.ns for stage in state.stages if stage.name in _BEFORE)
        state.after = sum(
            stage.ns
            for stage in state.stages
            if stage.name not in _BEFORE and stage.name != "serialisation"
        )
        self._later(state.ready + state.before, _STARTS, index)

    def _level(self, each: Operation) -> int:
        if each.peer < 0:
            return -1 - each.peer
        return self.network.level_between(each.rank, each.peer)

    def _stages(self, level: int, each: Operation) -> tuple[Stage, ...]:
        key = (level, each.operation, each.bytes)
        if key not in self.messages:
            path = self.network.level_path(level)
            operation = "multimem" if each.peer < 0 else each.operation
            self.messages[key] = message(path, operation, each.bytes)
        return self.messages[key]

    def _start(self, index: int, now: float, changed: dict[int, _Class]) -> None:
        """Puts an operation's bytes on the wire."""
        state, each = self.states[index], self.operations[index]
        level = self._level(each)
        profile = self.network.levels[level].profile
        size = wire_bytes(profile, each.bytes, each.operation)
        request = 0.0
        if each.peer >= 0 and each.operation in ANSWERED:
            # The request goes the other way; its few bytes are part of the latency.
            outward = each.bytes if each.operation == "atomic" else 0
            request = serialisation_ns(profile, outward, each.operation)
            state.after += request
        limit = float("inf")
        if "flow_rate" in profile.figures:
            limit = profile["flow_rate"] * size / max(1, each.bytes)
        key = (each.rank, each.peer, limit)
        if (each.peer < 0 and each.operation == "reduce") or each.operation in ANSWERED:
            key = (each.peer, each.rank, limit)
        found = self.classes.get(key)
        if found is None:
            found = self.classes[key] = _Class(self._uses(key, each), limit, at=now)
        self.received += found.advance(now)
        if not found.flows:
            for resource in found.uses:
                self.users.setdefault(resource, {})[id(found)] = found
        found.flows += 1
        state.start, state.payload = now, each.bytes
        free = min([limit, *(self.routes.capacity[r] / part for r, part in found.uses.items())])
        state.alone = size / free * 1e9 + request
        self.sent += size
        self.energy += size * BITS * path_energy(self.network.level_path(level)).total
        heappush(found.marks, (found.sent + size, index))
        for resource, part in found.uses.items():
            self.carried[resource] = self.carried.get(resource, 0.0) + size * part
        changed[id(found)] = found

    def _uses(self, key: tuple[int, int, float], each: Operation) -> Mapping[Hashable, float]:
        if each.peer >= 0:
            return self.routes.uses(key[0], key[1])
        return self._switched(each)

    def _switched(self, each: Operation) -> dict[Hashable, float]:
        """Returns what an in-network operation uses: the ports of all its ranks, once each."""
        level = -1 - each.peer
        whole = self.network.group_size(level)
        inside = self.network.group_size(level - 1) if level else 1
        first = each.rank - each.rank % whole + each.rank % inside
        others = [rank for rank in range(first, first + whole, inside) if rank != each.rank]
        reduces = each.operation == "reduce"
        found: dict[Hashable, float] = {}
        for other in others:
            found.update(self.routes.uses(*((other, each.rank) if reduces else (each.rank, other))))
        # The switch reads the rank's own memory as well, or stores to it: the way that all pairs
        # of the rank have in common.
        own: dict[Hashable, float] | None = None
        for other in others[:2]:
            pair = (each.rank, other) if reduces else (other, each.rank)
            uses = dict(self.routes.uses(*pair))
            own = uses if own is None else {key: own[key] for key in own.keys() & uses.keys()}
        if own and len(others) > 1:
            found.update(sorted(own.items(), key=str))
        return found

    def _finish(self, found: _Class, now: float, changed: dict[int, _Class]) -> None:
        """Ends the flows of a class whose last byte has been sent."""
        self.received += found.advance(now)
        mark = found.marks[0][0]
        found.sent = max(found.sent, mark)  # rounding leaves no byte behind
        slack = _NS * found.rate * 1e-9 + mark * 1e-14
        while found.marks and found.marks[0][0] <= found.sent + slack:
            _, index = heappop(found.marks)
            state = self.states[index]
            state.bound = found.bound
            found.flows -= 1
            self._later(now + state.after, _ENDS, index)
        if not found.flows:
            for resource in found.uses:
                del self.users[resource][id(found)]
        changed[id(found)] = found

    def _complete(self, index: int, now: float) -> None:
        self.ends[index] = now
        for follower in self.followers.get(index, ()):
            self.states[follower].waits -= 1
            if not self.states[follower].waits:
                self._ready(follower, now, ("after", index))

    # --- rates ------------------------------------------------------------------------------

    def _share(self, now: float, changed: dict[int, _Class]) -> None:
        """Computes the rates of all classes that share links with the changed ones, near or far."""
        group: dict[int, _Class] = {}
        seen: set[Hashable] = set()
        stack = list(changed.values())
        while stack:
            found = stack.pop()
            if id(found) in group:
                continue
            group[id(found)] = found
            for resource in found.uses:
                if resource not in seen:
                    seen.add(resource)
                    stack.extend(self.users.get(resource, {}).values())
        active = [found for found in group.values() if found.flows]
        rates, bounds = max_min(
            self.routes.capacity, [Demand(f.uses, f.flows, f.limit) for f in active]
        )
        for found, rate, bound in zip(active, rates, bounds, strict=True):
            self.received += found.advance(now)
            if not rate > 0:
                raise ModelError(f"{self.network.name}: a flow has no rate left")
            found.rate, found.bound = rate, bound
            found.turn += 1
            self.sequence += 1
            left = max(0.0, found.marks[0][0] - found.sent)
            heappush(self.finishes, (now + left / rate * 1e9, self.sequence, found.turn, found))
        for found in changed.values():
            if not found.flows:
                found.rate = 0.0
                found.turn += 1

    # --- the answer -------------------------------------------------------------------------

    def _path(self) -> Iterator[Stage]:
        """Yields the parts of the time, from the last completion back over what it waited for."""
        index = max(range(len(self.ends)), key=lambda each: self.ends[each])
        whole = True
        while index >= 0:
            state = self.states[index]
            if whole:
                end = self.ends[index]
                for stage in state.stages:
                    if stage.name != "serialisation":
                        yield stage
                rest = (
                    end
                    - state.ready
                    - sum(stage.ns for stage in state.stages if stage.name != "serialisation")
                )
                if state.payload or rest > 1e-9:
                    yield Stage("serialisation", min(state.alone, rest))
                    name = "flow rate" if state.bound is None else self.routes.name(state.bound)
                    yield Stage(f"sharing {name}", max(0.0, rest - state.alone))
            kind, earlier = state.cause
            whole = kind == "after"
            if kind == "message rate":
                yield Stage(kind, state.ready - self.states[earlier].ready)
            index = earlier

    def _done(self) -> Done:
        time_ns = max(self.ends, default=0.0)
        stages: dict[str, float] = {}
        if self.ends:
            for stage in self._path():
                if stage.ns:
                    stages[stage.name] = stages.get(stage.name, 0.0) + stage.ns
        loads: dict[str, list[float]] = {}
        for resource, size in self.carried.items():
            busy = size / self.routes.capacity[resource] * 1e9 / time_ns if time_ns else 0.0
            entry = loads.setdefault(self.routes.name(resource), [0.0, 0.0, 0.0, 0.0])
            entry[0] += 1
            entry[1] += size
            entry[2] += busy
            entry[3] = max(entry[3], busy)
        links = tuple(
            LinkLoad(name, int(count), size / count, min(1.0, busy / count))
            for name, (count, size, busy, _) in loads.items()
        )
        slowest = max(loads, key=lambda name: loads[name][3], default="")
        ordered = tuple(Stage(name, ns) for name, ns in stages.items())
        starts = [state.ready for state in self.states]
        return Done(
            time_ns, ordered, links, slowest, starts, self.ends, self.sent, self.received,
            self.energy,
        )  # fmt: skip


_STARTS, _ENDS = 0, 1


def fluid(network: Network, operations: Iterable[Operation], routes: Routes) -> Done:
    """Returns when each operation completes, and why the last one does then.

    ModelError: a rank or predecessor that there is not, or operations that wait in a circle.
    """
    return _Engine(network, operations, routes).run()
