# SPDX-License-Identifier: BSD-3-Clause
"""Tables: numbers of one dimension by row and column, with one unit, source and confidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nupa.model.errors import ModelError
from nupa.model.profile.figure import UNITS, Confidence, FigureKind
from nupa.model.profile.kinds import TABLES

OTHER = "other"


@dataclass(frozen=True)
class FigureTable:
    """Cells are in the dimension's own unit; *fitted* names the files that cells were fitted to.

    A row's name is a word, or several: `"ring nvlink4"`.
    """

    name: str
    kind: FigureKind
    unit: str
    source: str
    confidence: Confidence
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
    fitted: tuple[str, ...] = ()
    _found: dict[tuple[str, ...], Mapping[str, float]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def row(self, *words: str) -> Mapping[str, float]:
        """Returns the cells of the row for *words* by column.

        A row of a base fabric serves its variants: "nvlink5" serves "nvlink5-nvl72".  The last word
        may be replaced by "other", or left out.  ModelError: there is no such row.
        """
        found = self._found.get(words)
        if found is None:
            found = self._found[words] = self._row(words)
        return found

    def _row(self, words: tuple[str, ...]) -> Mapping[str, float]:
        *head, last = words
        parts = last.split("-")
        lasts = ["-".join(parts[:length]) for length in range(len(parts), 0, -1)]
        for name in (*(" ".join((*head, each)) for each in (*lasts, OTHER)), " ".join(head)):
            if name in self.rows:
                return dict(zip(self.columns, self.rows[name], strict=True))
        raise ModelError(
            f"table {self.name} has no row for {' '.join(words)!r}: it has {', '.join(self.rows)}"
        )

    def values(self, *words: str) -> tuple[float, ...]:
        """Returns the cells of the row for *words* in order."""
        return tuple(self.row(*words).values())

    def shown(self) -> dict[str, Any]:
        """Returns it as the file has it, for `--json`."""
        scale = UNITS[self.kind.dimension][self.unit]
        shown: dict[str, Any] = {
            "meaning": self.kind.meaning,
            "unit": self.unit,
            "source": self.source,
            "confidence": self.confidence,
            "columns": list(self.columns),
            "rows": {name: [cell / scale for cell in row] for name, row in self.rows.items()},
        }
        return shown | ({"fitted": list(self.fitted)} if self.fitted else {})


def read(name: str, entry: Mapping[str, Any], source: str) -> FigureTable:
    """Converts a table of a file.  ModelError: its unit, or the length of a row, is wrong."""
    kind = TABLES[name]
    scale = UNITS[kind.dimension].get(entry["unit"])
    if scale is None:
        units = ", ".join(UNITS[kind.dimension])
        raise ModelError(f"{source}: {name}: the unit is {entry['unit']!r}: one of {units}")
    for row, cells in entry["rows"].items():
        if len(cells) != len(entry["columns"]):
            raise ModelError(
                f"{source}: {name}: row {row!r} has {len(cells)} cells: "
                f"there are {len(entry['columns'])} columns"
            )
    return FigureTable(
        name,
        kind,
        entry["unit"],
        entry["source"],
        entry["confidence"],
        tuple(entry["columns"]),
        {row: tuple(cell * scale for cell in cells) for row, cells in entry["rows"].items()},
        tuple(entry.get("fitted", ())),
    )
