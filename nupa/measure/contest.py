# SPDX-License-Identifier: BSD-3-Clause
"""What one program measured over NUPA and over something else in the same guests; a table of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nupa.measure import chart

Side = Literal["nupa", "other"]
SIDES: tuple[Side, Side] = ("nupa", "other")


@dataclass(frozen=True)
class Contest:
    """One program with one set of options.  *target*: NUPA shall be at least so many times better;
    None: no such wish."""

    program: str
    what: str
    unit: str
    lower_is_better: bool
    against: str
    size_bytes: int | None = None
    target: float | None = None


@dataclass
class Score:
    """What came of a contest: one number for each run of each side, in its unit."""

    contest: Contest
    runs: dict[Side, list[float]] = field(default_factory=lambda: {"nupa": [], "other": []})

    def best(self, side: Side) -> float | None:
        """The best of the runs, which other work of the machine spoiled least; None: no run."""
        if not self.runs[side]:
            return None
        return (min if self.contest.lower_is_better else max)(self.runs[side])

    @property
    def ratio(self) -> float | None:
        """How many times better NUPA is; None where one of them has no run."""
        nupa, other = self.best("nupa"), self.best("other")
        if not nupa or not other:
            return None
        return other / nupa if self.contest.lower_is_better else nupa / other

    @property
    def met(self) -> bool | None:
        """None: there is no target."""
        if self.contest.target is None:
            return None
        return self.ratio is not None and self.ratio >= self.contest.target

    def to_json(self) -> dict[str, Any]:
        contest = self.contest
        return {
            "program": contest.program,
            "what": contest.what,
            "size_bytes": contest.size_bytes,
            "unit": contest.unit,
            "better": "lower" if contest.lower_is_better else "higher",
            "against": contest.against,
            "nupa": self.best("nupa"),
            "other": self.best("other"),
            "ratio": self.ratio,
            "target": contest.target,
            "met": self.met,
            "nupa_runs": self.runs["nupa"],
            "other_runs": self.runs["other"],
        }


@dataclass
class Report:
    """Grows step by step; a step that failed is a line in *failures*."""

    kind: str
    qemu: str
    kernel: str
    memory_bytes: int
    scores: list[Score] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether all was measured, targets met or not."""
        return not self.failures

    @property
    def targets_met(self) -> bool:
        return all(score.met is not False for score in self.scores)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "qemu": self.qemu,
            "kernel": self.kernel,
            "memory_bytes": self.memory_bytes,
            "results": [score.to_json() for score in self.scores],
            "notes": self.notes,
            "failures": self.failures,
            "ok": self.ok,
            "targets_met": self.targets_met,
            "elapsed_s": self.elapsed_s,
        }


def render(report: Report, glyphs: chart.Glyphs = chart.UNICODE) -> str:
    """The table, what is to be said of it, and the verdict."""
    parts = []
    if report.scores:
        parts.append(_table(report.scores, glyphs))
    parts += [f"note: {note}" for note in report.notes]
    parts += [f"FAILED: {failure}" for failure in report.failures]
    parts.append(_verdict(report))
    return "\n\n".join(parts)


def _table(scores: Sequence[Score], glyphs: chart.Glyphs) -> str:
    headings = ["between two guests", "by", "NUPA", "other", "which is", "ratio", "target", ""]
    rows = []
    for score in scores:
        contest, ratio = score.contest, score.ratio
        wish = contest.target
        rows.append(
            [
                contest.what,
                contest.program,
                *(_value(score.best(side), contest.unit) for side in SIDES),
                contest.against,
                "-" if ratio is None else chart.format_number(ratio) + glyphs.times,
                "-" if wish is None else f"at least {wish:g}{glyphs.times}",
                {None: "", True: "met", False: "MISSED"}[score.met],
            ]
        )
    return chart.table(headings, rows)


def _value(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{chart.format_number(value)} {unit}"


def _verdict(report: Report) -> str:
    where = f"{report.kind}, QEMU {report.qemu}, Linux {report.kernel}"
    took = f"{report.elapsed_s:.0f} s"
    if not report.ok:
        return f"NOT all worked ({where}, {took}): {len(report.failures)} steps failed."
    missed = sum(score.met is False for score in report.scores)
    said = "all targets are met" if not missed else f"{missed} of the targets are MISSED"
    return f"All worked: {where}, {took}; {said}."
