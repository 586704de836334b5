# SPDX-License-Identifier: BSD-3-Clause
"""The flow engine for plans: classes of equal flows over classes of equal links.

All flows of a phase are alike, so max-min fairness gives each the same rate: what the fullest class
of links has for it.  The cost is that of the plan, whatever the number of ranks.
"""

from __future__ import annotations

from typing import NamedTuple

from nupa.model.answer.answer import LinkLoad, StageTime
from nupa.model.engine.flows.loads import LinkClass, Load, class_name, loads, totals
from nupa.model.engine.message import serialisation_ns
from nupa.model.engine.stages import FLOW_RATE, phase_stages, uncovered
from nupa.model.network.network import Network
from nupa.model.work.phase import Phase, Plan


class Flows(NamedTuple):
    """The stages add up to the time.  *sent* and *received* are the bytes on the wire, in all.

    *bottleneck*: the class of links, or the endpoint's limit, that takes the longest time.
    """

    stages: tuple[StageTime, ...]
    links: tuple[LinkLoad, ...]
    bottleneck: str
    sent: float
    received: float
    loads: dict[LinkClass, Load]

    @property
    def time_ns(self) -> float:
        return sum(stage.ns for stage in self.stages)


def _seconds(load: Load) -> float:
    return load.bytes / load.capacity


def _slowest(network: Network, found: dict[LinkClass, Load]) -> StageTime:
    key = max(found, key=lambda key: _seconds(found[key]))
    return StageTime(class_name(network, key), _seconds(found[key]) * 1e9)


def _limits(network: Network, phase: Phase) -> tuple[list[StageTime], StageTime]:
    """Returns the latencies of a phase, and what an endpoint alone needs beyond its links."""
    *latencies, transfer = phase_stages(network, phase)
    base = network.levels[network.base(phase.level)]
    serial = serialisation_ns(base.profile, phase.bytes, phase.operation) * phase.wire
    if phase.outstanding > 1:
        # Messages in flight: serialisation is one of the limits that the stages have weighed.
        path = network.level_path(phase.level)
        alone = serial * phase.steps / (path.share * path.ways)
        return latencies, transfer if transfer.ns > alone * (1 + 1e-9) else StageTime("", 0.0)
    if transfer.name == FLOW_RATE or (phase.limit and transfer.name == phase.limit_name):
        return latencies, transfer
    return latencies, StageTime("", 0.0)


def flows(network: Network, plan: Plan) -> Flows:
    """Returns the time of a plan, and the load of each class of links.

    Phases of a pipelined plan run at once and share links; of others, one follows the other.
    """
    found = [loads(network, phase) for phase in plan.phases]
    stages: dict[str, float] = {}

    def add(stage: StageTime) -> None:
        if stage.ns:
            stages[stage.name] = stages.get(stage.name, 0.0) + stage.ns

    add(StageTime("launch", plan.fixed_ns))
    ring = plan.pipelined and plan.algorithm.partition("/")[0] == "ring"
    total = totals(found, ring)
    transfers: list[StageTime] = []
    limits: list[StageTime] = []
    for phase, each in zip(plan.phases, found, strict=True):
        latencies, limit = _limits(network, phase)
        for latency in uncovered(plan.pace, phase, latencies) if plan.pipelined else latencies:
            add(latency)
        limits.append(limit)
        transfers.append(max(limit, _slowest(network, each), key=lambda stage: stage.ns))
    if plan.pipelined and plan.phases:
        transfers = [max(*limits, _slowest(network, total), key=lambda stage: stage.ns)]
        add(StageTime("library", plan.pace.visible_ns(transfers[0].ns)))
    for transfer in transfers:
        add(transfer)
    time_ns = sum(stages.values())
    links = tuple(
        LinkLoad(
            class_name(network, key), round(load.links), load.bytes,
            min(1.0, _seconds(load) * 1e9 / time_ns) if time_ns else 0.0,
        )
        for key, load in total.items()
    )  # fmt: skip
    ends = {
        way: sum(load.links * load.bytes for key, load in total.items() if key.way == way)
        for way in ("out", "in")
    }
    slowest = max(transfers, key=lambda stage: stage.ns, default=StageTime("", 0.0))
    return Flows(
        tuple(StageTime(name, ns) for name, ns in stages.items()),
        links, slowest.name, ends["out"], ends["in"], total,
    )  # fmt: skip
