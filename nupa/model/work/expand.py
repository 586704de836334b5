# SPDX-License-Identifier: BSD-3-Clause
"""Collectives as operations, by the commonest algorithm of each: for traces that name them only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nupa.model.work.phase import RankOperation

_Waits = list[tuple[int, ...]]  # by position in the group
_Send = Callable[[int, int, int, tuple[int, ...]], int]


def expand(
    steps: list[RankOperation],
    collective: str,
    ranks: Sequence[int],
    size_bytes: int,
    after: Sequence[tuple[int, ...]],
    lanes: Sequence[int] = (),
) -> list[tuple[int, ...]]:
    """Appends the messages of a collective; returns what each rank then waits for.

    *size_bytes* as NCCL counts: of the whole buffer.  after[i]: what ranks[i] waits for before;
    lanes[i]: the lane of its messages, 0 without.
    all-reduce, all-gather and reduce-scatter are rings; barrier is dissemination; broadcast and
    reduce are binomial trees; the others are direct.
    """
    count = len(ranks)
    waits = list(after)
    if count == 1:
        return waits
    share = -(-size_bytes // count)

    def send(source: int, target: int, bytes_: int, needs: tuple[int, ...]) -> int:
        lane = lanes[source] if lanes else 0
        steps.append(RankOperation(ranks[source], ranks[target], bytes_, "send", needs, 0, lane))
        return len(steps) - 1

    if collective in ("all-reduce", "all-gather", "reduce-scatter"):
        rounds = (count - 1) * (2 if collective == "all-reduce" else 1)
        for _ in range(rounds):
            sent = [send(i, (i + 1) % count, share, waits[i]) for i in range(count)]
            waits = [(sent[i], sent[i - 1]) for i in range(count)]
    elif collective == "barrier":
        distance = 1
        while distance < count:
            sent = [send(i, (i + distance) % count, 0, waits[i]) for i in range(count)]
            waits = [(sent[i], sent[i - distance]) for i in range(count)]
            distance *= 2
    elif collective in ("broadcast", "reduce"):
        _tree(collective, count, size_bytes, waits, send)
    else:
        _direct(collective, count, share, waits, send)
    return waits


def _tree(collective: str, count: int, size_bytes: int, waits: _Waits, send: _Send) -> None:
    distances = [1 << bit for bit in range((count - 1).bit_length())]
    for distance in distances if collective == "broadcast" else reversed(distances):
        for near in range(min(distance, count - distance)):
            far = near + distance
            source, target = (near, far) if collective == "broadcast" else (far, near)
            sent = send(source, target, size_bytes, waits[source])
            waits[source] = (*waits[source], sent)
            waits[target] = (*waits[target], sent)


def _direct(collective: str, count: int, share: int, waits: _Waits, send: _Send) -> None:
    begun = list(waits)
    for offset in range(1, count):
        for i in range(count):
            source, target = i, (i + offset) % count
            if collective == "scatter" and source != 0:
                continue
            if collective == "gather" and target != 0:
                continue
            sent = send(source, target, share, begun[source])
            waits[source] = (*waits[source], sent)
            waits[target] = (*waits[target], sent)
