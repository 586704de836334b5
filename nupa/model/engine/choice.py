# SPDX-License-Identifier: BSD-3-Clause
"""The choice of an engine, and each engine's result in one shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from typing import Literal, NamedTuple, get_args

from nupa.model.answer.answer import LinkLoad, StageTime, TimelineSpan
from nupa.model.engine.composed import PlanCost, cycle_energy_pj, cycle_stages, parts_stages
from nupa.model.engine.flows.loads import energy_pj
from nupa.model.engine.flows.operations import fluid
from nupa.model.engine.flows.plans import flows
from nupa.model.engine.message import wire_bytes
from nupa.model.engine.moves import move_of
from nupa.model.engine.packets.run import Run, RunProgress, run
from nupa.model.engine.packets.transfers import critical_stages, transfers
from nupa.model.engine.prepared import Done
from nupa.model.engine.routes import GraphRoutes, LevelRoutes
from nupa.model.engine.stages import stages
from nupa.model.errors import ModelError
from nupa.model.network.build import graph
from nupa.model.network.energy import BITS, path_energy
from nupa.model.network.network import Network
from nupa.model.work.phase import Plan, RankOperation, Work

Engine = Literal["auto", "stages", "flows", "packets"]
Tick = Callable[[RunProgress], None]
#: Packets times links that `auto` gives to the packet engine: some seconds.
PACKET_HOPS_MAX = 4_000_000
#: The part of the time that flows share links, from which `auto` looks at packets.
SHARED = 0.05
SPANS_MAX = 100_000
#: The most that the packet engine is given when it is asked for: 2 GB of memory.
OPERATIONS_MAX = 4_000_000
_SAME = 1e-9
_ASKED = "it was asked for"
#: Stages of a plan that are a library's, and not of the network.
LIBRARY = ("launch", "library")


class Found(NamedTuple):
    """The result of an engine; the stages add up to the time."""

    engine: Engine
    why: str
    stages: tuple[StageTime, ...]
    links: tuple[LinkLoad, ...]
    energy_pj: float
    spans: tuple[TimelineSpan, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def time_ns(self) -> float:
        return sum(stage.ns for stage in self.stages)


@dataclass(frozen=True)
class Question:
    """A work on a network, and how it is to be run."""

    work: Work
    network: Network
    plan: Plan
    seed: int = 1
    spans: bool = False
    tick: Tick | None = None


def check_engine(engine: str) -> None:
    if engine not in get_args(Engine):
        raise ModelError(f"no engine {engine!r}: there are {', '.join(get_args(Engine))}")


def answer_by(asked: Question, engine: Engine) -> Found:
    """Returns the result of that engine, or of the one that fits.

    ModelError: the engine cannot run the work.
    """
    if engine == "packets":
        return by_packets(asked, _listed(asked), _ASKED)
    if engine != "flows" and (asked.plan.cycle is not None or asked.plan.parts):
        return _composed(asked)
    if asked.plan.phases:
        return _planned(asked, engine)
    return _operated(asked, engine)


def _composed(asked: Question) -> Found:
    """Runs a plan of circulating requests, or of parts: each part by the engine that fits."""
    plan = asked.plan
    if plan.cycle is not None:
        why = f"{plan.cycle.streams} queues of {plan.cycle.depth} circulate"
        energy = cycle_energy_pj(plan.cycle)
        return Found("stages", why, cycle_stages(plan.cycle), (), energy)

    def timed(network: Network, part: Plan) -> PlanCost:
        found = _planned(replace(asked, network=network, plan=part), "auto")
        return PlanCost(found.time_ns, found.energy_pj)

    found, energy = parts_stages(plan, timed)
    return Found("stages", "each part is run by the engine that fits", found, (), energy)


def _planned(asked: Question, engine: Engine) -> Found:
    """Runs a plan: by the closed form where no link is shared, if the choice is free."""
    network, plan = asked.network, asked.plan
    shared = flows(network, plan)
    energy = energy_pj(network, shared.loads)
    alone = stages(network, plan)
    alone_ns = sum(stage.ns for stage in alone)
    measured = _measured(network, plan)
    free = measured or shared.time_ns <= alone_ns * (1 + _SAME)
    if engine == "stages" or (engine == "auto" and free):
        why = _alone(network, plan) if free else _ASKED
        if measured:
            why = "messages take what was measured of their size"
        return Found("stages", why, alone, shared.links, energy)
    why = (
        _ASKED
        if engine == "flows"
        else f"transfers share {shared.bottleneck}; equal ones have equal parts of it"
    )
    return Found("flows", why, shared.stages, shared.links, energy)


def _measured(network: Network, plan: Plan) -> bool:
    """Returns whether each message's time was measured: a rate of links says less."""
    return bool(plan.phases) and all(
        phase.start and move_of(network.levels[phase.level].profile, phase.operation, phase.bytes)
        for phase in plan.phases
    )


