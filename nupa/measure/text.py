# SPDX-License-Identifier: BSD-3-Clause
"""Numbers, ratios and tables as all measurements print them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReportGlyphs:
    rdma: str
    tcp: str
    bar: str
    grid: str
    axis: str
    times: str


UNICODE = ReportGlyphs(rdma="●", tcp="○", bar="━", grid="┊", axis="─", times="×")
ASCII = ReportGlyphs(rdma="R", tcp="T", bar="=", grid=":", axis="-", times="x")


def glyphs_for(encoding: str | None) -> ReportGlyphs:
    """Returns ASCII where *encoding* lacks a character of UNICODE."""
    try:
        "".join(vars(UNICODE).values()).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


def format_number(value: float) -> str:
    """Formats with three significant digits and no exponent: 0.314, 12.3, 4567."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 4)}f}"


def format_value(value: float | None, unit: str) -> str:
    """Formats 3.14159, 'µs' as '3.14 µs', and None as '-'."""
    return "-" if value is None else f"{format_number(value)} {unit}"


def format_ratio(ratio: float | None, glyphs: ReportGlyphs) -> str:
    """Formats 2.0 as '2.00×', and None as '-'."""
    return "-" if ratio is None else format_number(ratio) + glyphs.times


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligns the first column to the left, the others to the right."""
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
