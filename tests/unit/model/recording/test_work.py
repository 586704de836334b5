# SPDX-License-Identifier: BSD-3-Clause
"""Recordings as work: what a post waited for, and what was computation."""

from __future__ import annotations

from pathlib import Path

import pytest

from nupa.model.engine.replay import network_for, replay
from nupa.model.errors import ModelError
from nupa.model.recording.layout import CallKind
from nupa.model.work.phase import RankOperation
from nupa.model.work.recording import from_folder
from nupa.model.work.schedule import Schedule
from tests.unit.model.recording.made import Made

RECV, SEND = 128, 2


def messages(schedule: Schedule) -> list[RankOperation]:
    return [step for step in schedule.steps if step.peer != step.rank]


def computation(schedule: Schedule, rank: int) -> int:
    return sum(s.compute_ns for s in schedule.steps if s.rank == rank)


def test_a_send_waits_for_what_its_program_had_received(tmp_path: Path) -> None:
    """Rank 0 sends; rank 1 waits, computes 300 ns and answers; rank 0 waits for that."""
    Made(0, 5, 6).post(100, 50, 8, SEND).put(CallKind.WAIT, 200).done(
        1000, 20, RECV, size=16
    ).write(tmp_path)
    Made(1, 6, 5).put(CallKind.WAIT, 90).done(400, 10, RECV, size=8).post(700, 50, 16, SEND).write(
        tmp_path
    )
    schedule = from_folder(str(tmp_path))
    first, second = messages(schedule)
    assert (first.rank, first.peer, first.bytes, first.operation) == (0, 1, 8, "send")
    assert (second.rank, second.peer, second.bytes) == (1, 0, 16)
    assert computation(schedule, 1) == 300
    (chain,) = second.after
    assert schedule.steps.index(first) in schedule.steps[chain].after
    assert schedule.steps[-1].rank in (0, 1)
    one = Schedule("one", 2, [first._replace(after=())])
    alone = replay(one, network_for(one, "ib-hdr")).answer.time_ns
    both = replay(schedule, network_for(schedule, "ib-hdr"))
    assert both.answer.time_ns > 1.2 * alone + 300
    assert schedule.recorded_ns == 900


def test_a_wait_for_ones_own_completion_is_no_computation(tmp_path: Path) -> None:
    made = Made(0, 5, 6).post(100, 50, 8).put(CallKind.WAIT, 170).done(5000, 10).post(5030, 50, 8)
    made.write(tmp_path)
    Made(1, 6, 5).done(9000, opcode=RECV).write(tmp_path)
    # 20 ns until it waited, 30 ns after.
    assert computation(from_folder(str(tmp_path)), 0) == 50


def test_a_program_that_polls_seldom_finds_a_completion_half_a_round_late(tmp_path: Path) -> None:
    made = Made(0, 5, 6)
    for begin in (0, 1000, 2000):
        made.post(begin + 100, 50, 8).put(CallKind.WAIT, begin + 170)
        made.done(begin + 570, 10, polls=4)  # each 100 ns
    made.post(2600, 50, 8).write(tmp_path)
    Made(1, 6, 5).done(9000, opcode=RECV).write(tmp_path)
    # Three times 20 ns until it waited; 530 ns twice and 30 ns after; half of 100 ns each time.
    assert computation(from_folder(str(tmp_path)), 0) == 3 * 20 + 2 * 530 + 30 + 3 * 50


def test_a_recording_without_a_post_is_refused(tmp_path: Path) -> None:
    Made(0, 5, 6).done(9000, opcode=RECV).write(tmp_path)
    with pytest.raises(ModelError, match="no process of the recording posted a request"):
        from_folder(str(tmp_path))


def test_a_program_that_polls_memory_waits_for_the_write_that_landed(tmp_path: Path) -> None:
    client, server = Made(0, 5, 6, rank=1), Made(1, 6, 5, rank=2)
    for i in range(20):
        begin = 10_000 + 1000 * i
        client.post(begin, 60, 8).done(begin + 80, 20, flags=16)
        server.post(begin + 500, 60, 8).done(begin + 580, 20, flags=16)
    client.write(tmp_path)
    server.write(tmp_path)
    schedule = from_folder(str(tmp_path))
    found = messages(schedule)
    assert len(found) == 40
    for step in [s for s in found if s.rank == 1]:
        (chain,) = step.after
        assert any(
            schedule.steps[i].peer == 1 and schedule.steps[i].rank == 0
            for i in schedule.steps[chain].after
        )
    # 440 ns from the landing to the server's post; 440 from there to the client's next.
    assert computation(schedule, 1) == pytest.approx(20 * 440, rel=0.1)


def test_a_stream_waits_for_no_write_of_the_other_direction(tmp_path: Path) -> None:
    """Both directions at once, as with `ib_write_bw -b`: posts follow each other at once."""
    for host in (0, 1):
        made = Made(host, 5 + host, 6 - host, rank=host + 1)
        for i in range(50):
            made.post(10_000 + 100 * i + 30 * host, 98, 4096)
        made.write(tmp_path)
    schedule = from_folder(str(tmp_path))
    for step in schedule.steps:
        assert all(schedule.steps[i].rank == step.rank for i in step.after)


def test_a_message_to_a_process_without_a_recording_is_computation(tmp_path: Path) -> None:
    Made(0, 5, 99).post(100, 50, 8).post(200, 50, 8).write(tmp_path)
    schedule = from_folder(str(tmp_path))
    assert not messages(schedule)
    assert any("not recorded" in note for note in schedule.notes)
    assert computation(schedule, 0) == 150


def test_datagrams_are_matched_by_sender(tmp_path: Path) -> None:
    Made(0, 5, 0, qp_type=4).post(100, 50, 8, SEND, peer=6).write(tmp_path)
    Made(1, 6, 0, qp_type=4).put(CallKind.WAIT, 90).done(400, 10, RECV, size=48, peer=5).post(
        450, 9, 8, SEND, peer=5
    ).write(tmp_path)
    first, second = messages(from_folder(str(tmp_path)))
    assert (first.peer, second.peer) == (1, 0)


def test_a_process_that_only_lends_its_memory_is_a_rank(tmp_path: Path) -> None:
    Made(0, 5, 6).post(100, 50, 4096).done(160, flags=16).write(tmp_path)
    Made(1, 6, 5).write(tmp_path)
    schedule = from_folder(str(tmp_path))
    assert schedule.ranks == 2
    assert [(step.peer, step.bytes) for step in messages(schedule)] == [(1, 4096)]


def test_threads_have_chains_of_their_own(tmp_path: Path) -> None:
    made = Made(0, 5, 6)
    made.post(100, 50, 8)
    made.thread = 2
    made.post(120, 50, 16)
    made.write(tmp_path)
    Made(1, 6, 5).post(100, 5, 8).write(tmp_path)
    lanes = {
        step.bytes: step.lane for step in messages(from_folder(str(tmp_path))) if step.rank == 0
    }
    assert lanes == {8: 0, 16: 1}


def test_ranks_are_those_of_the_launcher(tmp_path: Path) -> None:
    Made(0, 5, 6, rank=2).post(100, 5, 8).write(tmp_path)
    Made(1, 6, 5, rank=1).post(100, 5, 8).write(tmp_path)
    assert [label.split(":")[0] for label in from_folder(str(tmp_path)).labels] == [
        "host1",
        "host0",
    ]
