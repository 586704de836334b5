# SPDX-License-Identifier: BSD-3-Clause
"""Errors of predictions: of each case, of each file against its bars, and of pairs of fabrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from nupa.model.engine.predict import predict
from nupa.model.errors import ModelError
from nupa.model.validate.case import CalibrationFile, Case, Threshold
from nupa.model.validate.data import lines

ORDER_DIFFERENCE = 0.10  # "which is faster" is asked where the measured times differ by more
ORDER_LIMIT = 0.95


class Judged(NamedTuple):
    """A case with its prediction."""

    case: Case
    predicted_ns: float

    @property
    def error(self) -> float:
        """Returns the relative error of time, with its sign."""
        return self.predicted_ns / self.case.measured_ns - 1


class MeanError(NamedTuple):
    """A bar, the number of its cases, and the mean absolute relative error of time."""

    bar: Threshold
    cases: int
    error: float

    @property
    def met(self) -> bool:
        return self.error <= self.bar.limit


@dataclass(frozen=True)
class Judgement:
    """The cases of one file with their predictions."""

    file: CalibrationFile
    judged: tuple[Judged, ...]

    def verdicts(self) -> Iterator[MeanError]:
        for bar in self.file.bars:
            errors = [abs(each.error) for each in self.judged if bar.holds(each.case)]
            if not errors:
                raise ModelError(f"{self.file.name}: no case is {bar.name}")
            yield MeanError(bar, len(errors), sum(errors) / len(errors))

    @property
    def worst(self) -> Judged:
        return max(self.judged, key=lambda each: abs(each.error))

    def shown(self) -> dict[str, Any]:
        """Returns it as `--json` prints it: errors as fractions, times in ns."""
        return {
            "file": self.file.name,
            "fitted": self.file.fitted,
            "left_out": self.file.left_out,
            "missing": self.file.missing,
            "bars": [
                {
                    "bar": each.bar.name,
                    "limit": each.bar.limit,
                    "cases": each.cases,
                    "error": each.error,
                    "met": each.met,
                }
                for each in self.verdicts()
            ],
            "cases": [
                {
                    "case": each.case.label,
                    "network": each.case.network.name,
                    "measured_ns": each.case.measured_ns,
                    "predicted_ns": each.predicted_ns,
                    "error": each.error,
                }
                for each in self.judged
            ],
        }


def judge(file: CalibrationFile, tick: Callable[[], object] = lambda: None) -> Judgement:
    """Predicts each case of a file; *tick* is called after each."""
    judged = []
    for case in file.read(lines(file.name)):
        network = case.network.at(case.figures)
        judged.append(Judged(case, predict(case.work, network).time_ns))
        tick()
    return Judgement(file, tuple(judged))


class Order(NamedTuple):
    """Pairs of equal work on two networks, whose measured times differ by more than 10 %.

    *right*: those that predictions order in the same way.
    """

    pairs: int
    right: int
    limit: float = ORDER_LIMIT

    def shown(self) -> dict[str, Any]:
        return self._asdict() | {"share": self.share, "met": self.share >= self.limit}

    @property
    def share(self) -> float:
        return self.right / self.pairs if self.pairs else 1.0


def order(reports: Sequence[Judgement]) -> Order:
    """Asks of all pairs of cases with the same work which network is faster, across all files."""
    by_work: dict[tuple[str, int], list[Judged]] = {}
    for report in reports:
        for each in report.judged:
            key = (each.case.work.name, each.case.network.endpoints)
            by_work.setdefault(key, []).append(each)
    pairs = right = 0
    for same in by_work.values():
        for a, b in combinations(same, 2):
            if a.case.network.name == b.case.network.name and a.case.work == b.case.work:
                continue
            measured = a.case.measured_ns / b.case.measured_ns
            if max(measured, 1 / measured) <= 1 + ORDER_DIFFERENCE:
                continue
            pairs += 1
            right += (measured > 1) == (a.predicted_ns > b.predicted_ns)
    return Order(pairs, right)
