# SPDX-License-Identifier: BSD-3-Clause
"""Rounds: how MPI libraries exchange messages, each process one at a time.

Rooted algorithms have rank 0 as root.  Sizes are those of the whole vector, as nccl-tests has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

#: Partners at a distance.  "pair" flips a bit of the rank, "shift" goes round.  "spread" goes from
#: parents in a binomial tree to children, "collect" back.  "lower" goes from the ranks between one
#: and two distances to those below, "upper" back.  "all" goes to all others at once.
Partner = Literal["pair", "shift", "spread", "collect", "lower", "upper", "all"]


class Round(NamedTuple):
    """*times* rounds in which each rank that has a partner sends it *bytes*, and may add them.

    Distances of several rounds are *distance*, *distance* + 1, and so on; *same*: equal ones.
    *among*: only the first ranks take part, and their number is that; 0: all.
    """

    partner: Partner
    distance: int
    bytes: float
    adds: bool = False
    times: int = 1
    same: bool = False
    among: int = 0


Rounds = Callable[[int, int], Iterator[Round]]


def _powers(below: int) -> Iterator[int]:
    """Yields 1, 2, 4 and so on, below that number."""
    distance = 1
    while distance < below:
        yield distance
        distance *= 2


def _power(ranks: int) -> int:
    """Returns the largest power of two that is no more than *ranks*."""
    return 1 << (ranks.bit_length() - 1)


def _folded(ranks: int, give: float, rounds: Iterable[Round], back: float) -> Iterator[Round]:
    """Yields rounds of a power of two of ranks: others *give* their bytes first, and get *back*."""
    power = _power(ranks)
    if ranks > power:
        yield Round("lower", power, give, adds=True)
    for one in rounds:
        yield one._replace(among=power)
    if ranks > power and back:
        yield Round("upper", power, back)


def recursive_doubling(ranks: int, size: int) -> Iterator[Round]:
    """Exchanges whole vectors with ever farther partners."""
    rounds = (Round("pair", distance, size, adds=True) for distance in _powers(_power(ranks)))
    yield from _folded(ranks, size, rounds, size)


def _halving(ranks: int, size: int, farthest_first: bool) -> Iterator[Round]:
    distances = list(_powers(_power(ranks)))
    part = size / 2
    for distance in reversed(distances) if farthest_first else distances:
        yield Round("pair", distance, part, adds=True)
        part /= 2


def _gathered(ranks: int, size: int, partner: Partner) -> Iterator[Round]:
    """Yields the rounds that gather parts of a vector: the farthest partner is the first."""
    part = size / _power(ranks)
    for distance in reversed(list(_powers(_power(ranks)))):
        yield Round(partner, distance, part)
        part *= 2


def halving_doubling(ranks: int, size: int) -> Iterator[Round]:
    """Reduces and scatters halves, then gathers them: Rabenseifner's algorithm."""
    rounds = [*_halving(ranks, size, farthest_first=False), *_gathered(ranks, size, "pair")]
    yield from _folded(ranks, size, rounds, size)


def gather_doubling(ranks: int, size: int) -> Iterator[Round]:
    """Gathers with ever farther partners, which have ever more."""
    part = size / _power(ranks)
    rounds = (Round("pair", distance, part * distance) for distance in _powers(_power(ranks)))
    yield from _folded(ranks, size / ranks, rounds, size)


def gather_bruck(ranks: int, size: int) -> Iterator[Round]:
    """Gathers in the logarithm of any number of ranks."""
    part = size / ranks
    for distance in _powers(ranks):
        yield Round("shift", distance, part * min(distance, ranks - distance))


def gather_ring(ranks: int, size: int) -> Iterator[Round]:
    """Passes each part to the next rank."""
    yield Round("shift", 1, size / ranks, times=ranks - 1, same=True)


def ring(ranks: int, size: int) -> Iterator[Round]:
    """Passes sums round, then parts of the result."""
    yield Round("shift", 1, size / ranks, adds=True, times=ranks - 1, same=True)
    yield from gather_ring(ranks, size)


