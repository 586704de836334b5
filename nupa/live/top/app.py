# SPDX-License-Identifier: BSD-3-Clause
"""`nupa top` on a terminal, by textual."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from nupa.live.top.row_table import RowTable
from nupa.live.top.tables import TABLES
from nupa.live.top.view import TopView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Protocol

    from textual.binding import BindingType

    from nupa.live.snapshot import Snapshot

    class Source(Protocol):
        """Snapshots of which one follows the other: nupa.live.Snapshots."""

        def stream(self, *, lists: Callable[[], bool]) -> AsyncIterator[Snapshot]: ...


_STOPPING = (signal.SIGTERM, signal.SIGHUP)
_HELP = """\
Tab, Shift-Tab   the next table, the one before; 1 to 9, 0, e: that table
s                sort by the next column; behind the last: the fabric's order
r                reverse the order
/                filter: rows with all of these words; Enter keeps, Esc drops it
f                freeze, and go on
arrows, PgUp …   move; Home, End: the first and last row; Left, Right: shift
q, Ctrl-C        quit;  Ctrl-Z: suspend

Rates are per second, with k, M, G for 10^3, 10^6, 10^9.  ERR/s counts
what `nupa show` lists as errors and faults, and discards of the port.
LOAD is the share of the link's nominal speed in its busier direction.
LIMIT is a rate in bytes a second; used/quota where there is a quota.

Any key closes this page."""
_KEYS = dict(zip("1234567890e", TABLES, strict=True))


class _HelpPage(ModalScreen[None]):
    """The page of `?`; any key closes it."""

    def compose(self) -> ComposeResult:
        yield Static(_HELP, id="help", markup=False)

    def on_key(self) -> None:
        self.dismiss()


class TopApp(App[int]):
    """Shows a source of snapshots until it is quit; the result is the exit code."""

    CSS = """
    Screen { layout: vertical; }
    #head, #tables, #foot { height: 1; }
    #head { background: $panel; text-style: bold; }
    RowTable { height: 1fr; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    #filter.shown { display: block; }
    _HelpPage { align: center middle; }
    #help { width: 76; height: auto; max-height: 100%; padding: 0 1; background: $panel; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        # Also where a filter is typed; textual's own Ctrl-C copies, or says how to quit.
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, priority=True),
        Binding("tab", "step(1)", "Table", priority=True),
        Binding("shift+tab", "step(-1)", "Table before", show=False, priority=True),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "drop_filter", "Drop the filter", show=False),
        Binding("f", "freeze", "Freeze"),
        Binding("question_mark", "help", "Help"),
        *(Binding(key, f"go('{name}')", name, show=False) for key, name in _KEYS.items()),
    ]

    def __init__(self, source: Source, view: TopView | None = None) -> None:
        super().__init__()
        self._source = source
        self.view = view or TopView()
        self._lines: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Static(id="tables")
        yield RowTable()
        yield Static(id="foot", markup=False)
        yield Input(placeholder="words that rows must have", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            # The terminal gets its modes back, as after q.
            loop.add_signal_handler(number, self.exit, 128 + number)
        self.query_one(RowTable).focus()
        self._draw()
        self.run_worker(self._follow())

    async def on_unmount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.remove_signal_handler(number)

    async def _follow(self) -> None:
        async for snapshot in self._source.stream(lists=lambda: self.view.table.lists):
            if self.view.put(snapshot):
                self._draw()

    def _draw(self) -> None:
        # Not of the screen on top, which may be the help.
        base = self.screen_stack[0]
        names = " ".join(
            f"[reverse]{name}[/]"
            if name == self.view.table.name
            else f"[@click=app.go('{name}')]{name}[/]"
            for name in TABLES
        )
        lines = {"#head": self.view.head(), "#tables": names, "#foot": self.view.foot()}
        for which, line in lines.items():
            # A terminal far away gets only what has changed.
            if self._lines.get(which) != line:
                base.query_one(which, Static).update(line)
        self._lines = lines
        rows, _ = self.view.rows()
        base.query_one(RowTable).show(self.view.table.name, self.view.columns(), rows)

    def action_go(self, name: str) -> None:
        self.view.go(name)
        self._draw()

    def action_step(self, by: int) -> None:
        self.view.step(by)
        self._draw()

    def action_sort(self) -> None:
        self.view.sort_next()
        self._draw()

    def action_reverse(self) -> None:
        self.view.reverse()
        self._draw()

    def action_freeze(self) -> None:
        self.view.frozen = not self.view.frozen
        self._draw()

    def action_help(self) -> None:
        self.push_screen(_HelpPage())

    def action_filter(self) -> None:
        box = self.query_one(Input)
        box.value = self.view.filter
        box.add_class("shown")
        box.focus()

    def action_drop_filter(self) -> None:
        self.query_one(Input).value = ""
        self._filter("")
        self.on_input_submitted()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter(event.value)

    def _filter(self, words: str) -> None:
        self.view.filter = words
        self._draw()

    def on_input_submitted(self) -> None:
        self.query_one(Input).remove_class("shown")
        self.query_one(RowTable).focus()
