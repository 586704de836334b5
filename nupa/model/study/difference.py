# SPDX-License-Identifier: BSD-3-Clause
"""Differences: why a work takes longer on one fabric than on another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from nupa.model.answer.answer import Answer
from nupa.model.engine.choice import Engine, Question, answer_by
from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.figure import UNITS, Figure
from nupa.model.study.question import network_of, predict, work_of
from nupa.model.work.phase import Work


class StageRow(NamedTuple):
    """A stage that either has; 0 where one has it not."""

    name: str
    a_ns: float
    b_ns: float

    @property
    def more_ns(self) -> float:
        return self.b_ns - self.a_ns


class FigureRow(NamedTuple):
    """A figure that differs, in the unit of a file.

    *effect_ns*: how much less the second fabric would take with the first one's figure.
    """

    level: str
    name: str
    meaning: str
    a: str
    b: str
    effect_ns: float


@dataclass(frozen=True)
class FabricDifference:
    """Rows are in the order of what they explain."""

    a: Answer
    b: Answer
    stages: tuple[StageRow, ...]
    figures: tuple[FigureRow, ...]
    structure: tuple[str, ...]

    def shown(self) -> dict[str, Any]:
        """Returns it as `nupa model why --json` prints it; times in ns."""
        return {
            "a": self.a.shown(),
            "b": self.b.shown(),
            "stages": [row._asdict() | {"more_ns": row.more_ns} for row in self.stages],
            "figures": [row._asdict() for row in self.figures],
            "structure": list(self.structure),
        }


def difference(
    work: Work | str,
    a: Network | str,
    b: Network | str,
    ranks: int = 0,
    *,
    algorithm: str = "",
    library: str = "",
    engine: str = "auto",
    seed: int = 1,
) -> FabricDifference:
    """Returns what *b* takes beyond *a*, stage by stage and figure by figure.

    ModelError: the work is impossible on one of them.
    """
    found = work_of(work, algorithm, library)
    networks = network_of(a, ranks), network_of(b, ranks)
    one, two = (predict(found, each, engine=engine, seed=seed) for each in networks)
    names = dict.fromkeys(stage.name for answer in (one, two) for stage in answer.stages)
    rows = [StageRow(name, _stage_ns(one, name), _stage_ns(two, name)) for name in names]
    rows.sort(key=lambda row: -abs(row.more_ns))
    figures = sorted(_figures(found, *networks, two), key=lambda row: -abs(row.effect_ns))
    return FabricDifference(one, two, tuple(rows), tuple(figures), tuple(_structure(*networks)))


def _stage_ns(answer: Answer, name: str) -> float:
    return sum(stage.ns for stage in answer.stages if stage.name == name)


def _figures(work: Work, a: Network, b: Network, answer: Answer) -> Iterator[FigureRow]:
    """Yields figures that differ and matter, level by level from the lowest.

    Effects are those in the engine of *answer*, or in the closed form in place of packets.
    """
    engine, base_ns = cast(Engine, answer.engine), answer.time_ns
    if engine == "packets":
        # Of a single figure, packets would tell chance from effect only by many seeds.
        engine = "stages"
        base_ns = answer_by(Question(work, b, work.plan(b)), engine).time_ns
    for index, (mine, other) in enumerate(zip(b.levels, a.levels, strict=False)):
        for name, figure in mine.profile.figures.items():
            theirs = other.profile.figures.get(name)
            if theirs is None or theirs.value == figure.value:
                continue
            levels = list(b.levels)
            levels[index] = _with(mine, name, theirs)
            changed = replace(b, levels=tuple(levels), drawn=None)
            try:
                asked = Question(work, changed, work.plan(changed))
                effect = base_ns - answer_by(asked, engine).time_ns
            except ModelError:
                continue  # the figures of the second fabric do not go with that one
            if effect:
                kind = figure.kind
                yield FigureRow(mine.name, name, kind.meaning, _said(theirs), _said(figure), effect)


def _with(level: NetworkLevel, name: str, figure: Figure) -> NetworkLevel:
    figures = {**level.profile.figures, name: figure}
    return replace(level, profile=replace(level.profile, figures=figures))


def _said(figure: Figure) -> str:
    value = figure.value / UNITS[figure.kind.dimension][figure.unit]
    return f"{value:.4g} {figure.unit}".removesuffix(" 1")


def _structure(a: Network, b: Network) -> Iterator[str]:
    """Yields sentences about levels that are not alike."""
    if len(a.levels) != len(b.levels):
        both = [", ".join(level.name for level in network.levels) for network in (a, b)]
        yield f"{a.name} has the levels {both[0]}; {b.name} has {both[1]}"
        return
    for mine, other in zip(a.levels, b.levels, strict=True):
        for what in ("groups", "switches", "taper", "planes", "nics"):
            one, two = getattr(mine, what), getattr(other, what)
            if one != two:
                yield f"{mine.name}: {what} {one:g} in {a.name}, {two:g} in {b.name}"
