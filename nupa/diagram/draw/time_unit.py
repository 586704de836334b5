# SPDX-License-Identifier: BSD-3-Clause
"""The times of one diagram, all in one unit."""

from __future__ import annotations

_SECOND = 10**9


class TimeUnit:
    """Prints times in ns up to 10 µs, in µs up to 10 s, in ms beyond: times can be compared."""

    def __init__(self, longest_ns: int) -> None:
        self.name, self._size = (
            ("ns", 1)
            if longest_ns < 10_000
            else ("µs", 1_000)
            if longest_ns < 10 * _SECOND
            else ("ms", 1_000_000)
        )

    def text(self, ns: int) -> str:
        """Prints `1 234.567`, without the unit; groups of three digits stand apart."""
        decimals = 0 if self._size == 1 else 3
        return f"{ns / self._size:,.{decimals}f}".replace(",", " ")
