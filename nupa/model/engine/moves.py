# SPDX-License-Identifier: BSD-3-Clause
"""Measured moves: where a profile has the table `moves`, times of messages come from it by size.

A processor copies with a rate that depends on the size: its caches have several levels.  So a
fabric whose mover is a processor has a measured curve where others have a rate.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from nupa.model.profile.profile import Profile

TABLE = "moves"
#: The row of each operation; atomics and flushes take what a read takes.
ROWS = {"write": "write", "send": "send", "read": "read", "atomic": "read", "flush": "read"}
#: A row's last word: the post alone, until the requester has the completion, between two.
POST, BACK, STREAM = "post", "back", "stream"


class MeasuredMove(NamedTuple):
    """One message, in ns.

    *post*: the program is busy.  *whole*: until the target sees the message, or the requester the
    answer.  *back*: from the post's return until the requester sees its completion.  *stream*: from
    one message to the next where many are in flight.
    """

    post: float
    whole: float
    back: float
    stream: float


def move_of(profile: Profile, operation: str, size_bytes: int) -> MeasuredMove | None:
    """Returns the measured move; None: the profile has none for that operation."""
    row = ROWS.get(operation)
    if TABLE not in profile.tables or row is None:
        return None
    table = profile.tables[TABLE]
    names = (row, f"{row} {POST}", f"{row} {BACK}", f"{row} {STREAM}")
    if not all(name in table.rows for name in names):
        return None
    sizes = _sizes(table.columns)
    whole, post, back, stream = (between(sizes, table.rows[name], size_bytes) for name in names)
    return MeasuredMove(min(post, whole), whole, back, stream)


@lru_cache
def _sizes(columns: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(float(size) for size in columns)


def between(sizes: Sequence[float], cells: Sequence[float], size_bytes: float) -> float:
    """Returns the cell for a size: on the line between two, or on the last one continued.

    >>> between((8.0, 16.0, 32.0), (10.0, 20.0, 60.0), 12)
    15.0
    >>> between((8.0, 16.0, 32.0), (10.0, 20.0, 60.0), 64)
    140.0
    """
    if size_bytes <= sizes[0] or len(sizes) == 1:
        return cells[0]
    place = min(bisect_right(sizes, size_bytes), len(sizes) - 1)
    share = (size_bytes - sizes[place - 1]) / (sizes[place] - sizes[place - 1])
    return cells[place - 1] + share * (cells[place] - cells[place - 1])
