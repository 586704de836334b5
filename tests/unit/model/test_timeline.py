# SPDX-License-Identifier: BSD-3-Clause
"""Schedules in time: alone a message takes the closed form's time; ports and threads are shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.model.engine.message import message, serialisation_ns
from nupa.model.engine.replay import network_for, replay
from nupa.model.engine.timeline import Timeline
from nupa.model.errors import ModelError
from nupa.model.profile.profile import load
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule

MIB = 1 << 20


def run(steps: list[RankOperation], ranks: int = 2) -> Timeline:
    schedule = Schedule("s", ranks, steps)
    timeline = Timeline(schedule, network_for(schedule, "ib-hdr"))
    timeline.run()
    return timeline


@pytest.mark.parametrize("size", [8, 4096, MIB])
@pytest.mark.parametrize("operation", ["write", "send"])
def test_a_message_alone_takes_the_closed_forms_time(operation: str, size: int) -> None:
    network = network_for(Schedule("s", 2, [RankOperation(0, 1, 8, "write")]), "ib-hdr")
    stages = message(network.path(0, 1), operation, size)
    found = run([RankOperation(0, 1, size, operation)])
    assert found.arrived[0] == pytest.approx(sum(stage.ns for stage in stages))
    assert found.seen[0] > found.arrived[0] - network.path(0, 1).profile["completion"]


def test_a_read_alone_takes_the_closed_forms_time() -> None:
    network = network_for(Schedule("s", 2, [RankOperation(0, 1, 8, "write")]), "ib-hdr")
    stages = message(network.path(0, 1), "read", MIB)
    assert run([RankOperation(0, 1, MIB, "read")]).seen[0] == pytest.approx(
        sum(stage.ns for stage in stages)
    )


def test_a_ping_pong_takes_its_messages_and_computations() -> None:
    one = run([RankOperation(0, 1, 8, "write")]).arrived[0]
    steps: list[RankOperation] = []
    for i in range(10):
        rank = i % 2
        after = (len(steps) - 1,) if steps else ()
        steps.append(RankOperation(rank, rank, 0, "compute", after, 50))
        steps.append(RankOperation(rank, 1 - rank, 8, "write", (len(steps) - 1,)))
    assert run(steps).arrived[-1] == pytest.approx(10 * (one + 50))


def test_messages_of_one_sender_share_its_port() -> None:
    one = serialisation_ns(load("ib-hdr"), MIB)
    found = run([RankOperation(0, 1 + i, MIB, "write") for i in range(4)], 5)
    assert found.end_ns == pytest.approx(run([RankOperation(0, 1, MIB, "write")]).end_ns + 3 * one)


def test_messages_to_one_target_share_its_port() -> None:
    one = serialisation_ns(load("ib-hdr"), MIB)
    found = run([RankOperation(1 + i, 0, MIB, "write") for i in range(4)], 5)
    assert found.end_ns == pytest.approx(run([RankOperation(0, 1, MIB, "write")]).end_ns + 3 * one)


def test_computations_of_one_thread_run_one_at_a_time() -> None:
    assert run([RankOperation(0, 0, 0, "compute", (), 70) for _ in range(3)]).end_ns == 210
    lanes = [RankOperation(0, 0, 0, "compute", (), 70, lane) for lane in range(3)]
    assert run(lanes).end_ns == 70


def test_a_circle_is_an_error_that_names_an_operation() -> None:
    with pytest.raises(ModelError, match="2 operations wait for each other in a circle: operation"):
        run([RankOperation(0, 1, 8, "send", (1,)), RankOperation(1, 0, 8, "send", (0,))])
    with pytest.raises(ModelError, match="operation 0 waits for operation 9: there are 1"):
        run([RankOperation(0, 1, 8, "send", (9,))])


def test_too_few_endpoints_are_an_error() -> None:
    schedule = Schedule("s", 4, [RankOperation(0, 3, 8, "send")])
    network = network_for(Schedule("s", 2, schedule.steps), "ib-hdr")
    with pytest.raises(ModelError, match="4 ranks: ib-hdr has 2 endpoints"):
        replay(schedule, network)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4), st.integers(0, 4), st.integers(0, MIB), st.integers(1, 10_000)
        ),
        min_size=1,
        max_size=60,
    )
)
def test_the_stages_add_up_and_nothing_ends_before_what_it_waits_for(
    rows: list[tuple[int, int, int, int]],
) -> None:
    steps = [
        RankOperation(
            rank,
            peer,
            size if rank != peer else 0,
            "write" if rank != peer else "compute",
            (i - 1 - size % 3,) if i > 2 else (),
            time_ns,
        )
        for i, (rank, peer, size, time_ns) in enumerate(rows)
    ]
    schedule = Schedule("s", 5, steps)
    found = replay(schedule, network_for(schedule, "ib-hdr")).answer
    assert sum(stage.ns for stage in found.stages) == pytest.approx(found.time_ns)
    assert found.low_ns <= found.time_ns <= found.high_ns
    timeline = run(steps, 5)
    for index, step in enumerate(steps):
        for before in step.after:
            assert timeline.start[index] >= timeline.start[before]
