# SPDX-License-Identifier: BSD-3-Clause
"""The choice of what is seen: table, order, filter, and whether it is frozen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nupa.live.rates import TrafficRate
from nupa.live.top.cell import say_amount
from nupa.live.top.tables import TABLES

if TYPE_CHECKING:
    from nupa.live.snapshot import Snapshot
    from nupa.live.top.cell import TopRow
    from nupa.live.top.tables import TopTable

#: More rows than anyone reads take longer to draw than a second.
ROWS_MAX = 500
_NAMES = tuple(TABLES)


class TopView:
    """What is seen of the latest snapshot, without a terminal."""

    def __init__(self, table: str = _NAMES[0]) -> None:
        self.table: TopTable = TABLES[table]
        self.filter = ""
        self.frozen = False
        self.snapshot: Snapshot | None = None
        # Of each table by its name: a column, and whether the largest is first.
        self._orders: dict[str, tuple[int, bool]] = {}

    def put(self, snapshot: Snapshot) -> bool:
        """Takes a snapshot; returns whether it is to be shown."""
        if self.frozen and self.snapshot is not None:
            return False
        self.snapshot = snapshot
        return True

    def go(self, table: str) -> None:
        self.table = TABLES[table]

    def step(self, by: int) -> None:
        """Goes to the table after this one, or before it; the last is followed by the first."""
        self.go(_NAMES[(_NAMES.index(self.table.name) + by) % len(_NAMES)])

    @property
    def order(self) -> tuple[int, bool] | None:
        """The column to sort by, and whether the largest is first; None: as the fabric has it."""
        return self._orders.get(self.table.name)

    def sort_next(self) -> None:
        """Sorts by the next column; behind the last one the fabric's order follows.

        Numbers begin with the largest, texts with the first.
        """
        column = self.order[0] + 1 if self.order else 0
        if column >= len(self.table.columns):
            self._orders.pop(self.table.name, None)
            return
        cells = [row.cells[column] for row in self._all()]
        largest_first = any(cell.is_number for cell in cells)
        self._orders[self.table.name] = column, largest_first

    def reverse(self) -> None:
        """Turns the order round; without one, sorts by the first column."""
        if self.order is None:
            self.sort_next()
        elif self.order:
            column, largest_first = self.order
            self._orders[self.table.name] = column, not largest_first

    def _all(self) -> list[TopRow]:
        return list(self.table.rows(self.snapshot)) if self.snapshot else []

    def rows(self) -> tuple[list[TopRow], int]:
        """Returns the rows to show, and how many there are with those behind ROWS_MAX."""
        found = [row for row in self._all() if row.has(self.filter)]
        if self.order:
            column, largest_first = self.order
            found.sort(key=lambda row: row.cells[column].order, reverse=largest_first)
        return found[:ROWS_MAX], len(found)

    def columns(self) -> list[str]:
        """Returns the heads of the columns; the one to sort by has an arrow."""
        heads = list(self.table.columns)
        if self.order:
            column, largest_first = self.order
            heads[column] += " ▼" if largest_first else " ▲"
        return heads

    def head(self) -> str:
        """Returns a line about the whole fabric."""
        found = self.snapshot
        if found is None:
            return "waiting for the first snapshot"
        at = time.strftime("%X", time.localtime(found.time_ns / 1e9))
        if found.error:
            return f"{at}  {found.error}"
        rate = TrafficRate()
        for host in (found.rates.hosts if found.rates else {}).values():
            rate = rate.plus(host)
        active = sum(not fault["ended"] for fault in found.fabric["faults"])
        parts = [
            f"{found.fabric['name']}: {len(found.fabric['hosts'])} hosts",
            f"{say_amount(rate.xmit_bytes)}B/s",
            f"{say_amount(rate.xmit_packets)}pkt/s",
            f"{say_amount(rate.errors)} err/s",
            *([f"{active} faults"] if active else []),
            at,
        ]
        return "  ".join(parts) + ("  FROZEN" if self.frozen else "")

    def foot(self) -> str:
        """Returns a line about the rows: how many, and which filter; empty if all are seen."""
        rows, count = self.rows()
        if self.filter:
            return f"{count} rows with {self.filter!r}; Esc shows all"
        if len(rows) < count:
            return f"{len(rows)} of {count} rows; / filters"
        return "" if rows else f"{self.table.name}: none"
