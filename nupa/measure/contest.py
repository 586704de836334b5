# SPDX-License-Identifier: BSD-3-Clause
"""The report of `nupa vm demo`: programs over NUPA and over another transport."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nupa.measure.report import HEADINGS, Line, Report
from nupa.measure.text import UNICODE, Glyphs, table

Side = Literal["nupa", "other"]
SIDES: tuple[Side, Side] = ("nupa", "other")


@dataclass(frozen=True)
class Contest:
    """One program with one set of options."""

    program: str
    what: str
    unit: str
    lower_is_better: bool
    against: str
    size_bytes: int | None = None
    target: float | None = None  #: the least ratio that is wanted; None: no target


@dataclass
class Score:
    """The runs of a contest: one number for each run of each side, in its unit."""

    contest: Contest
    runs: dict[Side, list[float]] = field(default_factory=lambda: {"nupa": [], "other": []})

    def best(self, side: Side) -> float | None:
        """Returns the best run, the least disturbed by other load; None: there is no run."""
        if not self.runs[side]:
            return None
        return (min if self.contest.lower_is_better else max)(self.runs[side])

    @property
    def ratio(self) -> float | None:
        """How many times better NUPA is; None: one side has no run."""
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

    def line(self, glyphs: Glyphs) -> Line:
        contest = self.contest
        return Line(
            f"{contest.program}, {contest.what}",
            contest.unit,
            "" if contest.target is None else f"at least {contest.target:g}{glyphs.times}",
            contest.against,
            self.best("nupa"),
            self.best("other"),
            self.ratio,
            self.met,
        )

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
class GuestReport(Report):
    """The scores of all contests; `ok` does not depend on targets."""

    kind: str
    qemu: str
    kernel: str
    memory_bytes: int
    scores: list[Score] = field(default_factory=list)

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


def render(report: GuestReport, glyphs: Glyphs = UNICODE) -> str:
    """Returns the table, notes and failures, and the verdict."""
    parts = []
    if report.scores:
        rows = [score.line(glyphs).cells(glyphs) for score in report.scores]
        parts.append(table(HEADINGS, rows))
    missed = sum(score.met is False for score in report.scores)
    targets = f"targets not met: {missed}" if missed else "all targets are met"
    where = f"{report.kind}, QEMU {report.qemu}, Linux {report.kernel}"
    return report.text(parts, where, f"; {targets}" if report.ok else "")
