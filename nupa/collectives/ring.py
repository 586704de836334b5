# SPDX-License-Identifier: BSD-3-Clause
"""Collectives by a ring: rank r sends to r + 1 only, so that each link carries each part once.

A reduction of part p begins at rank p + 1 and ends at rank p, the partial result first in each
step: ((x[p+1] op x[p+2]) op …) op x[p].  Partial results of f16 and bf16 are rounded at each rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nupa.collectives.transport import Move

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nupa.collectives.elements import Elements
    from nupa.collectives.transport import CallMoves


class Ring:
    """The ring as rank *rank* of *size* sees it, for one call."""

    def __init__(self, moves: CallMoves, rank: int, size: int) -> None:
        self._moves, self.rank, self.size = moves, rank, size
        self._next, self._last = (rank + 1) % size, (rank - 1) % size

    def all_reduce(self, own: Elements, operator: str) -> None:
        """Reduces *own* of all ranks into *own* of all ranks."""
        parts = own.split(self.size)
        self._reduce(parts, operator)
        self._gather(parts)

    def reduce_scatter(self, parts: Sequence[Elements], operator: str) -> None:
        """Reduces parts[rank] of all ranks into that of this rank; changes the others."""
        self._reduce(parts, operator)

    def all_gather(self, parts: Sequence[Elements]) -> None:
        """Copies parts[r] of each rank r to all ranks."""
        self._gather(parts)

    def broadcast(self, own: Elements, root: int) -> None:
        """Copies *own* of *root* to all ranks, chunk by chunk from rank to rank."""
        place = (self.rank - root) % self.size
        sends = [Move(self._next, own.octets)] if place < self.size - 1 else []
        receives = [Move(self._last, own.octets)] if place else []
        if not (sends and receives):
            self._moves.move(sends, receives)
            return
        # A chunk goes on as soon as it has come.
        onward = sends[0]
        whole, onward.octets = onward.octets, onward.octets[:0]

        def forward(come: int) -> None:
            onward.octets = whole[:come]
            self._moves.move([onward], [])

        receives[0].on_chunk = forward
        self._moves.move([], receives)

    def barrier(self, token: Elements) -> None:
        """Passes *token* round twice: all have come, and all know."""
        for _ in range(2):
            if self.rank:
                self._moves.receive(self._last, token.octets)
            self._moves.send(self._next, token.octets)
            if not self.rank:
                self._moves.receive(self._last, token.octets)

    def _reduce(self, parts: Sequence[Elements], operator: str) -> None:
        for step in range(1, self.size):
            mine = parts[(self.rank - step) % self.size]
            theirs = parts[(self.rank - step - 1) % self.size]
            partial = theirs.like()
            self._moves.move([Move(self._next, mine.octets)], [Move(self._last, partial.octets)])
            partial.take(theirs, operator)
            theirs.octets[:] = partial.octets

    def _gather(self, parts: Sequence[Elements]) -> None:
        for step in range(self.size - 1):
            mine = parts[(self.rank - step) % self.size]
            theirs = parts[(self.rank - step - 1) % self.size]
            self._moves.move([Move(self._next, mine.octets)], [Move(self._last, theirs.octets)])
