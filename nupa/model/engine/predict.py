# SPDX-License-Identifier: BSD-3-Clause
"""predict: the engine that fits, run for the nominal, the best and the worst figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from nupa.model.answer.answer import Answer, LinkLoad, Stage
from nupa.model.engine.flows import flows
from nupa.model.engine.fluid import fluid
from nupa.model.engine.loads import energy_pj
from nupa.model.engine.routes import GraphRoutes, LevelRoutes
from nupa.model.engine.stages import stages
from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.work.phase import Plan, Work

Engine = Literal["auto", "stages", "flows"]
_SAME = 1e-9


class _Found(NamedTuple):
    engine: str
    why: str
    stages: tuple[Stage, ...]
    links: tuple[LinkLoad, ...]
    energy_pj: float

    @property
    def time_ns(self) -> float:
        return sum(stage.ns for stage in self.stages)


def _planned(network: Network, plan: Plan, engine: Engine) -> _Found:
    """Runs a plan: by the closed form where no link is shared, if the choice is free."""
    shared = flows(network, plan)
    energy = energy_pj(network, shared.loads)
    alone = stages(network, plan)
    alone_ns = sum(stage.ns for stage in alone)
    free = shared.time_ns <= alone_ns * (1 + _SAME)
    if engine == "stages" or (engine == "auto" and free):
        why = "no two messages share a link" if free else "it was asked for"
        return _Found("stages", why, alone, shared.links, energy)
    why = "it was asked for" if engine == "flows" else f"transfers share {shared.bottleneck}"
    return _Found("flows", why, shared.stages, shared.links, energy)


def _operated(work: Work, network: Network, engine: Engine) -> _Found:
    """Runs the operations of a work without phases, over its graph where it was read with one."""
    if engine == "stages":
        raise ModelError(f"{work.name} has no closed form: ask for the engine flows, or auto")
    drawn = network.drawn
    routes = GraphRoutes(drawn) if drawn is not None else LevelRoutes(network)
    done = fluid(network, work.operations(network), routes)
    return _Found("flows", "each operation is run", done.stages, done.links, done.energy_pj)


def _warnings(network: Network, plan: Plan) -> Iterator[str]:
    yield from network.notes
    levels = {phase.level: phase for phase in plan.phases}
    for level, phase in levels.items():
        profile = network.levels[level].profile
        for warning in profile.envelope.outside(phase.operation, phase.bytes, plan.ranks):
            yield f"{profile.name}: {warning}"


def predict(work: Work, network: Network, engine: Engine = "auto") -> Answer:
    """Returns how long *work* takes on *network*, and why.

    ModelError: the work or the network is impossible, or the engine cannot run the work.
    """

    def run(network: Network, plan: Plan, engine: Engine) -> _Found:
        if plan.phases:
            return _planned(network, plan, engine)
        return _operated(work, network, engine)

    if engine not in ("auto", "stages", "flows"):
        raise ModelError(f"no engine {engine!r}: there are stages, flows and auto")
    plan = work.plan(network)
    found = run(network, plan, engine)
    same: Engine = "stages" if found.engine == "stages" else "flows"
    low, high = (
        run(network.at(case), work.plan(network.at(case)), same).time_ns
        for case in ("best", "worst")
    )
    return Answer(
        work=work.name,
        network=network.name,
        ranks=plan.ranks,
        bytes=plan.bytes,
        time_ns=found.time_ns,
        low_ns=low,
        high_ns=high,
        stages=found.stages,
        algorithm=plan.algorithm,
        reason=plan.reason,
        engine=found.engine,
        engine_reason=found.why,
        bus_factor=plan.bus_factor,
        links=found.links,
        energy_pj=found.energy_pj or None,
        warnings=tuple(_warnings(network, plan)),
    )
