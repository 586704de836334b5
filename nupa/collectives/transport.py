# SPDX-License-Identifier: BSD-3-Clause
"""Moving bytes between ranks, in chunks, whatever carries them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from nupa.collectives.board import Board
    from nupa.collectives.elements import Octets

#: Chunks from one rank to another that are under way at most.
SLOTS = 4
#: A call that sends less returns when its own part is done.  It has posted its last chunks, and
#: the engine's port thread does what is left of them.  Of a large array that thread, which looks
#: once a millisecond, would be the slower one.
FLUSHED_LEAST_BYTES = 64 << 10


class Arrival(NamedTuple):
    """A chunk that came: its call (Call.tag of the sender), and its size in bytes."""

    tag: int
    size: int


class RankTransport(Protocol):
    """The ways from this rank to each other one and back.  A chunk arrives whole, in order."""

    chunk_bytes: int

    def try_send(self, peer: int, data: Octets, tag: int) -> bool:
        """Takes a chunk; False: there is no room now."""

    def try_receive(self, peer: int, into: Octets) -> Arrival | None:
        """Fills *into* from a chunk of that size, or reports one of another size; None: none
        came."""

    def progress(self) -> None:
        """Does what is to be done in the background."""

    def is_idle(self) -> bool:
        """Tells whether all that was sent has arrived."""

    def close(self) -> None: ...


@dataclass
class Move:
    """Bytes to or from a rank, on their way."""

    peer: int
    octets: Octets
    done: int = field(default=0, init=False)
    #: Called with the bytes that have come so far.
    on_chunk: Callable[[int], None] | None = None

    @property
    def left(self) -> int:
        return len(self.octets) - self.done

    def next(self, chunk_bytes: int) -> Octets:
        return self.octets[self.done : self.done + chunk_bytes]


class CallMoves:
    """Moves of one call of all ranks, told from those of other calls by *tag* (32 bits)."""

    def __init__(self, transport: RankTransport, board: Board, what: str, tag: int) -> None:
        self._transport, self._board = transport, board
        self._what, self._tag = what, tag
        self._sent = 0

    def move(self, sends: Sequence[Move], receives: Sequence[Move]) -> None:
        """Moves all, in any order between ranks.

        RankError: a rank is gone or late, or makes another call.
        """
        transport = self._transport
        wait: Callable[[], None] | None = None
        pending = [(move, self._send) for move in sends if move.left]
        pending += [(move, self._receive) for move in receives if move.left]
        while pending:
            progressed = False
            for move, step in pending:
                while move.left and step(move):
                    progressed = True
            if progressed:
                pending = [(move, step) for move, step in pending if move.left]
                wait = None
                continue
            transport.progress()
            if wait is None:
                peers = ", ".join(sorted({str(move.peer) for move, _ in pending}))
                wait = self._board.waiting(f"{self._what} with rank {peers}")
            wait()

    def send(self, peer: int, octets: Octets) -> None:
        self.move([Move(peer, octets)], [])

    def receive(self, peer: int, octets: Octets) -> None:
        self.move([], [Move(peer, octets)])

    def flush(self) -> None:
        """Waits until all that was sent has arrived, if it was much: FLUSHED_LEAST_BYTES."""
        if self._sent < FLUSHED_LEAST_BYTES:
            return
        wait = self._board.waiting(self._what)
        while not self._transport.is_idle():
            self._transport.progress()
            wait()

    def _send(self, move: Move) -> bool:
        data = move.next(self._transport.chunk_bytes)
        if not self._transport.try_send(move.peer, data, self._tag):
            return False
        move.done += len(data)
        self._sent += len(data)
        return True

    def _receive(self, move: Move) -> bool:
        into = move.next(self._transport.chunk_bytes)
        arrival = self._transport.try_receive(move.peer, into)
        if arrival is None:
            return False
        if arrival != (self._tag, len(into)):
            self._board.fail_call(move.peer)
        move.done += len(into)
        if move.on_chunk is not None:
            move.on_chunk(move.done)
        return True