def scatter_halving(ranks: int, size: int) -> Iterator[Round]:
    """Reduces halves with ever nearer partners: each rank keeps its part."""
    yield from _folded(ranks, size, _halving(ranks, size, farthest_first=True), size / ranks)


def scatter_pairwise(ranks: int, size: int) -> Iterator[Round]:
    """Sends each rank its part, one after the other, which it adds."""
    partner: Partner = "pair" if ranks == _power(ranks) else "shift"
    yield Round(partner, 1, size / ranks, adds=True, times=ranks - 1)


def exchange_bruck(ranks: int, size: int) -> Iterator[Round]:
    """Passes on the blocks whose distance has a bit, for each bit."""
    for distance in _powers(ranks):
        blocks = sum(1 for each in range(ranks) if each & distance)
        yield Round("shift", distance, size / ranks * blocks)


def exchange_direct(ranks: int, size: int) -> Iterator[Round]:
    """Posts all messages at once."""
    yield Round("all", 1, size / ranks)


def exchange_pairwise(ranks: int, size: int) -> Iterator[Round]:
    """Exchanges blocks with one partner after the other."""
    partner: Partner = "pair" if ranks == _power(ranks) else "shift"
    yield Round(partner, 1, size / ranks, times=ranks - 1)


def broadcast_binomial(ranks: int, size: int) -> Iterator[Round]:
    """Sends the whole vector along a binomial tree, the farthest child first."""
    for distance in reversed(list(_powers(ranks))):
        yield Round("spread", distance, size)


def _scatter(ranks: int, size: int) -> Iterator[Round]:
    for distance in reversed(list(_powers(ranks))):
        yield Round("spread", distance, size / ranks * min(distance, ranks - distance))


def broadcast_scatter_doubling(ranks: int, size: int) -> Iterator[Round]:
    """Scatters the vector along a binomial tree, then gathers by doubling."""
    yield from _scatter(ranks, size)
    yield from gather_doubling(ranks, size)


def broadcast_scatter_ring(ranks: int, size: int) -> Iterator[Round]:
    """Scatters the vector along a binomial tree, then gathers in a ring."""
    yield from _scatter(ranks, size)
    yield from gather_ring(ranks, size)


def reduce_binomial(ranks: int, size: int) -> Iterator[Round]:
    """Adds whole vectors along a binomial tree."""
    for distance in _powers(ranks):
        yield Round("collect", distance, size, adds=True)


def reduce_halving_gather(ranks: int, size: int) -> Iterator[Round]:
    """Reduces and scatters halves, then gathers the parts at the root."""
    rounds = [*_halving(ranks, size, farthest_first=False), *_gathered(ranks, size, "lower")]
    yield from _folded(ranks, size, rounds, 0.0)


def dissemination(ranks: int, _size: int) -> Iterator[Round]:
    """Signals to ever farther ranks."""
    for distance in _powers(ranks):
        yield Round("shift", distance, 1)


def neighbour(_ranks: int, size: int) -> Iterator[Round]:
    """Sends to the next rank."""
    yield Round("shift", 1, size)


#: The algorithms of MPI libraries by collective.
ROUNDS: Mapping[str, Mapping[str, Rounds]] = {
    "all-reduce": {
        "recursive-doubling": recursive_doubling,
        "halving-doubling": halving_doubling,
        "ring": ring,
    },
    "all-gather": {
        "recursive-doubling": gather_doubling,
        "bruck": gather_bruck,
        "ring": gather_ring,
    },
    "reduce-scatter": {"recursive-halving": scatter_halving, "pairwise": scatter_pairwise},
    "broadcast": {
        "binomial": broadcast_binomial,
        "scatter-doubling": broadcast_scatter_doubling,
        "scatter-ring": broadcast_scatter_ring,
    },
    "reduce": {"binomial": reduce_binomial, "halving-gather": reduce_halving_gather},
    "all-to-all": {
        "bruck": exchange_bruck,
        "direct": exchange_direct,
        "pairwise": exchange_pairwise,
    },
    "send-recv": {"direct": neighbour},
    "barrier": {"dissemination": dissemination},
}
