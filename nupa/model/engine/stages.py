# SPDX-License-Identifier: BSD-3-Clause
"""The closed form: the time of each phase from the stages of its messages."""

from __future__ import annotations

from collections.abc import Iterable

from nupa.model.answer.answer import StageTime
from nupa.model.engine.message import interval_ns, message, one_way, serialisation_ns
from nupa.model.engine.moves import move_of
from nupa.model.network.network import Network
from nupa.model.work.phase import Pace, Phase, Plan

#: The stage of a stream that reaches less than its links.
FLOW_RATE = "flow rate"


def _steps(network: Network, phase: Phase) -> tuple[list[StageTime], StageTime]:
    """Returns the latencies of all steps of a phase, and what its bytes take."""
    level = network.levels[phase.level]
    path = network.level_path(phase.level)
    of_message = (
        message(path, phase.operation, phase.bytes)
        if phase.start
        else tuple(one_way(path, phase.bytes))
    )
    stages = [
        StageTime(stage.name, stage.ns * phase.steps)
        for stage in of_message
        if stage.name != "serialisation" and stage.ns
    ]
    if phase.fixed_ns:
        stages.append(StageTime("library", phase.fixed_ns * phase.steps))
    label = "serialisation" if len(network.levels) == 1 else f"serialisation, {level.name}"
    move = move_of(path.profile, phase.operation, phase.bytes) if phase.start else None
    if move:
        # A measured message has its bytes; those to further peers follow it.
        return stages, StageTime(label, move.stream * (phase.peers - 1) * phase.steps)
    serial = serialisation_ns(path.profile, phase.bytes, phase.operation)
    per_step = serial * phase.peers * phase.wire
    name, per_step = (
        level.name,
        per_step / (path.share * path.ways),
    )
    if phase.limit and phase.bytes * phase.peers / phase.limit * 1e9 > per_step:
        name, per_step = phase.limit_name, phase.bytes * phase.peers / phase.limit * 1e9
    if "flow_rate" in path.profile.figures:
        # Each peer has a stream of its own.
        stream = phase.bytes * phase.wire / path.profile["flow_rate"] * 1e9
        if stream > per_step:
            return stages, StageTime(FLOW_RATE, stream * phase.steps)
    return stages, StageTime(name if name == phase.limit_name else label, per_step * phase.steps)


def uncovered(pace: Pace, phase: Phase, latencies: list[StageTime]) -> list[StageTime]:
    """Returns what is left of a phase's latencies beside the steps of a pace that covers them."""
    total = sum(stage.ns for stage in latencies)
    if not pace.covers or not total:
        return latencies
    left = max(0.0, 1 - pace.ns * phase.steps / total)
    return [StageTime(stage.name, stage.ns * left) for stage in latencies]


def phase_stages(network: Network, phase: Phase) -> list[StageTime]:
    """Returns the stages of all steps of a phase."""
    if phase.outstanding > 1:
        path = network.level_path(phase.level)
        interval = interval_ns(
            path, phase.operation, phase.bytes, phase.in_flight, phase.queue_pairs, phase.directions
        )
        return [StageTime(interval.name, interval.ns * phase.steps)]
    stages, transfer = _steps(network, phase)
    return [*stages, transfer]


def _added(stages: Iterable[StageTime]) -> tuple[StageTime, ...]:
    total: dict[str, float] = {}
    for stage in stages:
        total[stage.name] = total.get(stage.name, 0.0) + stage.ns
    return tuple(StageTime(name, ns) for name, ns in total.items() if ns)


def stages(network: Network, plan: Plan) -> tuple[StageTime, ...]:
    """Returns the stages of a plan, equal names added.

    Phases of a pipelined plan carry different parts of the data at once: the latencies add up, and
    the slowest transfer hides the others, and a part of the library's steps.
    """
    launch = StageTime("launch", plan.fixed_ns)
    if not plan.pipelined:
        return _added(
            [launch, *(stage for phase in plan.phases for stage in phase_stages(network, phase))]
        )
    latencies: list[StageTime] = []
    transfers = []
    for phase in plan.phases:
        of_phase, transfer = _steps(network, phase)
        latencies += uncovered(plan.pace, phase, of_phase)
        transfers.append(transfer)
    slowest = max(transfers, key=lambda stage: stage.ns)
    steps = StageTime("library", plan.pace.visible_ns(slowest.ns))
    return _added([launch, *latencies, steps, slowest])
