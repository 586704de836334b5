# SPDX-License-Identifier: BSD-3-Clause
"""The closed form: the time of each phase from the stages of its messages."""

from __future__ import annotations

from nupa.model.answer.answer import Stage
from nupa.model.engine.message import interval_ns, message
from nupa.model.network.network import Network
from nupa.model.work.phase import Phase, Plan


def phase_stages(network: Network, phase: Phase) -> list[Stage]:
    """Returns the stages of all steps of a phase."""
    path = network.levels[phase.level].path()
    if phase.in_flight > 1:
        interval = interval_ns(path, phase.operation, phase.bytes, phase.in_flight)
        return [Stage(interval.name, interval.ns * phase.steps)]
    stages = [
        Stage(stage.name, stage.ns * phase.steps)
        for stage in message(path, phase.operation, phase.bytes)
    ]
    if phase.fixed_ns:
        stages.append(Stage("library", phase.fixed_ns * phase.steps))
    return stages


def stages(network: Network, plan: Plan) -> tuple[Stage, ...]:
    """Returns the stages of a plan, equal names added."""
    total: dict[str, float] = {}
    for phase in plan.phases:
        for stage in phase_stages(network, phase):
            total[stage.name] = total.get(stage.name, 0.0) + stage.ns
    return tuple(Stage(name, ns) for name, ns in total.items())
