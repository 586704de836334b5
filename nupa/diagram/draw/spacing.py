# SPDX-License-Identifier: BSD-3-Clause
"""Computes the distances between the columns of a diagram, in characters or in pixels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """A text between two columns, or beside one; *needs*: the distance from line to line."""

    source: int
    target: int
    needs: int


def widened(least: Sequence[int], spans: Iterable[Span], *, spread: bool = False) -> list[int]:
    """Returns distances of neighbours, *least* or larger, at which each text fits.

    A text widens one distance among the columns that it spans, or with *spread* all of them.
    """
    gaps = list(least)
    if not gaps:
        return gaps
    for source, target, needs in sorted(spans, key=lambda span: abs(span.source - span.target)):
        first, last = sorted((source, target))
        if first == last:  # the text is beside its line
            last = min(last + 1, len(gaps))
            first = last - 1
        if not spread:
            widest = max(range(first, last), key=gaps.__getitem__)
            gaps[widest] = max(gaps[widest], needs)
            continue
        missing = needs - sum(gaps[first:last])
        for place in range(first, last):
            part = -(-max(missing, 0) // (last - place))
            gaps[place] += part
            missing -= part
    return gaps


def between(low: Sequence[int], high: Sequence[int], room: int) -> list[int]:
    """Returns distances between *low* and *high* that fill *room*, in proportion."""
    extra = room - sum(low)
    wanted = sum(b - a for a, b in zip(low, high, strict=True) if b > a)
    if wanted <= 0 or extra <= 0:
        return list(low)
    if extra >= wanted:
        return [max(a, b) for a, b in zip(low, high, strict=True)]
    gaps, given, seen = [], 0, 0
    for a, b in zip(low, high, strict=True):
        seen += max(b - a, 0)
        part = extra * seen // wanted - given
        given += part
        gaps.append(a + part)
    return gaps


def widest(columns: Sequence[int], first: int, last: int) -> tuple[int, int]:
    """Returns the widest stretch between two neighbours among columns *first* to *last*."""
    if first == last:
        return columns[first], columns[first]
    place = max(range(first, last), key=lambda place: columns[place + 1] - columns[place])
    return columns[place], columns[place + 1]
