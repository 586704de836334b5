# SPDX-License-Identifier: BSD-3-Clause
"""Tables and charts for a terminal, from numbers alone.

The chart has a line for each message size and a logarithmic axis: a mark for RDMA, one for TCP,
and between them a bar whose length is the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MARGIN = 10  # columns left of the axis
_RATIO = 8  # columns right of it


@dataclass(frozen=True)
class Glyphs:
    rdma: str
    tcp: str
    bar: str
    grid: str
    axis: str
    times: str


UNICODE = Glyphs(rdma="●", tcp="○", bar="━", grid="┊", axis="─", times="×")
ASCII = Glyphs(rdma="R", tcp="T", bar="=", grid=":", axis="-", times="x")


def glyphs_for(encoding: str | None) -> Glyphs:
    """What an output of this encoding can show."""
    try:
        "".join(vars(UNICODE).values()).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


@dataclass(frozen=True)
class Point:
    """One message size: what RDMA and TCP reached, both above 0, in the unit of the chart."""

    size_bytes: int
    rdma: float
    tcp: float


def format_size(size_bytes: int) -> str:
    """1536 -> '1.5 KiB', 8 -> '8 B'."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:g} {unit}"


def format_number(value: float) -> str:
    """Three digits that matter, never an exponent: 0.314, 12.3, 4567."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 4)}f}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their cells; the first to the left, the others to the right."""
    lines = [list(headings), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    rule = ["-" * width for width in widths]
    text = []
    for line in (lines[0], rule, *lines[1:]):
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def chart(
    title: str,
    points: Sequence[Point],
    *,
    lower_is_better: bool,
    tcp: str = "TCP on loopback",
    width: int = 80,
    glyphs: Glyphs = UNICODE,
) -> str:
    """The chart as text, *width* columns at most (and 40 at least).

    The number at the right says how many times better RDMA is than *tcp*.
    """
    if not points:
        raise ValueError(f"chart '{title}' has no points")
    columns = max(40, width) - _MARGIN - _RATIO
    values = [value for point in points for value in (point.rdma, point.tcp)]
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))

    def column(value: float) -> int:
        return round((math.log10(value) - low) / (high - low) * (columns - 1))

    decades = {column(10.0**power): power for power in range(low, high + 1)}
    lines = [title]
    for point in points:
        cells = [glyphs.grid if i in decades else " " for i in range(columns)]
        marks = column(point.rdma), column(point.tcp)
        for i in range(min(marks), max(marks)):
            cells[i] = glyphs.bar
        cells[marks[1]] = glyphs.tcp
        cells[marks[0]] = glyphs.rdma
        ratio = point.tcp / point.rdma if lower_is_better else point.rdma / point.tcp
        lines.append(
            f"{format_size(point.size_bytes):>{_MARGIN - 2}}  {''.join(cells)} "
            f"{format_number(ratio)}{glyphs.times}"
        )
    lines.append(" " * _MARGIN + glyphs.axis * columns)
    lines.append(_axis_labels(decades, columns))
    lines.append(
        " " * _MARGIN
        + f"{glyphs.rdma} RDMA over NUPA   {glyphs.tcp} {tcp}   "
        + f"{'lower' if lower_is_better else 'higher'} is better"
    )
    return "\n".join(line.rstrip() for line in lines)


def _axis_labels(decades: dict[int, int], columns: int) -> str:
    """Powers of ten below their columns, each left out that would touch the one before."""
    labels = [" "] * (_MARGIN + columns + _RATIO)
    free = 0
    for at, power in decades.items():
        text = f"{10.0**power:.{max(0, -power)}f}"
        start = _MARGIN + at - len(text) // 2
        if start >= free and start + len(text) <= len(labels):
            labels[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(labels)
