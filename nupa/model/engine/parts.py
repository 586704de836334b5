# SPDX-License-Identifier: BSD-3-Clause
"""Steps of several parts: computations, and plans on the networks of groups of ranks."""

from __future__ import annotations

from collections.abc import Callable

from nupa.model.answer.answer import Stage
from nupa.model.network.network import Network
from nupa.model.work.phase import Part, Plan

#: Returns the time of a plan on a network.
Timer = Callable[[Network, Plan], float]


def part_ns(part: Part, timer: Timer) -> float:
    """Returns what is visible of a part: all its times, less what a computation hides."""
    once = part.ns
    if part.plan is not None and part.network is not None:
        once += timer(part.network, part.plan)
    return max(0.0, once * part.times - part.hidden_ns)


def parts_stages(plan: Plan, timer: Timer) -> tuple[Stage, ...]:
    """Returns a stage for each part, and the bubble of the pipeline."""
    found = [Stage(part.name, part_ns(part, timer)) for part in plan.parts]
    piped = sum(stage.ns for stage, part in zip(found, plan.parts, strict=True) if part.piped)
    found.append(Stage("pipeline bubble", plan.bubble * piped))
    total: dict[str, float] = {}
    for stage in found:
        total[stage.name] = total.get(stage.name, 0.0) + stage.ns
    return tuple(Stage(name, ns) for name, ns in total.items() if ns)
