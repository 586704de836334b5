# SPDX-License-Identifier: BSD-3-Clause
"""Draws a diagram as text, in Unicode or ASCII."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from nupa.base.quantity import say_duration
from nupa.diagram.draw.diagram import Diagram, Row
from nupa.diagram.draw.text_layout import LOST, TextLayout, beside, broken
from nupa.diagram.draw.time_unit import TimeUnit

WIDTH_MIN, WIDTH_MAX = 80, 200


@dataclass(frozen=True)
class Glyphs:
    """The characters of a diagram.  *dash*, *retry*: two that alternate."""

    line: str
    dash: str
    retry: str
    right: str
    left: str
    from_right: str
    from_left: str
    across: str
    seen: str
    note: str
    lost: str
    gap: str
    dots: str
    rule: str
    root: str


UNICODE = Glyphs("│", "──", "╌╌", "►", "◄", "├", "┤", "┼", "●", "●", "✗", "┊", "⋯", "─", "┬")
ASCII = Glyphs("|", "--", "- ", ">", "<", "|", "|", "+", "o", "*", "x", ":", "...", "-", "+")
_TO_ASCII = str.maketrans({"×": "x", "µ": "u", "→": "->"})

# SGR codes by what is drawn; only for a terminal.
_COLOURS = {
    "time": "2",
    "line": "2",
    "head": "1",
    "queue": "33",
    "transport": "36",
    "tlp": "35",
    "net": "32",
    "cache": "34",
    "retry": "33;1",
    "error": "31;1",
    "gap": "2",
}


class _Canvas:
    """One line of text, each character with the name of its colour."""

    def __init__(self) -> None:
        self._cells: list[str] = []
        self._styles: list[str] = []

    def put(self, at: int, text: str, style: str = "") -> None:
        end = at + len(text)
        missing = end - len(self._cells)
        if missing > 0:
            self._cells += " " * missing
            self._styles += [""] * missing
        self._cells[at:end] = text
        self._styles[at:end] = [style] * len(text)

    def render(self, colour: bool) -> str:
        text = "".join(self._cells)
        length = len(text.rstrip())
        if not colour:
            return text[:length]
        parts, before = [], ""
        for cell, style in zip(text[:length], self._styles, strict=False):
            if style != before:
                parts.append(f"\x1b[0;{_COLOURS[style]}m" if style in _COLOURS else "\x1b[0m")
                before = style
            parts.append(cell)
        return "".join([*parts, "\x1b[0m" if before else ""])


def render(
    diagram: Diagram, *, width: int = 100, glyphs: Glyphs = UNICODE, colour: bool = False
) -> str:
    """Draws the diagram below a heading, *width* characters wide, WIDTH_MIN to WIDTH_MAX."""
    return _TextDrawing(diagram, min(max(width, WIDTH_MIN), WIDTH_MAX), glyphs, colour).render()


class _TextDrawing:
    def __init__(self, diagram: Diagram, width: int, glyphs: Glyphs, colour: bool) -> None:
        self._diagram = diagram
        self._glyphs = glyphs
        self._colour = colour
        self._time_unit = TimeUnit(max((row.end_ns for row in diagram.rows), default=0))
        times = [self._time(row) for row in diagram.rows]
        self._time_width = max(map(len, times), default=0)
        self._width = width
        self._layout = TextLayout(diagram, self._time_width + 2, width)
        self._x = self._layout.columns

    def _time(self, row: Row) -> str:
        return f"{self._time_unit.text(row.time_ns)} {self._time_unit.name}"

    def render(self) -> str:
        diagram = self._diagram
        lines = [self._plain(diagram.title, "head")]
        lines += [self._plain(text) for text in wrap(diagram.subtitle, self._width)]
        if diagram.rows:
            lines += ["", *(canvas.render(self._colour) for canvas in self._heading())]
        for row in diagram.rows:
            canvases = [*([self._gap(row.gap_ns)] if row.gap_ns else []), *self._row(row)]
            lines += [canvas.render(self._colour) for canvas in canvases]
        if diagram.footnotes:
            lines += ["", *diagram.footnotes]
        text = "\n".join(lines)
        return to_ascii(text) if self._glyphs is ASCII else text

    def _plain(self, text: str, style: str = "") -> str:
        canvas = _Canvas()
        canvas.put(0, text, style)
        return canvas.render(self._colour)

    def _heading(self) -> list[_Canvas]:
        names = self._layout.headings
        height = max(len(lines) for lines in names)
        canvases = [_Canvas() for _ in range(height + 1)]
        for x, lines in zip(self._x, names, strict=True):
            for canvas, text in zip(canvases[height - len(lines) :], lines, strict=False):
                canvas.put(x - (len(text) - 1) // 2, text, "head")
            longest = max(map(len, lines))
            rule = self._glyphs.rule * longest
            canvases[-1].put(x - (longest - 1) // 2, rule, "line")
            canvases[-1].put(x, self._glyphs.root, "line")
        return canvases

    def _lifelines(self, glyph: str) -> _Canvas:
        canvas = _Canvas()
        for x in self._x:
            canvas.put(x, glyph, "line")
        return canvas

    def _gap(self, gap_ns: int) -> _Canvas:
        canvas = self._lifelines(self._glyphs.gap)
        text = f" {self._glyphs.dots} {say_duration(gap_ns)} {self._glyphs.dots} "
        left, right = self._layout.widest(0, len(self._x) - 1)
        at = left + 1 + max((right - left - 1 - len(text)) // 2, 0) if right > left else left + 1
        canvas.put(at, text, "gap")
        return canvas

    def _row(self, row: Row) -> list[_Canvas]:
        style = row.level
        if row.is_error or row.is_lost:
            style = "error"
        elif row.is_retry:
            style = "retry"
        draw = self._note if row.source == row.target else self._arrow
        canvases = draw(row, style)
        canvases[0].put(0, self._time(row).rjust(self._time_width), "time")
        return canvases

    def _note(self, row: Row, style: str) -> list[_Canvas]:
        """Draws a record at one actor, beside its line."""
        x = self._x[row.source]
        left, right = self._layout.beside(row.source)
        lines = broken(row.text, right - left - 3)
        canvases = []
        for i, text in enumerate(lines):
            canvas = self._lifelines(self._glyphs.line)
            if i == 0:
                canvas.put(x, self._glyphs.note, style)
            canvas.put(x + 2 if left == x else x - 1 - len(text), text, style)
            canvases.append(canvas)
        return canvases

    def _arrow(self, row: Row, style: str) -> list[_Canvas]:
        """Draws an arrow, with its text inside if it fits, else around."""
        left, right = sorted((self._x[row.source], self._x[row.target]))
        room = right - left - 1 - beside(row)
        stretch = self._layout.widest(*sorted((row.source, row.target)))
        clear = stretch[1] - stretch[0] - 1 - beside(row)
        above: list[str] = []
        below: list[str] = []
        inside = row.text
        if len(inside) > room or len(row.label) <= clear < len(inside):
            inside = row.label
            below = broken(row.detail, right - left - 3)
        if len(inside) > room:
            inside = ""
            above = broken(row.label, right - left - 3)
        canvases = [self._text_line(text, left, right, style) for text in above]
        canvas = self._lifelines(self._glyphs.line)
        self._shaft(canvas, row, left, right, style)
        if inside:
            self._put_inside(canvas, row, inside, style)
        canvases.append(canvas)
        return canvases + [self._text_line(text, left, right, style) for text in below]

    def _put_inside(self, canvas: _Canvas, row: Row, text: str, style: str) -> None:
        """Puts text in the middle of the arrow's widest stretch, or of all of it."""
        places = sorted((row.source, row.target))
        forward = row.source < row.target
        start, end = self._layout.widest(*places)
        if len(text) > end - start - 1 - beside(row) or row.is_lost:
            start, end = (self._x[place] for place in places)
        if row.is_lost:
            start, end = (start, end - LOST) if forward else (start + LOST, end)
        at = start + 1 + (end - start - 1 - len(text) + (not forward)) // 2
        canvas.put(at - 1, f" {text} ", style)

    def _text_line(self, text: str, left: int, right: int, style: str) -> _Canvas:
        canvas = self._lifelines(self._glyphs.line)
        at = left + 1 + max((right - left - 1 - len(text)) // 2, 0)
        canvas.put(at - 1 if at - 1 > left else at, f" {text} " if at - 1 > left else text, style)
        return canvas

    def _shaft(self, canvas: _Canvas, row: Row, left: int, right: int, style: str) -> None:
        glyphs = self._glyphs
        forward = row.source < row.target
        pattern = glyphs.retry if row.is_retry else glyphs.dash
        inner = right - left - 1
        shaft = (pattern * inner)[:inner]
        canvas.put(left + 1, shaft, style)
        for place in range(min(row.source, row.target) + 1, max(row.source, row.target)):
            mark = glyphs.seen if place in row.seen else glyphs.across
            canvas.put(self._x[place], mark, style)
        canvas.put(left if forward else right, glyphs.from_right if forward else glyphs.from_left)
        if row.is_lost:  # the arrow ends before its target
            at = right - LOST if forward else left + LOST
            self._blank(canvas, *((at + 1, right) if forward else (left + 1, at)))
            canvas.put(at, glyphs.lost, style)
        else:
            canvas.put(
                right - 1 if forward else left + 1, glyphs.right if forward else glyphs.left, style
            )

    def _blank(self, canvas: _Canvas, start: int, end: int) -> None:
        canvas.put(start, " " * (end - start))
        for x in self._x:
            if start <= x < end:
                canvas.put(x, self._glyphs.line, "line")


def to_ascii(text: str) -> str:
    return text.translate(_TO_ASCII)


def glyphs_for(encoding: str | None) -> Glyphs:
    """Returns the glyphs that an output of this encoding can print."""
    try:
        "".join((*vars(UNICODE).values(), "×µ→")).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE
