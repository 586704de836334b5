# SPDX-License-Identifier: BSD-3-Clause
"""Charts of RDMA beside TCP, for a terminal.

A chart has one line for each message size, and a logarithmic axis.  A line has a mark for RDMA, one
for TCP, and between them a bar whose length is the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nupa.base.quantity import say_bytes
from nupa.measure.text import UNICODE, ReportGlyphs, format_ratio

_MARGIN = 10  # columns left of the axis
_RATIO = 8  # columns right of it


@dataclass(frozen=True)
class Point:
    """The values of RDMA and TCP at one message size, both above 0."""

    size_bytes: int
    rdma: float
    tcp: float


@dataclass(frozen=True)
class Chart:
    """One quantity by message size."""

    title: str
    unit: str
    points: Sequence[Point]
    lower_is_better: bool
    tcp: str = "TCP on loopback"

    @property
    def ratios(self) -> dict[int, float]:
        """By message size, how many times better RDMA is than TCP."""
        return {
            point.size_bytes: (
                point.tcp / point.rdma if self.lower_is_better else point.rdma / point.tcp
            )
            for point in self.points
        }


def render(chart: Chart, *, width: int = 80, glyphs: ReportGlyphs = UNICODE) -> str:
    """Draws *chart* in at most *width* columns, but at least 40.

    The number at the right of a line is its ratio.
    """
    if not chart.points:
        raise ValueError(f"chart '{chart.title}' has no points")
    columns = max(40, width) - _MARGIN - _RATIO
    values = [value for point in chart.points for value in (point.rdma, point.tcp)]
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))

    def column(value: float) -> int:
        return round((math.log10(value) - low) / (high - low) * (columns - 1))

    decades = {column(10.0**power): power for power in range(low, high + 1)}
    lines = [f"{chart.title}, {chart.unit}"]
    ratios = chart.ratios
    for point in chart.points:
        cells = [glyphs.grid if i in decades else " " for i in range(columns)]
        marks = column(point.rdma), column(point.tcp)
        for i in range(min(marks), max(marks)):
            cells[i] = glyphs.bar
        cells[marks[1]] = glyphs.tcp
        cells[marks[0]] = glyphs.rdma
        lines.append(
            f"{say_bytes(point.size_bytes, ' '):>{_MARGIN - 2}}  {''.join(cells)} "
            f"{format_ratio(ratios[point.size_bytes], glyphs)}"
        )
    lines.append(" " * _MARGIN + glyphs.axis * columns)
    lines.append(_axis_labels(decades, columns))
    lines.append(
        " " * _MARGIN
        + f"{glyphs.rdma} RDMA over NUPA   {glyphs.tcp} {chart.tcp}   "
        + f"{'lower' if chart.lower_is_better else 'higher'} is better"
    )
    return "\n".join(line.rstrip() for line in lines)


def _axis_labels(decades: dict[int, int], columns: int) -> str:
    """Labels powers of ten below their columns; omits those that would overlap."""
    labels = [" "] * (_MARGIN + columns + _RATIO)
    free = 0
    for at, power in decades.items():
        text = f"{10.0**power:.{max(0, -power)}f}"
        start = _MARGIN + at - len(text) // 2
        if start >= free and start + len(text) <= len(labels):
            labels[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(labels)
