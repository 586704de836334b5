# SPDX-License-Identifier: BSD-3-Clause
"""The report of `nupa vm demo`: programs over NUPA and over another transport."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nupa.measure.report import HEADINGS, Line, StepReport
from nupa.measure.text import UNICODE, ReportGlyphs, table

Side = Literal["nupa", "other"]
SIDES: tuple[Side, Side] = ("nupa", "other")


@dataclass(frozen=True)
class GuestProgram:
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
    """The runs of a comparison: one number for each run of each side, in its unit."""

    comparison: GuestProgram
    runs: dict[Side, list[float]] = field(default_factory=lambda: {"nupa": [], "other": []})

    def best(self, side: Side) -> float | None:
        """Returns the best run, the least disturbed by other load; None: there is no run."""
        if not self.runs[side]:
            return None
        return (min if self.comparison.lower_is_better else max)(self.runs[side])

    @property
    def ratio(self) -> float | None:
        """How many times better NUPA is; None: one side has no run."""
        nupa, other = self.best("nupa"), self.best("other")
        if not nupa or not other:
            return None
        return other / nupa if self.comparison.lower_is_better else nupa / other

    @property
    def met(self) -> bool | None:
        """None: there is no target."""
        if self.comparison.target is None:
            return None
        return self.ratio is not None and self.ratio >= self.comparison.target

    def line(self, glyphs: ReportGlyphs) -> Line:
        comparison = self.comparison
        return Line(
            f"{comparison.program}, {comparison.what}",
            comparison.unit,
            "" if comparison.target is None else f"at least {comparison.target:g}{glyphs.times}",
            comparison.against,
            self.best("nupa"),
            self.best("other"),
            self.ratio,
            self.met,
        )

    def to_json(self) -> dict[str, Any]:
        comparison = self.comparison
        return {
            "program": comparison.program,
            "what": comparison.what,
            "size_bytes": comparison.size_bytes,
            "unit": comparison.unit,
            "better": "lower" if comparison.lower_is_better else "higher",
            "against": comparison.against,
            "nupa": self.best("nupa"),
            "other": self.best("other"),
            "ratio": self.ratio,
            "target": comparison.target,
            "met": self.met,
            "nupa_runs": self.runs["nupa"],
            "other_runs": self.runs["other"],
        }


@dataclass
class GuestReport(StepReport):
    """The scores of all comparisons; `ok` does not depend on targets."""

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


def render(report: GuestReport, glyphs: ReportGlyphs = UNICODE) -> str:
    """Returns the table, notes and failures, and the verdict."""
    parts = []
    if report.scores:
        rows = [score.line(glyphs).cells(glyphs) for score in report.scores]
        parts.append(table(HEADINGS, rows))
    missed = sum(score.met is False for score in report.scores)
    targets = f"targets not met: {missed}" if missed else "all targets are met"
    where = f"{report.kind}, QEMU {report.qemu}, Linux {report.kernel}"
    return report.text(parts, where, f"; {targets}" if report.ok else "")
