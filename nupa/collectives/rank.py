# SPDX-License-Identifier: BSD-3-Clause
"""Ranks: their limits and states, their rows on a board, their errors, and their memory's end."""

from __future__ import annotations

import errno
import time
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING

from nupa.base.errors import LocalError, NupaError, RemoteError

if TYPE_CHECKING:
    from nupa.memory.group import Group
    from nupa.memory.region import Region

RANKS_MAX = 64
NAME_BYTES_MAX = 25
HEAD_BYTES = 64  # of a board: ready, the number of ranks
ROW_BYTES = 512
CLOSING_S = 1.0  # for ranks that close a board to be done
FIND_S = 0.002  # between two looks for a board, or at a region


class RankState(IntEnum):
    """The state of a rank."""

    ABSENT = 0
    JOINED = 1
    LEAVING = 2  #: has made its last call, and waits for the others
    LEFT = 3
    FAILED = 4  #: raised an error; the row has the reason


class RankError(RemoteError):
    """Another rank died, failed, left, made another call, or did not come before the deadline.

    The communicator is of no use afterwards: close it and make another.
    """


class BoardRow:
    """Offsets of a rank's row on the board."""

    def __init__(self, rank: int) -> None:
        self.state = HEAD_BYTES + rank * ROW_BYTES
        self.pid = self.state + 8
        self.host = self.state + 16
        self.arrived = self.state + 64  # a line of its own
        self.calls = self.state + 72  # two words, in turn
        self.card = self.state + 128  # its bytes: the card is behind all rows
        self.reason = self.state + 192


def check_rank(name: str, rank: int, size: int) -> None:
    """Raises LocalError unless there can be such a rank."""
    if not 1 <= size <= RANKS_MAX:
        raise LocalError(f"{size} ranks: a communicator has 1 to {RANKS_MAX}", errno.EINVAL)
    if not 0 <= rank < size:
        raise LocalError(f"rank {rank}: {size} ranks are 0 to {size - 1}", errno.EINVAL)
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX or not name.isprintable():
        raise LocalError(
            f"the name {name!r}: give 1 to {NAME_BYTES_MAX} bytes of text", errno.EINVAL
        )


def is_orphan(region: Region) -> bool:
    """Tells whether the region's owner is dead, or the region is gone."""
    try:
        return region.orphan
    except LocalError:
        return True  # gone meanwhile


def release(region: Region | Group) -> None:
    """Frees memory of this rank; a rank that is stopped keeps its window, and the memory, until it
    runs."""
    with suppress(NupaError):
        region.free(force=True)


def free_board(region: Region) -> None:
    """Frees the board; other ranks may still have windows, which they close soon."""
    end_s = time.monotonic() + CLOSING_S
    while True:
        try:
            return region.free()
        except NupaError:
            if time.monotonic() > end_s:
                return release(region)
            time.sleep(FIND_S)
