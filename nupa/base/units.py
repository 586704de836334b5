# SPDX-License-Identifier: BSD-3-Clause
"""Times, sizes and numbers formatted for a reader."""

from __future__ import annotations

_TIMES = ((1_000, "ns"), (1_000_000, "µs"), (1_000_000_000, "ms"))
_SECOND = 10**9


def duration(ns: int) -> str:
    """Formats three or four significant digits and a unit.

    >>> [duration(ns) for ns in (0, 999, 1_500, 67_108_864, 2_000_000_000)]
    ['0 ns', '999 ns', '1.50 µs', '67.1 ms', '2.00 s']
    """
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns < 1_000:
        return f"{sign}{ns} ns"
    # A value that would be rounded up to 1000 of a unit is 1.00 of the next.
    unit, size = next(
        ((unit, limit // 1_000) for limit, unit in _TIMES[1:] if ns < limit - limit // 2_000),
        ("s", _SECOND),
    )
    value = ns / size
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{sign}{value:.{decimals}f} {unit}"


class Clock:
    """The times of one diagram in one unit, so that they compare at a glance.

    ns up to 10 µs, µs up to 10 s, then ms.
    """

    def __init__(self, longest_ns: int) -> None:
        self.unit, self._size = (
            ("ns", 1)
            if longest_ns < 10_000
            else ("µs", 1_000)
            if longest_ns < 10 * _SECOND
            else ("ms", 1_000_000)
        )

    def text(self, ns: int) -> str:
        """Formats as `1 234.567`, without the unit, in groups of three digits."""
        decimals = 0 if self._size == 1 else 3
        return f"{ns / self._size:,.{decimals}f}".replace(",", " ")


def size(count: int) -> str:
    """Formats a size exactly where that is short, as `nupa demo` prints it.

    >>> [size(count) for count in (8, 4096, 65_536, 65_537, 1 << 30)]
    ['8 B', '4 KiB', '64 KiB', '65537 B', '1 GiB']
    """
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power and not count % (1 << power):
            return f"{count >> power} {unit}"
    return f"{count} B"


def number(value: int) -> str:
    """Formats a wr_id: small ones as counters, large ones as pointers."""
    return str(value) if value < 1_000_000 else f"{value:#x}"


def qpn(value: int) -> str:
    return f"{value:#08x}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
