# SPDX-License-Identifier: BSD-3-Clause
"""Places the columns of a text diagram."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from nupa.diagram.draw.diagram import Diagram, Row
from nupa.diagram.draw.spacing import Span, between, widened, widest

LOST = 5  # distance from the end of a lost arrow to its target
_BESIDE = 5  # an arrow besides its text: two dashes, two blanks, its head
_BROKEN = 3  # a line of a detail besides its text: blanks, a comma
_APART = 2  # blanks between two headings
_HEADING_MAX = 24
_GAP_MIN = 6
_TEXT_MAX = 64  # no column is made wider for a text than this


class TextLayout:
    """*columns*: the place of each actor's line; *headings*: their names, in lines.

    Distances of columns fit the texts between them.  If the width is too small, they fit labels, or
    as much of these as possible.
    """

    def __init__(self, diagram: Diagram, left: int, width: int) -> None:
        self.headings = [
            [part for line in actor.lines for part in broken(line, _HEADING_MAX)]
            for actor in diagram.actors
        ]
        self._width = width
        widths = [max(map(len, lines)) for lines in self.headings]
        self.columns: list[int] = []
        if not widths:
            return
        first = left + (widths[0] - 1) // 2
        room = width - 1 - first - widths[-1] // 2
        least = [max(a // 2 + (b - 1) // 2 + 1 + _APART, _GAP_MIN) for a, b in pairwise(widths)]
        # From the narrowest to what shows most; between two of them as much as there is room for.
        steps = [
            least,
            widened(least, _spans(diagram.rows, _unbroken)),
            widened(least, _spans(diagram.rows, _narrowest), spread=True),
            widened(least, _spans(diagram.rows, _narrowest)),
            widened(least, _spans(diagram.rows, lambda row: len(row.text))),
        ]
        gaps = least
        for low, high in pairwise(steps):
            if sum(low) <= room:
                gaps = between(low, high, room)
        self.columns = [first]
        for gap in gaps:
            self.columns.append(self.columns[-1] + gap)

    def widest(self, first: int, last: int) -> tuple[int, int]:
        """Returns the widest stretch between two neighbours among these columns."""
        return widest(self.columns, first, last)

    def beside(self, place: int) -> tuple[int, int]:
        """Returns the columns around a note's text: its own and the next one; at the last column,
        the one before and its own."""
        x = self.columns[place]
        if place + 1 < len(self.columns):
            return x, self.columns[place + 1]
        if place:
            return self.columns[place - 1], x
        return x, self._width


def broken(text: str, width: int) -> list[str]:
    """Breaks *text* into lines of *width* characters or fewer, 4 at least.

    Lines end behind commas if possible, else between words, else anywhere.
    """
    width = max(width, 4)
    if len(text) <= width:
        return [text] if text else []
    for mark in (", ", " "):
        if mark in text:
            return _filled([part + mark.rstrip() for part in text.split(mark)], width, mark)
    return [text[at : at + width] for at in range(0, len(text), width)]


def _filled(parts: list[str], width: int, mark: str) -> list[str]:
    """Puts as many parts on each line as fit; the last one loses its comma."""
    parts[-1] = parts[-1].removesuffix(mark.rstrip()) if mark.strip() else parts[-1]
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            part = part.removesuffix(",") if len(part) == width + 1 else part
            lines += broken(part, width)
    return lines


def beside(row: Row) -> int:
    """Returns the room that an arrow needs besides its text."""
    return _BESIDE + (LOST if row.is_lost else 0)


def _spans(rows: Sequence[Row], length: Callable[[Row], int]) -> list[Span]:
    return [
        Span(row.source, row.target, min(length(row), _TEXT_MAX) + beside(row) + 1) for row in rows
    ]


def _unbroken(row: Row) -> int:
    """Returns the width of the longest word."""
    return max(map(len, row.text.split())) + _BROKEN - beside(row)


def _narrowest(row: Row) -> int:
    """Returns the width with the label on the arrow, and the detail below in lines."""
    longest = max(map(len, row.detail.split(", ")))
    return max(len(row.label), longest + _BROKEN - beside(row))
