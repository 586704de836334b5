# SPDX-License-Identifier: BSD-3-Clause
"""Recordings that are grown: the patterns that are known, checked against the same made larger."""

from __future__ import annotations

from collections import Counter

import pytest

from nupa.model.engine.replay import network_for, replay
from nupa.model.errors import ModelError
from nupa.model.work.expand import expand
from nupa.model.work.grow import grow
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule


def collective(name: str, ranks: int, size_bytes: int, times: int = 1) -> Schedule:
    """Returns a recording of a collective: each rank computes 100 ns before each message."""
    plain: list[RankOperation] = []
    waits: list[tuple[int, ...]] = [()] * ranks
    for _ in range(times):
        waits = expand(plain, name, range(ranks), size_bytes, waits)
    steps: list[RankOperation] = []
    place: dict[int, int] = {}
    chain: dict[int, tuple[int, ...]] = {}
    for index, step in enumerate(plain):
        after = tuple(place[i] for i in step.after)
        own = chain.get(step.rank, ())
        steps.append(RankOperation(step.rank, step.rank, 0, "compute", tuple({*own, *after}), 100))
        chain[step.rank] = (len(steps) - 1,)
        place[index] = len(steps)
        steps.append(step._replace(after=chain[step.rank]))
    return Schedule(name, ranks, steps)


def exchange(ranks: int, sizes: list[int]) -> Schedule:
    """Returns pairwise exchanges over each bit, from the lowest."""
    steps: list[RankOperation] = []
    last: list[tuple[int, ...]] = [()] * ranks
    for bit, size in enumerate(sizes):
        sent = []
        for rank in range(ranks):
            steps.append(RankOperation(rank, rank, 0, "compute", last[rank], 100))
            steps.append(RankOperation(rank, rank ^ 1 << bit, size, "write", (len(steps) - 1,)))
            sent.append(len(steps) - 1)
        last = [(sent[rank], sent[rank ^ 1 << bit]) for rank in range(ranks)]
    return Schedule("exchange", ranks, steps)


def traffic(schedule: Schedule) -> Counter[tuple[int, int, int]]:
    return Counter((s.rank, s.peer, s.bytes) for s in schedule.steps if s.peer != s.rank)


def time_ns(schedule: Schedule) -> float:
    return replay(schedule, network_for(schedule, "ib-hdr")).answer.time_ns


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("all-reduce", lambda _n: 1 << 20),
        ("all-to-all", lambda n: 4096 * n),
        ("barrier", lambda _n: 0),
    ],
)
def test_a_grown_collective_is_the_collective_of_more_ranks(name, size, times) -> None:  # type: ignore[no-untyped-def]
    grown = grow(collective(name, 8, size(8), times), 32)
    right = collective(name, 32, size(32), times)
    assert traffic(grown) == traffic(right)
    assert time_ns(grown) == pytest.approx(time_ns(right), rel=0.05)


def test_an_all_gather_keeps_each_ranks_part() -> None:
    grown = grow(collective("all-gather", 8, 8 * 1000), 16)
    assert traffic(grown) == traffic(collective("all-gather", 16, 16 * 1000))
    assert "each rank's part keeps its size" in grown.notes[-1]


@pytest.mark.parametrize("sizes", [[64, 64, 64], [64, 128, 256], [256, 128, 64]])
def test_pairwise_exchange_continues_in_its_ratio(sizes: list[int]) -> None:
    ratio = sizes[1] / sizes[0]
    right = exchange(32, [round(sizes[0] * ratio**bit) for bit in range(5)])
    grown = grow(exchange(8, sizes), 32)
    assert traffic(grown) == traffic(right)
    assert time_ns(grown) == pytest.approx(time_ns(right), rel=0.02)


def mpich(ranks: int, size: int, times: int, reduces: bool) -> Schedule:
    """Returns trees in MPICH's order: the root sends to the farthest first."""
    steps: list[RankOperation] = []
    last: dict[int, tuple[int, ...]] = {}
    for _ in range(times):
        edges = []
        for bit in reversed(range((ranks - 1).bit_length())):
            for near in range(0, ranks, 2 << bit):
                if near + (1 << bit) < ranks:
                    edges.append((near, near + (1 << bit)))
        for near, far in reversed(edges) if reduces else edges:
            source, target = (far, near) if reduces else (near, far)
            steps.append(RankOperation(source, source, 0, "compute", last.get(source, ()), 100))
            steps.append(RankOperation(source, target, size, "send", (len(steps) - 1,)))
            last[source] = (len(steps) - 1,)
            last[target] = (*last.get(target, ()), len(steps) - 1)
    steps += [RankOperation(rank, rank, 0, "compute", last[rank], 100) for rank in range(ranks)]
    return Schedule("mpich", ranks, steps)


@pytest.mark.parametrize("ranks", [(4, 32), (8, 64), (6, 48), (16, 5)], ids=str)
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", ["broadcast", "reduce", "mpich broadcast", "mpich reduce"])
def test_binomial_trees_grow(name: str, times: int, ranks: tuple[int, int]) -> None:
    def made(count: int) -> Schedule:
        if name.startswith("mpich"):
            return mpich(count, 4096, times, name.endswith("reduce"))
        return collective(name, count, 4096, times)

    grown, right = grow(made(ranks[0]), ranks[1]), made(ranks[1])
    assert traffic(grown) == traffic(right)
    assert time_ns(grown) == pytest.approx(time_ns(right), rel=0.05)
    assert "binomial trees" in grown.notes[-1]


def test_pairs_are_repeated() -> None:
    pair = Schedule(
        "pair", 2, [RankOperation(0, 1, 8, "write"), RankOperation(1, 0, 8, "write", (0,))]
    )
    grown = grow(pair, 8)
    assert traffic(grown) == Counter({(r, r ^ 1, 8): 1 for r in range(8)})
    assert time_ns(grown) == time_ns(pair)


@pytest.mark.parametrize(
    ("schedule", "ranks", "said"),
    [
        (
            Schedule(
                "late", 4, [RankOperation(*pair, 64, "send") for pair in ((0, 1), (0, 2), (1, 3))]
            ),
            16,
            "rank 0 sends 2 messages and rank 1 1",
        ),
        (exchange(8, [64, 64, 64]), 24, "24 is none"),
        (exchange(8, [64, 128, 128]), 32, "neither equal nor in one ratio"),
        (collective("all-reduce", 8, 64), 1, "1 ranks have nothing to say to each other"),
        (
            Schedule("odd", 3, [RankOperation(r, (r + 1) % 3, 8 + r, "send") for r in range(3)]),
            6,
            "message 0 is a send of 8 B at rank 0 and a send of 9 B at rank 1",
        ),
    ],
)
def test_where_a_pattern_is_not_known_the_error_says_where(
    schedule: Schedule, ranks: int, said: str
) -> None:
    with pytest.raises(ModelError) as caught:
        grow(schedule, ranks)
    assert said in str(caught.value)
