# SPDX-License-Identifier: BSD-3-Clause
"""The model's prediction for a collective on `here`: the messages of its ranks, on a Timeline.

The algorithms of nupa.collectives run once for each rank, without data, and say what they send.  A
profile of `nupa model calibrate` says what a message takes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nupa.collectives.communicator import Over
from nupa.collectives.elements import Elements
from nupa.collectives.ring import Ring
from nupa.collectives.transport import Move
from nupa.collectives.tree import Tree
from nupa.core.mover import Mover
from nupa.model.engine.replay import network_for
from nupa.model.engine.timeline import Timeline
from nupa.model.errors import ModelError
from nupa.model.profile.profile import own_folder
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule

TOKEN_BYTES = 4
#: Queue pairs of private memory take the first that works here; windows are the fabric's memory.
_MOVERS = {"verbs": (Mover.SHARED, Mover.CMA, Mover.RELAY), "windows": (Mover.POOL,)}
_OPERATIONS = {"verbs": "send", "windows": "write"}


def mover_of(over: Over) -> str:
    """Returns the mover whose profile predicts: NUPA_MOVER, or the best that was calibrated.

    ModelError: none was; it says to run calibrate.
    """
    forced = os.environ.get("NUPA_MOVER") if over == "verbs" else None
    wanted = [forced] if forced else [str(mover) for mover in _MOVERS[over]]
    for mover in wanted:
        if (own_folder() / f"here-{mover}.toml").is_file():
            return mover
    raise ModelError(
        f"here-{wanted[0]} was not measured: `nupa model calibrate` measures this machine"
    )


class _Octets:
    """So many bytes without memory."""

    def __init__(self, count: int) -> None:
        self._places = range(count)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, places: slice) -> _Octets:
        return _Octets(len(self._places[places]))

    def __setitem__(self, places: slice, octets: Any) -> None:
        pass


class _Sizes(Elements):
    """Elements without memory."""

    def part(self, first: int, count: int) -> _Sizes:
        del first
        return _Sizes(_octets(count * self.each), self.type_, self.each)

    def like(self) -> _Sizes:
        return self.part(0, self.count)

    def take(self, other: Elements, operator: str) -> None:
        pass


def _octets(count: int) -> Any:
    return _Octets(count)


@dataclass(frozen=True)
class _Chunk:
    """A chunk that a rank sends to *peer*, or receives from it."""

    peer: int
    bytes: int
    sent: bool


class _Listed:
    """Moves of one rank, listed in its order: those that it sends at once come first."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self.chunks: list[_Chunk] = []

    def move(self, sends: Sequence[Move], receives: Sequence[Move]) -> None:
        for moves, sent in ((sends, True), (receives, False)):
            for move in moves:
                while move.left:
                    size = len(move.next(self._chunk_bytes))
                    self.chunks.append(_Chunk(move.peer, size, sent))
                    move.done += size
                    if move.on_chunk is not None:
                        move.on_chunk(move.done)

    def send(self, peer: int, octets: Any) -> None:
        self.move([Move(peer, octets)], [])

    def receive(self, peer: int, octets: Any) -> None:
        self.move([], [Move(peer, octets)])


def _listed(
    operation: str, algorithm: str, rank: int, ranks: int, own: _Sizes, root: int, chunk: int
) -> list[_Chunk]:
    """Returns the chunks of one rank.  ModelError: switches execute the algorithm."""
    if algorithm not in ("ring", "tree"):
        raise ModelError(f"{algorithm}: groups take no time of their own: no profile has it")
    moves: Any = _Listed(chunk)
    ways: Any = (Ring if algorithm == "ring" else Tree)(moves, rank, ranks)
    calls: dict[str, Callable[[], None]] = {
        "allreduce": lambda: ways.all_reduce(own, "add"),
        "reducescatter": lambda: ways.reduce_scatter(own.split(ranks), "add"),
        "allgather": lambda: ways.all_gather(own.split(ranks)),
        "broadcast": lambda: ways.broadcast(own, root),
        "barrier": lambda: ways.barrier(_Sizes(_octets(TOKEN_BYTES), "u32", TOKEN_BYTES)),
    }
    calls[operation]()
    found: list[_Chunk] = moves.chunks
    return found


def schedule(
    operation: str,
    algorithm: str,
    ranks: int,
    size_bytes: int,
    *,
    each: int = 4,
    root: int = 0,
    over: Over = "verbs",
) -> Schedule:
    """Returns the messages of a collective of *size_bytes*, of elements of *each* bytes.

    ModelError: there are none; switches execute the algorithm; the mover was not calibrated.
    """
    from nupa.collectives import queues, windows

    chunk = (queues if over == "verbs" else windows).chunk_bytes(ranks)
    of_ranks = [
        _listed(
            operation, algorithm, rank, ranks, _Sizes(_octets(size_bytes), "", each), root, chunk
        )
        for rank in range(ranks)
    ]
    steps = list(_matched(of_ranks, _OPERATIONS[over]))
    return Schedule(f"{operation}:{size_bytes}", ranks, steps, mover=mover_of(over))


def _matched(of_ranks: Sequence[Sequence[_Chunk]], operation: str) -> Iterator[RankOperation]:
    """Yields the sends, each after what its rank had received before; receives are in order."""
    sent: dict[tuple[int, int], deque[int]] = {}
    number = 0
    for rank, chunks in enumerate(of_ranks):
        for chunk in chunks:
            if chunk.sent:
                sent.setdefault((rank, chunk.peer), deque()).append(number)
                number += 1
    for rank, chunks in enumerate(of_ranks):
        received: dict[int, int] = {}  # the last one of each peer: they arrive in order
        for chunk in chunks:
            if chunk.sent:
                after = tuple(received.values())
                yield RankOperation(rank, chunk.peer, chunk.bytes, operation, after)
            else:
                received[chunk.peer] = sent[chunk.peer, rank].popleft()


def predicted_us(
    operation: str,
    algorithm: str,
    ranks: int,
    size_bytes: int,
    *,
    each: int = 4,
    root: int = 0,
    over: Over = "verbs",
) -> float:
    """Returns what the messages take on this machine.  ModelError as `schedule`."""
    work = schedule(operation, algorithm, ranks, size_bytes, each=each, root=root, over=over)
    timeline = Timeline(work, network_for(work, "here"))
    timeline.run()
    return max(timeline.arrived) / 1e3
