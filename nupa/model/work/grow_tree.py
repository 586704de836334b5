# SPDX-License-Identifier: BSD-3-Clause
"""Grows recordings of binomial trees: broadcasts and reductions whose root is rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from nupa.model.work.program import Item, RankProgram, Wait


@dataclass(frozen=True)
class BinomialTree:
    """A tree of which each block of messages is one.

    *near_first*: each round doubles the distance; else it halves it, as MPICH does.  *reduces*:
    messages go to the root, and not from it.
    """

    near_first: bool
    reduces: bool

    @property
    def name(self) -> str:
        return f"binomial trees {'to' if self.reduces else 'from'} rank 0"

    def children(self, rank: int, count: int) -> list[int]:
        """Returns the children of a rank of *count*, in the order in which they are sent to."""
        bits = (count - 1).bit_length()
        if self.near_first:
            distances = [1 << bit for bit in range(bits) if 1 << bit > rank]
        else:
            low = (rank & -rank).bit_length() - 1 if rank else bits
            distances = [1 << bit for bit in reversed(range(low))]
        return [rank + each for each in distances if rank + each < count]

    def parent(self, rank: int) -> int:
        return rank - (1 << rank.bit_length() - 1 if self.near_first else rank & -rank)

    def peers(self, rank: int, count: int) -> list[int]:
        """Returns to whom a rank sends in a block."""
        if self.reduces:
            return [self.parent(rank)] if rank else []
        return self.children(rank, count)

    def received(self, rank: int, count: int, block: int) -> list[Wait]:
        """Returns the messages of a block that a rank receives."""
        if self.reduces:
            return [Wait(child, block) for child in self.children(rank, count)]
        if not rank:
            return []
        siblings = self.children(self.parent(rank), count)
        return [Wait(self.parent(rank), block * len(siblings) + siblings.index(rank))]


def tree_of(found: Sequence[RankProgram]) -> BinomialTree | None:
    """Returns the tree that all blocks of a recording are, with the waits of one; or None."""
    count = len(found)
    for near_first in (True, False):
        for reduces in (False, True):
            tree = BinomialTree(near_first, reduces)
            if (blocks := _blocks(tree, found)) and all(
                _waits_alike(tree, program, rank, count, blocks)
                for rank, program in enumerate(found)
            ):
                return tree
    return None


def _blocks(tree: BinomialTree, found: Sequence[RankProgram]) -> int:
    """Returns how many trees follow each other, each of one size and operation; 0: none do."""
    count = len(found)
    blocks = len(found[-1 if tree.reduces else 0].items) // max(
        1, len(tree.peers(count - 1 if tree.reduces else 0, count))
    )
    kinds: dict[int, tuple[int, str]] = {}
    for rank, program in enumerate(found):
        peers = tree.peers(rank, count)
        if [item.peer for item in program.items] != peers * blocks:
            return 0
        for place, item in enumerate(program.items):
            kind = (item.bytes, item.operation)
            if kinds.setdefault(place // len(peers), kind) != kind:
                return 0
    return blocks


def _waits_alike(
    tree: BinomialTree, program: RankProgram, rank: int, count: int, blocks: int
) -> bool:
    """Returns whether a rank sends in a block when it has received what the block sends it.

    A recording may end before a rank has waited for its last messages.
    """
    seen: set[Wait] = set()
    due: set[Wait] = set()
    each = max(1, len(tree.peers(rank, count)))
    for place, item in enumerate(program.items):
        seen.update(wait for wait in item.waits if wait.rank != rank)
        due.update(tree.received(rank, count, place // each))
        if seen != due:
            return False
    seen.update(wait for wait in program.last_waits if wait.rank != rank)
    for block in range(blocks):
        due.update(tree.received(rank, count, block))
    return seen <= due


def grow_tree(found: Sequence[RankProgram], tree: BinomialTree, ranks: int) -> list[RankProgram]:
    """Returns the programs of *ranks* ranks: sizes, and a rank's computations, as recorded."""
    count = len(found)
    sends = [rank for rank, program in enumerate(found) if program.items]
    blocks = len(found[sends[0]].items) // len(tree.peers(sends[0], count))
    kinds, usual_ns = [], []
    for block in range(blocks):
        items = [
            item
            for rank in sends
            for place, item in enumerate(found[rank].items)
            if place // len(tree.peers(rank, count)) == block
        ]
        kinds.append(items[0])
        usual_ns.append(median_low(item.computation_ns for item in items))
    own = any(wait.rank == rank for rank in sends for item in found[rank].items
              for wait in item.waits)  # fmt: skip
    last_ns = median_low(program.last_ns for program in found)
    grown = []
    for rank in range(ranks):
        program = RankProgram(last_ns=last_ns)
        pending: list[Wait] = []
        for block in range(blocks):
            pending += tree.received(rank, ranks, block)
            for peer in tree.peers(rank, ranks):
                if own and program.items:
                    pending.append(Wait(rank, len(program.items) - 1))
                program.items.append(
                    Item(peer, kinds[block].bytes, kinds[block].operation, usual_ns[block], pending)
                )
                pending = []
        if own and program.items:
            pending.append(Wait(rank, len(program.items) - 1))
        program.last_waits = pending
        grown.append(program)
    return grown
