# SPDX-License-Identifier: BSD-3-Clause
"""Cells of tables: a text to show and a value to sort by."""

from __future__ import annotations

from typing import NamedTuple

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_NONE = "-"


class Cell(NamedTuple):
    """A cell.  value: a number, or a text; numbers sort before texts and stand on the right."""

    text: str
    value: float | str

    @property
    def is_number(self) -> bool:
        return not isinstance(self.value, str)

    @property
    def order(self) -> tuple[bool, float, str]:
        """A key by which cells of one column sort, whatever they are."""
        if isinstance(self.value, str):
            return True, 0.0, self.value
        return False, self.value, ""


class TopRow(NamedTuple):
    """A row: a key that no other row of the table has, and its cells."""

    key: str
    cells: tuple[Cell, ...]

    def has(self, words: str) -> bool:
        """Tells whether each of the words is in one of the cells; case does not matter."""
        line = " ".join(cell.text for cell in self.cells).casefold()
        return all(word in line for word in words.casefold().split())


def text(value: object) -> Cell:
    """Returns a cell of a text; "-" for none."""
    said = "" if value is None else str(value)
    return Cell(said or _NONE, said)


def count(value: int) -> Cell:
    """Returns a cell of a whole number, as it is."""
    return Cell(str(value), value)


def amount(value: float) -> Cell:
    """Returns a cell of a number with three digits and a prefix of SI; "-" for 0."""
    return Cell(say_amount(value) if value else _NONE, value)


def share(value: float) -> Cell:
    """Returns a cell of a share in per cent; "-" for 0."""
    return Cell(f"{value:.1%}" if value else _NONE, value)


def say_amount(value: float) -> str:
    """Returns three digits and a prefix of SI.

    >>> [say_amount(value) for value in (0, 7, 0.25, 1234, 999_999, 12.5e9)]
    ['0', '7', '0.25', '1.23k', '1M', '12.5G']
    """
    power = 0
    while abs(value) >= 999.5 and power < len(_PREFIXES) - 1:
        value /= 1000
        power += 1
    return f"{value:.3g}{_PREFIXES[power]}"
