# SPDX-License-Identifier: BSD-3-Clause
"""Operations as the flow engine runs them: endpoints' times, bytes on the wire, and classes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nupa.model.answer.answer import LinkLoad, StageTime
from nupa.model.engine.message import message, serialisation_ns, wire_bytes
from nupa.model.engine.routes import Routes
from nupa.model.errors import ModelError
from nupa.model.network.energy import BITS, path_energy
from nupa.model.network.network import Network
from nupa.model.work.phase import ANSWERED, RankOperation

#: Stages of a message that its sender passes before its first byte is on the wire.
_BEFORE = frozenset(
    (
        "computation", "software", "post", "doorbell", "descriptor fetch", "payload fetch",
        "rendezvous", "issue",
    )
)  # fmt: skip
_SERIALISATION = "serialisation"


class FlowClass(NamedTuple):
    """Flows over the same resources.  *limit* is the rate of one of them, in bytes/s."""

    uses: Mapping[Hashable, float]
    limit: float


class Known(NamedTuple):
    """The common part of all operations of one size, kind and level; times in ns."""

    stages: tuple[StageTime, ...]
    before: float
    after: float
    busy: float  #: until the operation's lane starts another
    size: float  #: bytes on the wire
    request: float
    limit: float
    energy_pj: float


class Done(NamedTuple):
    """*ends_ns* are the operations' completions, in their order; the stages add up to the last.

    *starts_ns*: when what they waited for had completed.
    *sent* and *received* are bytes with headers: what was put on links, and what rates moved.
    """

    time_ns: float
    stages: tuple[StageTime, ...]
    links: tuple[LinkLoad, ...]
    bottleneck: str
    starts_ns: list[float]
    ends_ns: list[float]
    sent: float
    received: float
    energy_pj: float


@dataclass
class OperationTimes:
    """The results of a run, an entry for each operation.

    *cause* is the operation that it waited for, or -1; *in_turn*: because that one occupied its
    lane.  *bound* is the resource that set its rate when it ended; None: its limit.
    """

    ready: list[float]
    ends: list[float]
    cause: list[int]
    in_turn: list[bool]
    bound: list[Hashable]
    received: float = 0.0


@dataclass
class Prepared:
    """Operations, checked.  *class_of* is -1 for a computation, whose time is *known*'s before.

    Flows of one connection, a lane's from one end to another, follow each other.
    """

    network: Network
    routes: Routes
    operations: list[RankOperation]
    known: list[Known] = field(default_factory=list)
    class_of: list[int] = field(default_factory=list)
    connection_of: list[int] = field(default_factory=list)
    classes: list[FlowClass] = field(default_factory=list)
    _same: dict[tuple[int, str, int, int], Known] = field(default_factory=dict)
    _class: dict[tuple[int, int, float], int] = field(default_factory=dict)
    _connection: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def add(self, index: int, each: RankOperation) -> None:
        self._check(index, each)
        if each.peer == each.rank:
            time = float(each.compute_ns)
            stages = (StageTime("computation", time),)
            self.known.append(Known(stages, time, 0.0, time, 0.0, 0.0, 0.0, 0.0))
            self.class_of.append(-1)
            self.connection_of.append(-1)
            return
        level = self._level(each)
        key = (level, each.operation, each.bytes, each.compute_ns)
        if key not in self._same:
            self._same[key] = self._known(level, each)
        known = self._same[key]
        self.known.append(known)
        pair = (each.rank, each.peer)
        back = each.operation == "reduce" if each.peer < 0 else each.operation in ANSWERED
        source, target = pair[::-1] if back else pair
        self.connection_of.append(
            self._connection.setdefault((source, target, each.lane), len(self._connection))
        )
        name = (source, target, known.limit)
        if name not in self._class:
            uses = self._switched(each) if each.peer < 0 else self.routes.uses(source, target)
            self._class[name] = len(self.classes)
            self.classes.append(FlowClass(uses, known.limit))
        self.class_of.append(self._class[name])

    def _check(self, index: int, each: RankOperation) -> None:
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
            raise ModelError(
                f"operation {index} has {each.bytes} B and {each.compute_ns} ns: give no number "
                "below 0"
            )

    def _level(self, each: RankOperation) -> int:
        if each.peer < 0:
            return -1 - each.peer
        return self.network.level_between(each.rank, each.peer)

    def _known(self, level: int, each: RankOperation) -> Known:
        path = self.network.level_path(level)
        profile = path.profile
        verb = {"flush": "atomic"}.get(each.operation, each.operation)
        stages = message(path, "multimem" if each.peer < 0 else verb, each.bytes)
        if each.compute_ns:
            stages = (StageTime("computation", each.compute_ns), *stages)
        size = wire_bytes(profile, each.bytes, each.operation)
        request = 0.0
        if each.peer >= 0 and each.operation in ANSWERED:
            # The request goes the other way; its few bytes are part of the latency.
            outward = each.bytes if verb == "atomic" else 0
            request = serialisation_ns(profile, outward, each.operation)
        after = sum(stage.ns for stage in stages if stage.name not in _BEFORE | {_SERIALISATION})
        limit = float("inf")
        if "flow_rate" in profile.figures:
            limit = profile["flow_rate"] * size / max(1, each.bytes)
        return Known(
            stages,
            sum(stage.ns for stage in stages if stage.name in _BEFORE),
            after + request,
            each.compute_ns
            + (1e9 / profile["message_rate"] if "message_rate" in profile.figures else 0.0),
            size,
            request,
            limit,
            size * BITS * path_energy(path).total,
        )

    def _switched(self, each: RankOperation) -> dict[Hashable, float]:
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
        own: dict[Hashable, float] = {}
        for at, other in enumerate(others[:2]):
            pair = (each.rank, other) if reduces else (other, each.rank)
            uses = self.routes.uses(*pair)
            own = {key: part for key, part in uses.items() if not at or key in own}
        if len(others) > 1:
            found.update(own)
        return found

    # --- the answer -------------------------------------------------------------------------

    def alone_ns(self, index: int) -> float:
        """Returns what an operation's bytes take on links that nothing else uses."""
        known, found = self.known[index], self.classes[self.class_of[index]]
        capacity = self.routes.capacity
        free = min([found.limit, *(capacity[r] / part for r, part in found.uses.items())])
        return known.size / free * 1e9 + known.request

    def _path(self, times: OperationTimes) -> Iterator[StageTime]:
        """Yields the parts of the time, from the last completion back over what it waited for."""
        index = max(range(len(times.ends)), key=lambda each: times.ends[each])
        whole = True
        while index >= 0:
            if whole:
                yield from self._parts(index, times)
            earlier = times.cause[index]
            whole = not times.in_turn[index]
            if not whole:
                name = "message rate" if self.class_of[earlier] >= 0 else "computation"
                yield StageTime(name, times.ready[index] - times.ready[earlier])
            index = earlier

    def _parts(self, index: int, times: OperationTimes) -> Iterator[StageTime]:
        known = self.known[index]
        others = [stage for stage in known.stages if stage.name != _SERIALISATION]
        yield from others
        if self.class_of[index] < 0:
            return
        rest = times.ends[index] - times.ready[index] - sum(stage.ns for stage in others)
        alone = min(self.alone_ns(index), max(0.0, rest))
        bound = times.bound[index]
        yield StageTime(_SERIALISATION, alone)
        name = "flow rate" if bound is None else self.routes.name(bound)
        yield StageTime(f"sharing {name}", rest - alone)

    def done(self, times: OperationTimes) -> Done:
        """Returns the answer's parts.  ModelError: operations wait for each other in a circle."""
        stuck = next((index for index, end in enumerate(times.ends) if end < 0), None)
        if stuck is not None:
            raise ModelError(
                f"operation {stuck} never starts: operations wait for each other in a circle"
            )
        time_ns = max(times.ends, default=0.0)
        stages: dict[str, float] = {}
        for stage in self._path(times) if times.ends else ():
            if abs(stage.ns) > 1e-9:
                stages[stage.name] = stages.get(stage.name, 0.0) + stage.ns
        carried = [0.0] * len(self.classes)
        for found, known in zip(self.class_of, self.known, strict=True):
            if found >= 0:
                carried[found] += known.size
        links, slowest = self._links(carried, time_ns)
        return Done(
            time_ns,
            tuple(StageTime(name, ns) for name, ns in stages.items()),
            links,
            slowest,
            times.ready,
            times.ends,
            sum(carried),
            times.received,
            sum(known.energy_pj for known in self.known),
        )

    def _links(self, carried: list[float], time_ns: float) -> tuple[tuple[LinkLoad, ...], str]:
        """Returns the load of each kind of resource, and the kind of the busiest one."""
        sizes: dict[Hashable, float] = {}
        for found, size in zip(self.classes, carried, strict=True):
            for resource, part in found.uses.items():
                sizes[resource] = sizes.get(resource, 0.0) + size * part
        busy: dict[str, list[float]] = {}
        total: dict[str, float] = {}
        for resource, size in sizes.items():
            name = self.routes.name(resource)
            share = size / self.routes.capacity[resource] * 1e9 / time_ns if time_ns else 0.0
            busy.setdefault(name, []).append(min(1.0, share))
            total[name] = total.get(name, 0.0) + size
        links = tuple(
            LinkLoad(name, len(found), total[name] / len(found), sum(found) / len(found))
            for name, found in busy.items()
        )
        return links, max(busy, key=lambda name: max(busy[name]), default="")


def prepare(network: Network, operations: Iterable[RankOperation], routes: Routes) -> Prepared:
    """Checks operations, and computes what each needs.  ModelError names the first wrong one."""
    made = Prepared(network, routes, list(operations))
    for index, each in enumerate(made.operations):
        made.add(index, each)
    return made
