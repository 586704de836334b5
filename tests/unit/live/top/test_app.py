# SPDX-License-Identifier: BSD-3-Clause
"""`nupa top` driven by textual's pilot, on small and large terminals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from nupa.fabric import Fabric, Fault
from nupa.live import Snapshot, take
from nupa.live.top.app import TopApp
from nupa.live.top.row_table import RowTable
from nupa.live.top.tables import TABLES
from nupa.topology.file import load
from nupa.verbs import Context

DEADLINE_S = 50.0
SIZES = [(80, 24), (200, 50)]


class Fed:
    """A source of the snapshots that the test gives to it."""

    def __init__(self) -> None:
        self._given: asyncio.Queue[Snapshot] = asyncio.Queue()
        self.lists: Callable[[], bool] = lambda: False
        self.given = self.shown = 0

    async def stream(self, *, lists: Callable[[], bool]) -> AsyncIterator[Snapshot]:
        self.lists = lists
        while True:
            yield await self._given.get()
            self.shown += 1

    def give(self, snapshot: Snapshot) -> None:
        self.given += 1
        self._given.put_nowait(snapshot)


class Top:
    """The program under test, with what is on its screen."""

    def __init__(self, source: Fed, app: TopApp, pilot: Pilot[int]) -> None:
        self.source, self.app, self.pilot = source, app, pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def give(self, snapshot: Snapshot) -> None:
        self.source.give(snapshot)
        await self.until(lambda: self.source.shown == self.source.given)

    async def until(self, done: Callable[[], bool]) -> None:
        """Waits for what the program does by itself."""
        end = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < end, "\n".join(self.screen)
            await self.pilot.pause()

    @property
    def table(self) -> RowTable:
        return self.app.screen_stack[0].query_one(RowTable)

    @property
    def columns(self) -> list[str]:
        return self.table.columns

    def column(self, at: int) -> list[str]:
        return [row.cells[at].text for row in self.table.rows]

    def line(self, of: str) -> str:
        return str(self.app.screen_stack[0].query_one(of, Static).render())

    @property
    def screen(self) -> list[str]:
        """The lines of the terminal."""
        width, height = self.app.size
        strips = self.app.screen._compositor.render_strips()
        lines = ["".join(segment.text for segment in strip) for strip in strips]
        assert len(lines) == height
        assert {len(line) for line in lines} == {width}
        return lines


def drive(test: Callable[[Top], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> int | None:
    """Runs the test with the program; returns its exit code."""

    async def run() -> int | None:
        source = Fed()
        app = TopApp(source)
        async with app.run_test(size=size) as pilot:
            await test(Top(source, app, pilot))
        return app.return_value

    return asyncio.run(run())


@pytest.fixture(scope="module")
def quiet() -> Snapshot:
    """A fabric of 24 hosts without traffic."""
    with Fabric(topology=load("gpu24")) as fabric:
        return take(fabric)


@pytest.fixture(scope="module")
def busy() -> Snapshot:
    """The same, with a program on one host, a fault, and a link that is down."""
    with Fabric(topology=load("gpu24")) as fabric, Context(fabric=fabric, host=3):
        fabric.set_port("gpu5", False)
        fabric.add_fault("gpu2", Fault("drop", probability="1%", seed=1))
        return take(fabric)


@pytest.mark.parametrize("size", SIZES)
def test_each_table_fits_its_terminal(busy: Snapshot, size: tuple[int, int]) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        for name, table in TABLES.items():
            assert top.app.view.table.name == name
            assert top.columns == list(table.columns)
            # The footer comes a turn later.
            await top.until(lambda: "Quit" in top.screen[-1])
            lines = top.screen
            assert busy.fabric["name"] in lines[0]
            assert all(other in lines[1] for other in TABLES)
            assert table.columns[0] in lines[2]
            assert "Filter" in lines[-1]
            await top.press("tab")
        assert top.app.view.table.name == "Hosts"
        await top.press("shift+tab")
        assert top.app.view.table.name == "Events"

    drive(test, size)


def test_hosts_show_state_and_programs(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        assert top.column(0) == [f"gpu{number}" for number in range(24)]
        assert top.column(1)[4:6] == ["ACTIVE", "DOWN"]
        assert top.column(3)[2:5] == ["0", "1", "0"]
        assert "1 faults" in top.line("#head")

    drive(test)


def test_a_key_goes_to_its_table(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        for key, name in zip("1234567890e", TABLES, strict=True):
            await top.press(key)
            assert top.app.view.table.name == name
        await top.press("8")
        assert top.column(2) == ["drop"]

    drive(test)


def test_a_click_on_a_name_goes_to_that_table(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        at = top.screen[1].index("Faults") + 1
        await top.pilot.click("#tables", offset=(at, 0))
        assert top.app.view.table.name == "Faults"

    drive(test)


def test_lists_are_asked_for_by_the_tables_that_show_them(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        wanted = []
        for key in "1234567890e":
            await top.press(key)
            if top.source.lists():
                wanted.append(top.app.view.table.name)
        assert wanted == ["QPs", "MRs"]

    drive(test)


def test_sorting_goes_through_the_columns_and_back(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        natural = top.column(0)
        await top.press("s")
        assert top.columns[0] == "HOST ▲"
        assert top.column(0) == sorted(natural)
        await top.press("r")
        assert top.columns[0] == "HOST ▼"
        assert top.column(0) == sorted(natural, reverse=True)
        await top.press("s", "s", "s")
        assert top.columns[3] == "PROGS ▼"  # numbers begin with the largest
        assert top.column(0)[0] == "gpu3"
        for _ in range(len(top.columns) - 3):
            await top.press("s")
        assert top.columns[0] == "HOST"
        assert top.column(0) == natural

    drive(test)


def test_a_filter_leaves_rows_with_all_of_its_words(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        await top.press("slash", *"DOWN", "space", *"gpu5")
        assert top.column(0) == ["gpu5"]
        await top.press("enter")
        assert not top.app.query_one(Input).has_class("shown")
        assert "1 rows with 'DOWN gpu5'" in top.line("#foot")
        await top.press("s")  # a key again, not a letter of the filter
        assert top.columns[0] == "HOST ▲"
        await top.press("escape")
        assert len(top.column(0)) == 24

    drive(test)


def test_letters_of_a_filter_are_no_keys(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        await top.press("slash", *"qsfr1e?")
        assert top.app.query_one(Input).value == "qsfr1e?"
        assert top.app.view.table.name == "Hosts"
        assert not top.app.view.frozen
        assert top.column(0) == []

    drive(test)


def test_a_frozen_table_stays_until_it_goes_on(quiet: Snapshot, busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(quiet)
        await top.press("f")
        assert "FROZEN" in top.line("#head")
        await top.give(busy)
        assert "DOWN" not in top.column(1)
        await top.press("f")
        await top.give(busy)
        assert "DOWN" in top.column(1)
        assert "FROZEN" not in top.line("#head")

    drive(test)


def test_the_cursor_stays_at_its_row(quiet: Snapshot, busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(quiet)
        await top.press(*["down"] * 5)
        assert top.table.cursor == 5
        await top.give(busy)
        assert top.table.cursor == 5
        await top.press("s", "r")  # by name, the last first
        assert top.column(0)[top.table.cursor] == "gpu5"

    drive(test)


def test_help_is_on_any_terminal_and_any_key_closes_it(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        await top.press("question_mark")
        await top.until(lambda: "Shift-Tab" in "\n".join(top.screen))
        text = "\n".join(top.screen)
        assert "Shift-Tab" in text
        assert "Any key closes this page." in text
        await top.give(busy)  # snapshots come meanwhile
        await top.press("x")
        assert len(top.app.screen_stack) == 1

    drive(test)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_quitting_is_no_error(busy: Snapshot, key: str) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        await top.press(key)

    assert not drive(test)


def test_control_c_quits_while_a_filter_is_typed(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        await top.give(busy)
        await top.press("slash", "a", "ctrl+c")
        assert not top.app.is_running

    drive(test)


def test_a_fabric_that_is_gone_says_so(busy: Snapshot) -> None:
    async def test(top: Top) -> None:
        assert "waiting" in top.line("#head")
        await top.give(busy)
        lists = {key: [] for key, value in busy.fabric.items() if isinstance(value, list)}
        gone = busy._replace(
            fabric={"name": "lab", "generation": "", **lists}, error="no fabric is named 'lab'"
        )
        await top.give(gone)
        assert "no fabric is named 'lab'" in top.line("#head")
        assert top.column(0) == []

    drive(test)


def test_thousands_of_rows_are_cut_and_said(busy: Snapshot) -> None:
    qp = {
        "host": "gpu0",
        "pid": 1,
        "comm": "x",
        "slot": 1,
        "type": "RC",
        "state": "RTS",
        "partner": None,
        "mover": "[bold]cma",  # no markup
    }
    many = [qp | {"number": number} for number in range(2000)]

    async def test(top: Top) -> None:
        await top.give(busy._replace(fabric=busy.fabric | {"qps": many}))
        await top.press("4")
        assert len(top.table.rows) == 500
        assert "500 of 2000 rows" in top.line("#foot")
        assert top.column(6)[0] == "[bold]cma"

    drive(test)
