# SPDX-License-Identifier: BSD-3-Clause
"""Schedules: single transfers of parts of a vector, with what each of them waits for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nupa.model.work.phase import RankOperation, switch


class PartsTransfer(NamedTuple):
    """*rank* sends *parts* of the vector to the same parts of *peer*, which adds or replaces them.

    With peer == switch(level), "reduce" loads the parts that the switches have added over their
    ranks, and "multicast" stores them to all of those.  *after*: indices of earlier transfers.
    """

    rank: int
    peer: int
    parts: tuple[int, ...]
    adds: bool
    operation: str
    after: tuple[int, ...]


class TransferSchedule:
    """A list of transfers.  `send` finds what each waits for, from the parts that it passes on."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.transfers: list[PartsTransfer] = []
        self._writers: dict[tuple[int, int], list[int]] = {}
        self._readers: dict[tuple[int, int], list[int]] = {}

    def send(self, rank: int, peer: int, parts: Iterable[int], adds: bool = False) -> None:
        """Adds a transfer.

        It waits for what has written its source, and for what has read or, unless it adds too,
        written its target.
        """
        moved = tuple(parts)
        if rank == peer or not moved:
            return
        after: set[int] = set()
        for part in moved:
            after.update(self._writers.get((rank, part), ()))
            after.update(self._readers.get((peer, part), ()))
            if not adds:
                after.update(self._writers.get((peer, part), ()))
        index = self._append(rank, peer, moved, adds, "write", after)
        for part in moved:
            self._readers.setdefault((rank, part), []).append(index)
            self._wrote(peer, part, index, adds)

    def reduce(self, rank: int, level: int, members: Iterable[int], parts: Iterable[int]) -> None:
        """Adds an in-network reduction over *members*, whose sum *rank* loads."""
        moved, sources = tuple(parts), tuple(members)
        after = {
            each
            for member in sources
            for part in moved
            for each in self._writers.get((member, part), ())
        }
        index = self._append(rank, switch(level), moved, False, "reduce", after)
        for part in moved:
            for member in sources:
                self._readers.setdefault((member, part), []).append(index)
            self._wrote(rank, part, index, False)

    def multicast(
        self, rank: int, level: int, members: Iterable[int], parts: Iterable[int]
    ) -> None:
        """Adds an in-network store of *rank* to all *members*."""
        moved, targets = tuple(parts), tuple(members)
        after: set[int] = set()
        for part in moved:
            after.update(self._writers.get((rank, part), ()))
            for member in targets:
                after.update(self._readers.get((member, part), ()))
                after.update(self._writers.get((member, part), ()))
        index = self._append(rank, switch(level), moved, False, "multicast", after)
        for part in moved:
            for member in targets:
                self._wrote(member, part, index, False)

    def _append(
        self,
        rank: int,
        peer: int,
        parts: tuple[int, ...],
        adds: bool,
        operation: str,
        after: set[int],
    ) -> int:
        ordered = tuple(sorted(after))
        self.transfers.append(PartsTransfer(rank, peer, parts, adds, operation, ordered))
        return len(self.transfers) - 1

    def _wrote(self, rank: int, part: int, index: int, adds: bool) -> None:
        if adds:
            self._writers.setdefault((rank, part), []).append(index)
        else:
            self._writers[(rank, part)] = [index]
            self._readers[(rank, part)] = []

    def operations(self, size_bytes: int) -> Iterable[RankOperation]:
        """Yields the transfers of a vector of *size_bytes*, each of one byte at least."""
        for each in self.transfers:
            moved = sum(
                size_bytes * (part + 1) // self.parts - size_bytes * part // self.parts
                for part in each.parts
            )
            yield RankOperation(each.rank, each.peer, max(1, moved), each.operation, each.after)