def _listed(asked: Question) -> list[RankOperation]:
    """Returns the operations for the packet engine.  ModelError: they are too many to list."""
    plan = asked.plan
    count = sum(
        (phase.directions if phase.pattern == "one" else plan.ranks) * phase.steps * phase.peers
        for phase in plan.phases
    )
    if count <= OPERATIONS_MAX:
        listed = list(islice(asked.work.operations(asked.network), OPERATIONS_MAX + 1))
        count = len(listed)
    if count > OPERATIONS_MAX:
        raise ModelError(
            f"{asked.work.name} on {asked.network.name} has more than {OPERATIONS_MAX} operations: "
            "the packet engine is for fewer; ask for the engine auto, with a check of a part"
        )
    return listed


def _alone(network: Network, plan: Plan) -> str:
    if any(network.level_path(phase.level).share < 1 for phase in plan.phases):
        return "no link is shared beyond the tapers of the levels, which the closed form has"
    return "no two messages share a link"


def _operated(asked: Question, engine: Engine) -> Found:
    """Runs the operations of a work without phases.

    Flows are run first: where they hardly share links, packets would give the same.
    """
    if engine == "stages":
        raise ModelError(f"{asked.work.name} has no closed form: ask for the engine flows, or auto")
    network = asked.network
    operations = list(asked.work.operations(network))
    drawn = network.drawn
    routes = GraphRoutes(drawn) if drawn is not None else LevelRoutes(network)
    done = fluid(network, operations, routes)
    found = Found(
        "flows",
        _ASKED,
        done.stages,
        done.links,
        done.energy_pj,
        _flow_spans(asked, operations, done),
    )
    if engine == "flows":
        return found
    sharing = sum(stage.ns for stage in done.stages if stage.name.startswith("sharing "))
    if sharing <= SHARED * found.time_ns:
        return found._replace(why=f"operations share links for less than {SHARED:.0%} of the time")
    why = f"operations share links for {sharing / found.time_ns:.0%} of the time"
    hops = packet_hops(network, operations)
    if hops > PACKET_HOPS_MAX:
        return found._replace(
            why=f"{why}; {hops:.2g} packets times links are too many for the packet engine"
        )
    try:
        return by_packets(asked, operations, f"{why}, so each packet is run")
    except ModelError as error:
        return found._replace(why=f"{why}; packets cannot run: {error}")


def packet_hops(network: Network, operations: Sequence[RankOperation]) -> int:
    """Returns how many packets pass how many links, in all."""
    total = 0
    for one in operations:
        if one.rank != one.peer and one.peer >= 0:
            path = network.path(one.rank, one.peer)
            packet = path.profile.get("mtu", max(1, one.bytes))
            total += max(1, ceil(one.bytes / packet)) * len(path.links)
    return total


def by_packets(asked: Question, operations: Sequence[RankOperation], why: str) -> Found:
    """Runs each packet; a library's own time, which no packet has, is the closed form's.

    ModelError: the engine is not built, or the operations cannot run in it.
    """
    network, plan = asked.network, asked.plan
    done = run(graph(network), transfers(network, operations), seed=asked.seed, progress=asked.tick)
    added = (
        [stage for stage in stages(network, plan) if stage.name in LIBRARY] if plan.phases else []
    )
    warnings = []
    if any(phase.limit or phase.wire != 1 for phase in plan.phases):
        warnings.append(
            "packets know the links alone: limits of the library's channels and flags of its "
            "protocols are not in the time"
        )
    return Found(
        "packets",
        why,
        (*added, *_stages(network, operations, done)),
        done.loads(),
        _energy_pj(network, operations),
        _packet_spans(asked, operations, done),
        tuple(warnings),
    )


def _stages(
    network: Network, operations: Sequence[RankOperation], done: Run
) -> tuple[StageTime, ...]:
    found = critical_stages(network, operations, done)
    rest = done.time_ns - sum(stage.ns for stage in found)
    return found if abs(rest) < 1e-3 else (*found, StageTime("queues", rest))


def _energy_pj(network: Network, operations: Sequence[RankOperation]) -> float:
    total = 0.0
    per_bit: dict[int, float] = {}
    for one in operations:
        if one.rank != one.peer:
            level = network.level_between(one.rank, one.peer)
            if level not in per_bit:
                per_bit[level] = path_energy(network.level_path(level)).total
            profile = network.levels[level].profile
            total += wire_bytes(profile, one.bytes, one.operation) * BITS * per_bit[level]
    return total


def span_name(one: RankOperation) -> str:
    """Returns what a timeline calls an operation."""
    if one.rank == one.peer:
        return "computation"
    to = f"to {one.peer}" if one.peer >= 0 else "in the switches"
    return f"{one.operation} {one.bytes} B {to}"


def _packet_spans(
    asked: Question, operations: Sequence[RankOperation], done: Run
) -> tuple[TimelineSpan, ...]:
    if not asked.spans:
        return ()
    times = (done.times(index) for index in range(min(SPANS_MAX, len(operations))))
    return tuple(
        TimelineSpan(one.rank, span_name(one), time.start_ns, time.done_ns - time.start_ns)
        for one, time in zip(operations, times, strict=False)
    )


def _flow_spans(
    asked: Question, operations: Sequence[RankOperation], done: Done
) -> tuple[TimelineSpan, ...]:
    if not asked.spans:
        return ()
    ends = zip(operations[:SPANS_MAX], done.starts_ns, done.ends_ns, strict=False)
    return tuple(
        TimelineSpan(one.rank, span_name(one), start, end - start) for one, start, end in ends
    )
