# SPDX-License-Identifier: BSD-3-Clause
"""GOAL text: read, written, refused; a public file of LogGOPSim; random schedules."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nupa.model.engine.replay import network_for, replay
from nupa.model.errors import ModelError
from nupa.model.formats import goal
from nupa.model.work.phase import RankOperation, switch
from nupa.model.work.schedule import Schedule

#: dissemination_16.goal of github.com/spcl/LogGOPSim at ac9608d48f6a, whose text these lines make.
PUBLIC_SHA256 = "fe53df709e212a5d03c8b9ea45552684ba495f45ccbff75697566072621ecac8"


def dissemination(ranks: int) -> Iterator[str]:
    """Yields the lines of LogGOPSim's file: a barrier of 16 ranks."""
    yield f"num_ranks {ranks}"
    for rank in range(ranks):
        yield ""
        yield f"rank {rank} {{"
        label = 0
        distance = 1
        while distance < ranks:
            yield f"l{label + 1}: send 1b to {(rank + distance) % ranks} tag 0"
            if label:
                yield f"l{label + 1} requires l{label}"
            yield f"l{label + 2}: recv 1b from {(rank - distance) % ranks} tag 0"
            label += 2
            distance *= 2
        yield "}"


def public_text() -> str:
    return "\n".join(dissemination(16)) + "\n"


def of(body: str, ranks: int = 2) -> Schedule:
    return goal.read(f"num_ranks {ranks}\n{body}", "x.goal")


def test_a_public_file_is_read_and_takes_four_rounds() -> None:
    text = public_text()
    assert hashlib.sha256(text.encode()).hexdigest() == PUBLIC_SHA256
    schedule = goal.read(text, "dissemination_16.goal")
    assert (schedule.ranks, schedule.messages, schedule.bytes) == (16, 64, 64)
    four = replay(schedule, network_for(schedule, "ib-hdr")).answer.time_ns
    pair = of("rank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\n}\n")
    one = replay(pair, network_for(pair, "ib-hdr")).ranks[1].end_ns
    assert four == pytest.approx(4 * one, rel=0.25)
    assert goal.read(goal.write(schedule), "again").messages == 64


def test_a_written_schedule_reads_back_the_same() -> None:
    schedule = of(
        "rank 0 {\nl1: calc 100\nl2: send 8b to 1 tag 5\nl2 requires l1\n}\n"
        "rank 1 {\na: recv 8b from 0 tag 5\nb: calc 7 cpu 1\nb requires a\n}\n"
    )
    text = goal.write(schedule)
    assert goal.read(text, "x.goal").steps == schedule.steps
    assert goal.write(goal.read(text, "x.goal")) == text


def test_comments_and_blanks_are_skipped() -> None:
    schedule = of("/* two\nlines */ rank 0 { // begin\n\n  l1 : calc 5\n}\n", 1)
    assert schedule.steps == [RankOperation(0, 0, 0, "compute", (), 5)]


def test_irequires_waits_for_the_start() -> None:
    schedule = of(
        "rank 0 {\nl1: calc 50\nl2: calc 900\nl2 requires l1\nl3: calc 1 cpu 1\nl3 irequires l2\n}",
        1,
    )
    assert schedule.steps[2].after == (0,)


def test_a_receive_from_anyone_takes_a_send() -> None:
    schedule = of("rank 0 {\nrecv 4b from -1 tag -1\n}\nrank 1 {\nsend 4b to 0 tag 9\n}\n")
    assert schedule.steps[0].after == (1,)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("rank 0 {\nfly 8b\n}", "line 3: 'fly 8b'"),
        ("rank 2 {\n}", "line 2: rank 2: there are 2"),
        ("rank 0 {\nsend 8b to 2\n}", "line 3: rank 2"),
        ("rank 0 {\nl1: calc 1\nl1: calc 2\n}", "line 4: rank 0 has the label l1 twice"),
        ("rank 0 {\nl1: calc 1\nl1 requires l9\n}", "line 4: rank 0 has no operation l9"),
        ("rank 0 {\nrecv 8b from 1\n}", "line 3: rank 0 receives from 1 with tag 0"),
        ("rank 0 {\ncalc 1", "rank 0 has no closing bracket"),
        ("calc 1\n", "line 2: 'calc 1' stands outside"),
        ("rank 0 {\n}\nrank 0 {\n}", "line 4: rank 0 is there twice"),
        ("rank 0 {\n}\n", "no rank has an operation"),
        ("rank 0 {\ncalc 99999999999999999999\n}", "line 3: 99999999999999999999 is too large"),
    ],
)
def test_a_wrong_line_is_named(body: str, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        of(body)
    assert f"x.goal: {said}" in str(caught.value) or said in str(caught.value)


def test_a_file_without_ranks_is_refused() -> None:
    with pytest.raises(ModelError, match="there is no `num_ranks N`"):
        goal.read("", "x.goal")


def test_a_read_becomes_a_request_and_an_answer() -> None:
    schedule = Schedule(
        "s", 2, [RankOperation(0, 1, 64, "read"), RankOperation(0, 0, 0, "compute", (0,), 9)]
    )
    read = goal.read(goal.write(schedule), "again")
    assert [(s.rank, s.peer, s.bytes) for s in read.steps if s.peer != s.rank] == [
        (0, 1, 0),
        (1, 0, 64),
    ]


def test_what_goal_has_no_words_for_is_refused() -> None:
    with pytest.raises(ModelError, match="reduced by a switch"):
        goal.write(Schedule("s", 2, [RankOperation(0, switch(0), 64, "reduce")]))
    far = [RankOperation(0, 0, 0, "compute", (), 5), RankOperation(1, 1, 0, "compute", (0,), 5)]
    with pytest.raises(ModelError, match="operation 1 of rank 1 waits for one of rank 0"):
        goal.write(Schedule("s", 2, far))


def chains(ranks: int, numbers: list[tuple[int, int, int]]) -> Schedule:
    """Returns a schedule of rounds: each computes, sends, and its target waits for that."""
    steps: list[RankOperation] = []
    last: dict[int, tuple[int, ...]] = {}
    for source, distance, size in numbers:
        rank, peer = source % ranks, (source + 1 + distance % (ranks - 1)) % ranks
        steps.append(RankOperation(rank, rank, 0, "compute", last.get(rank, ()), size % 977))
        steps.append(RankOperation(rank, peer, size, "send", (len(steps) - 1,)))
        after = (*last.get(peer, ()), len(steps) - 1)
        steps.append(RankOperation(peer, peer, size, "receive", after))
        last[rank], last[peer] = (len(steps) - 3,), (len(steps) - 1,)
    return Schedule("random", ranks, steps)


@given(
    ranks=st.integers(2, 6),
    numbers=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 1 << 20)), min_size=1
    ),
)
@example(5, [(3, 3, 0), (7, 0, 0), (0, 1, 0)])  # two sends to one target, at one time
def test_a_schedule_takes_the_same_time_after_a_round_trip(
    ranks: int, numbers: list[tuple[int, int, int]]
) -> None:
    schedule = chains(ranks, numbers)
    again = goal.read(goal.write(schedule), "again")
    assert again.messages == schedule.messages
    times = [replay(each, network_for(each, "ib-hdr")).answer.time_ns for each in (schedule, again)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    assert all(a <= b for a, b in pairwise(sorted(times)))
