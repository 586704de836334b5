# SPDX-License-Identifier: BSD-3-Clause
"""Collectives by a binomial tree: few steps, for small arrays.

The ranks are counted from the root: place p has the children p + 1, p + 2, p + 4, … below the
lowest bit that is set in p.  A reduction takes the children in this order, each rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nupa.collectives.transport import Move

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nupa.collectives.elements import Elements
    from nupa.collectives.transport import CallMoves


class Tree:
    """The tree as rank *rank* of *size* sees it, for one call."""

    def __init__(self, moves: CallMoves, rank: int, size: int) -> None:
        self._moves, self.rank, self.size = moves, rank, size

    def all_reduce(self, own: Elements, operator: str) -> None:
        """Reduces *own* of all ranks to rank 0, and broadcasts it."""
        self._reduce(own, operator)
        self.broadcast(own, 0)

    def reduce_scatter(self, parts: Sequence[Elements], operator: str) -> None:
        """Reduces all *parts* to rank 0, which sends parts[r] to each rank r."""
        for part in parts:
            self._reduce(part, operator)
        if self.rank:
            self._moves.receive(0, parts[self.rank].octets)
        else:
            self._moves.move([Move(r, parts[r].octets) for r in range(1, self.size)], [])

    def all_gather(self, parts: Sequence[Elements]) -> None:
        """Gathers parts[r] of each rank r at rank 0, and broadcasts all."""
        if self.rank:
            self._moves.send(0, parts[self.rank].octets)
        else:
            self._moves.move([], [Move(r, parts[r].octets) for r in range(1, self.size)])
        for part in parts:
            self.broadcast(part, 0)

    def broadcast(self, own: Elements, root: int) -> None:
        """Copies *own* of *root* to all ranks."""
        parent, children = self._family(root)
        if parent is not None:
            self._moves.receive(parent, own.octets)
        self._moves.move([Move(child, own.octets) for child in reversed(children)], [])

    def barrier(self, token: Elements) -> None:
        """Sends *token* to rank 0, and back."""
        parent, children = self._family(0)
        for child in children:
            self._moves.receive(child, token.octets)
        if parent is not None:
            self._moves.send(parent, token.octets)
        self.broadcast(token, 0)

    def _reduce(self, own: Elements, operator: str) -> None:
        parent, children = self._family(0)
        other = own.like()
        for child in children:
            self._moves.receive(child, other.octets)
            own.take(other, operator)
        if parent is not None:
            self._moves.send(parent, own.octets)

    def _family(self, root: int) -> tuple[int | None, list[int]]:
        """Returns the parent and the children of this rank."""
        place = (self.rank - root) % self.size
        lowest = place & -place if place else self.size
        children, step = [], 1
        while step < lowest and place + step < self.size:
            children.append((place + step + root) % self.size)
            step <<= 1
        parent = None if place == 0 else (place - lowest + root) % self.size
        return parent, children
