# SPDX-License-Identifier: BSD-3-Clause
"""Loads, stores and memcpy through a window, beside ordinary memory (window_memory.c)."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.case import Bench, Case, at_most
from nupa.measure import raw

_SECONDS = 1.0
_WORKS = ("load", "store", "memcpy")
#: In a CPU's first cache; far beyond its last.
_SIZES = (("16 KiB", 16 << 10), ("64 MiB", 64 << 20))


class _Sides:
    """One size: the first question measures both sides of all works in one run, by turns."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: dict[tuple[str, str], float] = {}

    def ns(self, work: str, side: str) -> Callable[[Bench], float]:
        def measure(bench: Bench) -> float:
            if (work, side) not in self._found:
                self._run(bench)
            return self._found.pop((work, side))

        return measure

    def _run(self, bench: Bench) -> None:
        values = raw.run(
            "window_memory",
            cpus=bench.cpus,
            seconds=_SECONDS / (20 if bench.quick else 1),
            sizes=[self._size],
        )
        for row in values["results"]:
            for side in ("window", "ordinary"):
                self._found[row["what"], side] = float(row[f"{side}_ns"])


def _cases() -> tuple[Case, ...]:
    found = []
    for name, size in _SIZES:
        sides = _Sides(size)
        for work in _WORKS:
            what = f"{work} by a line in a window, {name}"
            reference = sides.ns(work, "ordinary")
            measure = sides.ns(work, "window")
            case = Case(what, "ns", at_most(1.05), measure, "memory", reference)
            found.append(case)
    return tuple(found)


CASES = _cases()
