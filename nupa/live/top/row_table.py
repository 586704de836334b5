# SPDX-License-Identifier: BSD-3-Clause
"""A table with a cursor, of which only the lines in sight are drawn.

textual's DataTable measures each cell in a later turn of its loop, and may miss that turn when
all rows are replaced each second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from textual import events
    from textual.binding import BindingType

    from nupa.live.top.cell import TopRow

_GAP = "  "
_SHIFT = 8
_HEAD = Style(bold=True, underline=True)
_CURSOR = Style(reverse=True)


class RowTable(Widget, can_focus=True):
    """Rows below a head.  cursor: the number of the row that is marked; it stays with its key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("home", f"move({-(1 << 30)})", show=False),
        Binding("end", f"move({1 << 30})", show=False),
        Binding("right", f"shift({_SHIFT})", show=False),
        Binding("left", f"shift({-_SHIFT})", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []
        self.rows: list[TopRow] = []
        self.cursor = 0
        self._name = ""
        self._top = 0
        self._left = 0
        self._widths: list[int] = []

    def show(self, name: str, columns: list[str], rows: list[TopRow]) -> None:
        """Shows these rows of the table *name*.  The same table keeps its cursor and place."""
        if name != self._name:
            self._name, self.cursor, self._top, self._left = name, 0, 0, 0
        elif self.cursor < len(self.rows):
            key = self.rows[self.cursor].key
            found = (at for at, row in enumerate(rows) if row.key == key)
            self.cursor = next(found, self.cursor)
        self.columns, self.rows = columns, rows
        self._widths = [
            max([len(column), *(len(row.cells[at].text) for row in rows)])
            for at, column in enumerate(columns)
        ]
        self.action_move(0)

    def action_move(self, by: int) -> None:
        self.cursor = max(min(self.cursor + by, len(self.rows) - 1), 0)
        seen = max(self.size.height - 1, 1)
        self._top = max(min(self._top, self.cursor), self.cursor - seen + 1)
        self.refresh()

    def action_page(self, by: int) -> None:
        self.action_move(by * max(self.size.height - 2, 1))

    def action_shift(self, by: int) -> None:
        line = sum(self._widths) + len(_GAP) * len(self._widths)
        self._left = max(min(self._left + by, line - self.size.width), 0)
        self.refresh()

    def on_resize(self) -> None:
        self.action_move(0)

    def on_mouse_scroll_down(self, _: events.MouseScrollDown) -> None:
        self.action_move(1)

    def on_mouse_scroll_up(self, _: events.MouseScrollUp) -> None:
        self.action_move(-1)

    def on_click(self, event: events.Click) -> None:
        if 0 < event.y <= len(self.rows) - self._top:
            self.action_move(self._top + event.y - 1 - self.cursor)

    def render_line(self, y: int) -> Strip:
        at = self._top + y - 1
        if y == 0:
            line, style = self._head(), _HEAD
        elif at < len(self.rows):
            line, style = self._line(self.rows[at]), _CURSOR if at == self.cursor else Style()
        else:
            line, style = "", Style()
        width = self.size.width
        segment = Segment(line[self._left : self._left + width].ljust(width), style)
        return Strip([segment], width).apply_style(self.rich_style)

    def _head(self) -> str:
        row = self.rows[0] if self.rows else None
        return _GAP.join(
            column.rjust(width) if row and row.cells[at].is_number else column.ljust(width)
            for at, (column, width) in enumerate(zip(self.columns, self._widths, strict=True))
        )

    def _line(self, row: TopRow) -> str:
        return _GAP.join(
            cell.text.rjust(width) if cell.is_number else cell.text.ljust(width)
            for cell, width in zip(row.cells, self._widths, strict=True)
        )
