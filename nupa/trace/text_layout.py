# SPDX-License-Identifier: BSD-3-Clause
"""Where the columns of a text diagram stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from textwrap import wrap

from nupa.trace.spacing import Span, between, widened, widest
from nupa.trace.story import Row, Story

LOST = 5  # how long before its end a lost arrow ends
_BESIDE = 5  # what an arrow has besides its text: two dashes, two blanks, its head
_APART = 2  # blanks between two headings
_HEADING_MAX = 24
_GAP_MIN = 6
_TEXT_MAX = 64  # no column is made wider for a text than this


class Layout:
    """*columns*: the place of each actor's line; *headings*: their names, in lines.

    Columns stand as far apart as the texts between them need; where the width does not allow that,
    as far as the labels need; and where it does not even allow that, somewhere between.
    """

    def __init__(self, story: Story, left: int, width: int) -> None:
        self.headings = [
            [part for line in actor.lines for part in wrap(line, _HEADING_MAX)] or [""]
            for actor in story.actors
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
            widened(least, _spans(story.rows, lambda row: row.label), spread=True),
            widened(least, _spans(story.rows, lambda row: row.label)),
            widened(least, _spans(story.rows, lambda row: row.text)),
        ]
        gaps = least
        for low, high in pairwise(steps):
            if sum(low) <= room:
                gaps = between(low, high, room)
        self.columns = [first]
        for gap in gaps:
            self.columns.append(self.columns[-1] + gap)

    def widest(self, first: int, last: int) -> tuple[int, int]:
        """The widest stretch between two neighbours among these columns: from line to line."""
        return widest(self.columns, first, last)

    def beside(self, place: int) -> tuple[int, int]:
        """Between which columns the text of a note stands: its own line and the next one; of the
        last line, the one before and its own."""
        x = self.columns[place]
        if place + 1 < len(self.columns):
            return x, self.columns[place + 1]
        if place:
            return self.columns[place - 1], x
        return x, self._width


def beside(row: Row) -> int:
    """What an arrow needs at least besides its text."""
    return _BESIDE + (LOST if row.is_lost else 0)


def _spans(rows: Sequence[Row], text: Callable[[Row], str]) -> list[Span]:
    return [
        Span(row.source, row.target, min(len(text(row)), _TEXT_MAX) + beside(row) + 1)
        for row in rows
    ]
