# SPDX-License-Identifier: BSD-3-Clause
"""Draws a diagram as SVG: one file with selectable text, in the reader's light or dark colours.

Equal diagrams give equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from xml.sax.saxutils import escape

from nupa.base.quantity import say_duration
from nupa.core.levels import LEVELS
from nupa.diagram.draw.diagram import Diagram, Row
from nupa.diagram.draw.spacing import Span, widened, widest
from nupa.diagram.draw.time_unit import TimeUnit

# Widths of a character, in pixels: those of the widest usual fonts.
_LABEL, _DETAIL, _TIME, _HEAD, _TITLE = 7.5, 6.7, 7.0, 8.0, 9.5
_MARGIN = 24
_BESIDE = 36  # room of an arrow besides its text
_NOTE = 12  # distance of a note's text from its line
_APART = 18  # between two headings
_LOST = 34  # distance from the end of a lost arrow to its target
_HEAD_LINE, _HEAD_PAD = 17, 12
_ROW, _ROW_DETAIL, _GAP = 36, 48, 38
_LEGEND_STEP = 26

_LIGHT = {
    "bg": "#ffffff",
    "fg": "#1f2328",
    "muted": "#59636e",
    "line": "#d1d9e0",
    "box": "#f6f8fa",
    "queue": "#9a6700",
    "transport": "#0969da",
    "tlp": "#8250df",
    "net": "#1a7f37",
    "cache": "#bc4c00",
    "other": "#59636e",
    "error": "#cf222e",
}
_DARK = {
    "bg": "#0d1117",
    "fg": "#e6edf3",
    "muted": "#9198a1",
    "line": "#3d444d",
    "box": "#151b23",
    "queue": "#d29922",
    "transport": "#4493f8",
    "tlp": "#ab7df8",
    "net": "#3fb950",
    "cache": "#f0883e",
    "other": "#9198a1",
    "error": "#f85149",
}
_LEVELS = tuple(name for name in _LIGHT if name in LEVELS)
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
# Characters that XML 1.0 does not allow (2.2).
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(diagram: Diagram) -> str:
    """Returns the file."""
    return _Drawing(diagram).render()


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text), {'"': "&quot;"})


def _colours(colours: dict[str, str]) -> str:
    rules = [
        f".bg{{fill:{colours['bg']}}}",
        f".fg{{fill:{colours['fg']}}}",
        f".muted{{fill:{colours['muted']}}}",
        f".box{{fill:{colours['box']};stroke:{colours['line']}}}",
        f".life{{stroke:{colours['line']}}}",
        f".halo{{stroke:{colours['bg']}}}",
    ]
    for name in (*_LEVELS, "other", "error"):
        rules.append(f".{name}{{stroke:{colours[name]}}}.{name}-fill{{fill:{colours[name]}}}")
    return "".join(rules)


_STYLE = (
    f"text{{font-family:{_MONO};font-size:12px}}"
    f".title{{font-family:{_SANS};font-size:17px;font-weight:600}}"
    f".sub{{font-family:{_SANS};font-size:13px}}"
    f".name{{font-family:{_SANS};font-size:13px;font-weight:600}}"
    ".label{font-weight:600}.detail,.time{font-size:11px}"
    ".life{stroke-width:1.5}.gap{stroke-dasharray:2 5}"
    ".shaft{stroke-width:1.6;fill:none}.many{stroke-width:1.2;opacity:.45}"
    ".retry{stroke-dasharray:6 4}"
    ".halo{stroke-width:5;stroke-linejoin:round;paint-order:stroke}"
    + _colours(_LIGHT)
    + "@media (prefers-color-scheme:dark){"
    + _colours(_DARK)
    + "}"
)


class _Drawing:
    def __init__(self, diagram: Diagram) -> None:
        self._diagram = diagram
        self._time_unit = TimeUnit(max((row.end_ns for row in diagram.rows), default=0))
        self._parts: list[str] = []
        times = max((len(self._time(row)) for row in diagram.rows), default=0)
        self._times_end = _MARGIN + round(times * _TIME)
        boxes = [
            round(max(len(line) for line in actor.lines) * _HEAD) + 2 * _HEAD_PAD
            for actor in diagram.actors
        ]
        least = [(a + b) // 2 + _APART for a, b in pairwise(boxes)]
        spans = [Span(row.source, row.target, self._needs(row)) for row in diagram.rows]
        gaps = widened(least, spans)
        self._boxes = boxes
        self._x = [self._times_end + 20 + boxes[0] // 2] if boxes else []
        for gap in gaps:
            self._x.append(self._x[-1] + gap)
        right = self._x[-1] + boxes[-1] // 2 if boxes else 0
        notes = [self._needs(row) for row in diagram.rows if row.source == row.target]
        if len(boxes) == 1 and notes:
            right = max(right, self._x[0] + max(notes))
        titles = (len(diagram.title) * _TITLE, *(len(t) * 7.6 for t in self._below()))
        self._width = max(right, *(_MARGIN + round(length) for length in titles)) + _MARGIN

    def _below(self) -> list[str]:
        return [self._diagram.subtitle, *self._diagram.footnotes]

    def _time(self, row: Row) -> str:
        return f"{self._time_unit.text(row.time_ns)} {self._time_unit.name}"

    def _needs(self, row: Row) -> int:
        widths = (len(row.label) * _LABEL, len(row.detail) * _DETAIL)
        return round(max(widths)) + _BESIDE + (_LOST if row.is_lost else 0)

    def render(self) -> str:
        diagram = self._diagram
        self._put_text(_MARGIN, 38, diagram.title, "title fg")
        self._put_text(_MARGIN, 60, diagram.subtitle, "sub muted")
        y = 84
        if diagram.actors:
            lines = max(len(actor.lines) for actor in diagram.actors)
            bottom = y + lines * _HEAD_LINE + 14
            self._rows_and_lines(bottom)
            self._heads(y, bottom)
            y = self._bottom
        y = self._legend(y + 30)
        for note in diagram.footnotes:
            self._put_text(_MARGIN, y, note, "sub muted")
            y += 20
        height = y + 4
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self._width}" height="{height}" '
            f'viewBox="0 0 {self._width} {height}" role="img">\n'
            f"<title>{_text(diagram.title)}</title>\n<desc>{_text(diagram.subtitle)}</desc>\n"
            f"<style>{_STYLE}</style>\n"
            f'<rect class="bg" width="{self._width}" height="{height}"/>\n'
        )
        return head + "\n".join(self._parts) + "\n</svg>\n"

    # --- pieces ---

    def _put(self, part: str) -> None:
        self._parts.append(part)

    def _put_text(self, x: float, y: float, text: str, of: str, anchor: str = "start") -> None:
        where = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._put(f'<text x="{x:g}" y="{y:g}" class="{of}"{where}>{_text(text)}</text>')

    def _line(self, x1: float, y1: float, x2: float, y2: float, of: str) -> None:
        self._put(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{of}"/>')

    def _heads(self, top: int, bottom: int) -> None:
        for x, width, actor in zip(self._x, self._boxes, self._diagram.actors, strict=True):
            radius = 8 if actor.kind in ("program", "host") else 3
            self._put(
                f'<rect x="{x - width / 2:g}" y="{top}" width="{width}" height="{bottom - top}" '
                f'rx="{radius}" class="box"/>'
            )
            height = len(actor.lines) * _HEAD_LINE
            y = top + (bottom - top - height) // 2 + 13
            for i, line in enumerate(actor.lines):
                style = "name fg" if i == 0 else "detail muted"
                self._put_text(x, y + i * _HEAD_LINE, line, style, "middle")

    def _rows_and_lines(self, top: int) -> None:
        """Rows, over the lines of the actors, which are known to end where they end only then."""
        before, self._parts = self._parts, []
        start, y = top, top + 8
        lines: list[tuple[int, int, str]] = []
        for row in self._diagram.rows:
            if row.gap_ns:
                lines += [(start, y + 6, "life"), (y + 6, y + _GAP - 6, "life gap")]
                start = y + _GAP - 6
                self._gap(row.gap_ns, y + _GAP // 2)
                y += _GAP
            at = y + 22
            self._put_text(self._times_end, at + 4, self._time(row), "time muted", "end")
            self._row(row, at)
            y += _ROW_DETAIL if row.detail and row.source != row.target else _ROW
        self._bottom = y + 8
        lines.append((start, self._bottom, "life"))
        rows, self._parts = self._parts, before
        for x in self._x:
            for first, last, style in lines:
                self._line(x, first, x, last, style)
        self._parts += rows

    def _gap(self, gap_ns: int, y: int) -> None:
        left, right = widest(self._x, 0, len(self._x) - 1)
        self._put_text(
            (left + right) / 2, y + 4, f"⋯ {say_duration(gap_ns)} ⋯", "muted halo", "middle"
        )

    def _row(self, row: Row, y: int) -> None:
        level = row.level if row.level in _LEVELS else "other"
        colour = "error" if row.is_error or row.is_lost else level
        if row.source == row.target:
            self._note(row, y, colour)
            return
        x1, x2 = self._x[row.source], self._x[row.target]
        forward = 1 if x1 < x2 else -1
        end = x2 - forward * (_LOST if row.is_lost else 1)
        style = f"shaft {colour}{' retry' if row.is_retry else ''}"
        if row.count > 1:
            for off in (-3, 3):
                self._line(x1 + forward * 3, y + off, end - forward * 11, y + off, f"many {colour}")
        self._line(x1, y, end - (0 if row.is_lost else forward * 8), y, style)
        self._put(f'<circle cx="{x1}" cy="{y}" r="2.5" class="{colour}-fill"/>')
        for place in row.seen:
            self._put(f'<circle cx="{self._x[place]}" cy="{y}" r="3.5" class="{colour}-fill"/>')
        if row.is_lost:
            for slope in (5, -5):
                self._line(end - 5, y - slope, end + 5, y + slope, f"shaft {colour}")
        else:
            self._put(f'<path d="M{end} {y}l{-9 * forward} -4.5v9z" class="{colour}-fill"/>')
        left, right = widest(self._x, *sorted((row.source, row.target)))
        if row.is_lost:
            left, right = sorted((x1, end))
        middle = (left + right) / 2
        self._put_text(middle, y - 7, row.label, f"label {colour}-fill halo", "middle")
        if row.detail:
            self._put_text(middle, y + 15, row.detail, "detail muted halo", "middle")

    def _note(self, row: Row, y: int, colour: str) -> None:
        x = self._x[row.source]
        self._put(f'<circle cx="{x}" cy="{y}" r="4" class="{colour}-fill"/>')
        is_last = row.source and row.source == len(self._x) - 1
        at, anchor = (x - _NOTE, "end") if is_last else (x + _NOTE, "start")
        style = f"label {colour}-fill halo"
        self._put_text(at, y + (0 if row.detail else 4), row.label, style, anchor)
        if row.detail:
            self._put_text(at, y + 14, row.detail, "detail muted halo", anchor)

    def _legend(self, y: int) -> int:
        """Returns the legend: the colours and lines that occur."""
        rows = self._diagram.rows
        x: float = _MARGIN
        for name, colour, style in self._kinds(rows):
            if style == "seen":
                self._put(f'<circle cx="{x + 12:g}" cy="{y - 4}" r="3.5" class="{colour}-fill"/>')
            else:
                self._line(x, y - 4, x + 24, y - 4, f"shaft {colour} {style}".rstrip())
            if style == "lost":
                for slope in (4, -4):
                    self._line(x + 20, y - 4 - slope, x + 28, y - 4 + slope, f"shaft {colour}")
            x += 36 if style == "lost" else 32
            self._put_text(x, y, name, "detail muted")
            x += len(name) * _DETAIL + _LEGEND_STEP
        return y + 22

    def _kinds(self, rows: Iterable[Row]) -> list[tuple[str, str, str]]:
        levels = {row.level for row in rows}
        found = [(name, name, "") for name in _LEVELS if name in levels]
        rows = self._diagram.rows
        if any(row.is_retry for row in rows):
            found.append(("sent again", "transport", "retry"))
        if any(row.is_lost for row in rows):
            found.append(("lost", "error", "lost"))
        if any(row.is_error for row in rows):
            found.append(("refused or failed", "error", ""))
        if any(row.seen for row in rows):
            found.append(("seen on its way", "transport", "seen"))
        return found
