# SPDX-License-Identifier: BSD-3-Clause
"""predict: the engine that fits, run for the nominal, the best and the worst figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nupa.model.answer.answer import Answer
from nupa.model.engine.check import check as checked
from nupa.model.engine.choice import Engine, Question, Tick, answer_by, check_engine
from nupa.model.errors import ModelError
from nupa.model.network.energy import energy_is_known
from nupa.model.network.network import Network
from nupa.model.work.phase import Plan, Work


def _warnings(network: Network, plan: Plan) -> Iterator[str]:
    yield from network.notes
    yield from plan.warnings
    levels = {phase.level: phase for phase in plan.phases}
    for part in plan.parts:
        if part.plan is not None and part.network is not None:
            yield from _warnings(replace(part.network, notes=()), part.plan)
    for cycle, sent in ((plan.cycle, sent) for sent in plan.cycle.sent) if plan.cycle else ():
        profile = cycle.network.levels[sent.phase.level].profile
        for warning in profile.envelope.outside(sent.phase.operation, sent.phase.bytes, 2):
            yield f"{profile.name}: {warning}"
    for level, phase in levels.items():
        profile = network.levels[level].profile
        size = phase.bytes if plan.form == "time" else plan.bytes // plan.messages
        for warning in profile.envelope.outside(phase.operation, size, plan.ranks):
            yield f"{profile.name}: {warning}"


def predict(
    work: Work,
    network: Network,
    engine: Engine = "auto",
    *,
    check: bool = False,
    seed: int = 1,
    spans: bool = False,
    tick: Tick | None = None,
) -> Answer:
    """Returns how long *work* takes on *network*, and why.

    *check*: a part is run in the packet engine as well.  *seed*: of paths and marks in the packet
    engine; the same seed gives the same answer.  *spans*: the answer has a timeline of operations,
    if its engine runs them.  *tick* is called about ten times a second while packets run.

    ModelError: the work or the network is impossible, or the engine cannot run the work.
    """
    check_engine(engine)
    plan = work.plan(network)
    asked = Question(work, network, plan, seed, spans, tick)
    found = answer_by(asked, engine)
    low, high = (
        answer_by(
            replace(asked, network=other, plan=work.plan(other), spans=False), found.engine
        ).time_ns
        for other in (network.at("best"), network.at("worst"))
    )
    gap, warnings = None, [*dict.fromkeys(_warnings(network, plan)), *found.warnings]
    if check:
        try:
            gap = checked(replace(asked, spans=False), engine)
        except ModelError as error:
            warnings.append(f"no check in the packet engine: {error}")
    return Answer(
        work=work.name,
        network=network.name,
        ranks=plan.ranks,
        bytes=plan.bytes,
        time_ns=found.time_ns,
        low_ns=min(low, found.time_ns),
        high_ns=max(high, found.time_ns),
        stages=found.stages,
        algorithm=plan.algorithm,
        reason=plan.reason,
        engine=found.engine,
        engine_reason=found.why,
        bus_factor=plan.bus_factor,
        links=found.links,
        energy_pj=(found.energy_pj or None) if energy_is_known(network) else None,
        warnings=tuple(warnings),
        seed=seed if found.engine == "packets" or gap else None,
        check=gap,
        form=plan.form,
        messages=plan.messages,
        directions=plan.directions,
        spans=found.spans,
    )
