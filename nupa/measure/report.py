# SPDX-License-Identifier: BSD-3-Clause
"""The parts that all reports share: lines beside a reference, notes, failures and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nupa.base.progress import Progress
from nupa.measure.text import ReportGlyphs, format_ratio, format_value

HEADINGS = ("what", "measured", "reference", "which is", "ratio", "target", "verdict")


@dataclass(frozen=True)
class Line:
    """A measured value beside a reference in the same unit."""

    what: str
    unit: str
    target: str  #: empty: none
    reference_name: str
    measured: float | None = None
    reference: float | None = None
    ratio: float | None = None
    met: bool | None = None  #: None: there is no target
    error: str = ""  #: why nothing was measured

    def cells(self, glyphs: ReportGlyphs) -> list[str]:
        """Returns the texts under HEADINGS."""
        verdict = {None: "", True: "met", False: "NOT MET"}[self.met]
        return [
            self.what,
            format_value(self.measured, self.unit),
            format_value(self.reference, self.unit),
            self.reference_name or "-",
            format_ratio(self.ratio, glyphs),
            self.target or "-",
            "failed" if self.error else verdict,
        ]


@dataclass(kw_only=True)
class StepReport:
    """Grows step by step; a step that failed is a line in *failures*."""

    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.failures

    def attempt(
        self,
        progress: Progress,
        label: str,
        action: Callable[[], None],
        errors: tuple[type[Exception], ...],
    ) -> bool:
        """Announces and runs a step; returns whether it succeeded."""
        progress.step(label)
        try:
            action()
        except errors as error:
            self.failures.append(f"{label}: {error}")
            return False
        return True

    def text(self, parts: Sequence[str], where: str, more: str = "") -> str:
        """Joins *parts*, the notes, the failures and the verdict; *more* ends the verdict."""
        where = f"{where}, {self.elapsed_s:.1f} s"
        if self.ok:
            verdict = f"All worked: {where}"
        else:
            verdict = f"NOT all worked ({where}): {len(self.failures)} steps failed"
        notes = [f"note: {note}" for note in self.notes]
        failures = [f"FAILED: {failure}" for failure in self.failures]
        return "\n\n".join([*parts, *notes, *failures, f"{verdict}{more}."])
