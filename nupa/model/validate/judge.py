# SPDX-License-Identifier: BSD-3-Clause
"""Errors of predictions: of each case, of each file against its bars, and of pairs of fabrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from nupa.model.engine.packets.run import RunProgress, run
from nupa.model.engine.predict import predict
from nupa.model.errors import ModelError
from nupa.model.validate.case import AnyCase, CalibrationFile, Case, Threshold
from nupa.model.validate.data import lines

ORDER_DIFFERENCE = 0.10  # "which is faster" is asked where the measured times differ by more
ORDER_LIMIT = 0.95


class Judged(NamedTuple):
    """A case with its prediction."""

    case: AnyCase
    predicted_ns: float

    @property
    def error(self) -> float:
        """Returns the relative error of time, with its sign."""
        return self.predicted_ns / self.case.measured_ns - 1


class BarError(NamedTuple):
    """A bar, the number of its cases, the error of time that it limits, and its worst case."""

    bar: Threshold
    cases: int
    error: float
    worst: Judged

    @property
    def met(self) -> bool:
        return self.error <= self.bar.limit


@dataclass(frozen=True)
class Judgement:
    """The cases of one file with their predictions."""

    file: CalibrationFile
    judged: tuple[Judged, ...]

    def verdicts(self) -> Iterator[BarError]:
        for bar in self.file.bars:
            held = [each for each in self.judged if bar.holds(each.case)]
            if not held:
                raise ModelError(f"{self.file.name}: no case is {bar.name}")
            worst = max(held, key=lambda each: abs(each.error))
            mean = sum(abs(each.error) for each in held) / len(held)
            yield BarError(bar, len(held), abs(worst.error) if bar.each else mean, worst)

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
                    "network": each.case.network_name,
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
        judged.append(Judged(case, _predicted_ns(case, tick)))
        tick()
    return Judgement(file, tuple(judged))


def _predicted_ns(case: AnyCase, tick: Callable[[], object]) -> float:
    if isinstance(case, Case):
        return predict(case.work, case.network.at(case.figures)).time_ns

    def progress(_: RunProgress) -> None:
        tick()

    found = run(case.graph, case.transfers, protocols=case.protocol, progress=progress)
    return case.time_ns(found)


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
    by_work: dict[tuple[str, int], list[tuple[Case, float]]] = {}
    for report in reports:
        for case, predicted_ns in report.judged:
            if isinstance(case, Case):
                key = (case.work.name, case.network.endpoints)
                by_work.setdefault(key, []).append((case, predicted_ns))
    pairs = right = 0
    for same in by_work.values():
        for (a, a_ns), (b, b_ns) in combinations(same, 2):
            if a.network.name == b.network.name and a.work == b.work:
                continue
            measured = a.measured_ns / b.measured_ns
            if max(measured, 1 / measured) <= 1 + ORDER_DIFFERENCE:
                continue
            pairs += 1
            right += (measured > 1) == (a_ns > b_ns)
    return Order(pairs, right)
