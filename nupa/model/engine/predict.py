# SPDX-License-Identifier: BSD-3-Clause
"""predict: the engine that fits, run for the nominal, the best and the worst figures."""

from __future__ import annotations

from nupa.model.answer.answer import Answer
from nupa.model.engine.stages import stages
from nupa.model.network.network import Network
from nupa.model.work.phase import Work


def predict(work: Work, network: Network) -> Answer:
    """Returns how long *work* takes on *network*, and why."""
    plan = work.plan(network)
    found = stages(network, plan)
    low, high = (
        sum(stage.ns for stage in stages(network.at(case), work.plan(network.at(case))))
        for case in ("best", "worst")
    )
    levels = {phase.level: phase for phase in plan.phases}
    warnings = tuple(
        f"{network.levels[level].profile.name}: {warning}"
        for level, phase in levels.items()
        for warning in network.levels[level].profile.envelope.outside(
            phase.operation, phase.bytes, plan.ranks
        )
    )
    return Answer(
        work=work.name,
        network=network.name,
        ranks=plan.ranks,
        bytes=plan.bytes,
        time_ns=sum(stage.ns for stage in found),
        low_ns=low,
        high_ns=high,
        stages=found,
        algorithm=plan.algorithm,
        reason=plan.reason,
        engine="stages",
        engine_reason="no two messages share a link",
        bus_factor=plan.bus_factor,
        warnings=warnings,
    )
