# SPDX-License-Identifier: BSD-3-Clause
"""Collectives in the network: ranks put their arrays into a group, and the switches compute.

A reduction takes ranks in the order of the group's tree (csrc/region/group/tree.h), in the
accumulator of the type (csrc/region/group/reduce.h): its bits depend on nothing else.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.collectives.elements import Elements, numpy
from nupa.collectives.rank import release
from nupa.memory.access import Atomic
from nupa.memory.window import WindowError

if TYPE_CHECKING:
    from nupa.collectives.board import Board
    from nupa.collectives.elements import Octets
    from nupa.core.segment import HostInfo
    from nupa.fabric import Fabric

#: Bytes of the arrays that a group takes at a time.
STAGE_BYTES = 4 << 20
#: Each rank maps the memory of each: a fabric has 4096 windows (NUPA_REGION_MAPPINGS_MAX).
RANKS_MAX = 48
_COUNTER = STAGE_BYTES  # behind them: how many ranks came to how many barriers


def refusal(board: Board) -> str:
    """Returns why the ranks cannot be a group, the same at each rank; empty if they can."""
    hosts = [board.host(rank) for rank in range(board.size)]
    if len(set(hosts)) < len(hosts):
        return "several ranks are on one host, and a member of a group is a host"
    if len(hosts) > RANKS_MAX:
        return f"{len(hosts)} ranks: {RANKS_MAX} at most map each other's memory"
    return ""


class SwitchReduction(Closing):
    """A group of the ranks' hosts, as this rank's host sees it.

    LocalError: the ranks cannot be a group.
    """

    def __init__(self, fabric: Fabric, host: HostInfo, board: Board) -> None:
        why = refusal(board)
        if why:
            raise LocalError(f"in-network: {why}: use ring or tree", errno.EOPNOTSUPP)
        self._board = board
        self._rounds = 0
        self._calls = 0
        self._tag: int | None = None
        name = f"g{board.mark}"
        with ExitStack() as stack:
            if board.rank == 0:
                hosts = [board.host(rank) for rank in range(board.size)]
                group = fabric.group(hosts, STAGE_BYTES + 64, name)
                stack.callback(release, group)
                board.barrier()
            else:
                board.barrier()
                group = fabric.find_group(name)
            self._window = stack.enter_context(group.map(host))
            self._own: Octets = numpy().frombuffer(self._window.window, "u1")[:STAGE_BYTES]
            board.barrier()
            self._stack = stack.pop_all()

    def begin(self, tag: int) -> None:
        """Begins a call of all ranks; the first barrier in it checks that it is one call."""
        self._calls += 1
        self._tag = tag
        self._board.announce(self._calls, tag)

    def all_reduce(self, own: Elements, operator: str) -> None:
        """Reduces *own* of all ranks into *own* of all ranks."""
        for piece in self._pieces(own, STAGE_BYTES):
            self._own[: len(piece.octets)] = piece.octets
            self.barrier()
            at, part = _part(piece, self._board.size, self._board.rank)
            self._window.reduce_store(at, len(part.octets), own.type_, operator)
            self.barrier()
            self._take(piece.octets, 0)

    def reduce_scatter(self, parts: Sequence[Elements], operator: str) -> None:
        """Reduces parts[rank] of all ranks into that of this rank."""
        each = STAGE_BYTES // len(parts) // 64 * 64
        rows = [list(self._pieces(part, each)) for part in parts]
        for pieces in zip(*rows, strict=True):
            for place, piece in enumerate(pieces):
                at = place * each
                self._own[at : at + len(piece.octets)] = piece.octets
            self.barrier()
            mine = pieces[self._board.rank]
            self._window.load_reduce_into(
                mine.octets, self._board.rank * each, mine.type_, operator
            )
            self.barrier()

    def all_gather(self, parts: Sequence[Elements]) -> None:
        """Copies parts[r] of each rank r to all ranks."""
        each = STAGE_BYTES // len(parts) // 64 * 64
        rows = [list(self._pieces(part, each)) for part in parts]
        for pieces in zip(*rows, strict=True):
            self._window.store(self._board.rank * each, pieces[self._board.rank].octets)
            self.barrier()
            for place, piece in enumerate(pieces):
                at = place * each
                self._take(piece.octets, at)
            self.barrier()

    def broadcast(self, own: Elements, root: int) -> None:
        """Copies *own* of *root* to all ranks."""
        for piece in self._pieces(own, STAGE_BYTES):
            if self._board.rank == root:
                self._window.store(0, piece.octets)
            self.barrier()
            if self._board.rank != root:
                self._take(piece.octets, 0)
            self.barrier()

    def barrier(self) -> None:
        """Adds 1 to a counter of each member, and waits until all ranks have."""
        self._rounds += 1
        self._window.reduce(_COUNTER, (1).to_bytes(8, "little"), "u64")
        wait = self._board.waiting("a barrier in the network")
        target = self._rounds * self._board.size
        while self._window.window.atomic(Atomic.LOAD, _COUNTER) < target:
            wait()
        self._check_kept()  # of lost memory, the counter reads all ones
        if self._tag is not None:
            self._board.check_calls(self._calls, self._tag)
            self._tag = None

    def _take(self, into: Octets, at: int) -> None:
        """Copies from this rank's memory.  WindowError: it was lost, and reads all ones."""
        into[:] = self._own[at : at + len(into)]
        self._check_kept()

    def _check_kept(self) -> None:
        # A rank that saw another one die may have freed the group.
        if self._window.window.revoked:
            raise WindowError(f"{self._window.name}: its memory is gone", errno.ESTALE)

    def close(self) -> None:
        self._stack.close()

    @staticmethod
    def _pieces(whole: Elements, most_bytes: int) -> Iterator[Elements]:
        most = most_bytes // whole.each
        for first in range(0, whole.count, most):
            yield whole.part(first, min(most, whole.count - first))


def _part(piece: Elements, parts: int, place: int) -> tuple[int, Elements]:
    """Returns one of equal parts, and where it begins, in bytes."""
    first = piece.count * place // parts
    return first * piece.each, piece.part(first, piece.count * (place + 1) // parts - first)
