# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run --record` of real programs, and `nupa model replay` of what they left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nupa.model.recording.layout import SUFFIX, CallKind
from nupa.model.recording.recording import read
from nupa.programs.pair import Program, ProgramPair, free_port
from tests.programs.stage import DEADLINE_S, Stage

COUNT = 500


def recorded(stage: Stage, folder: Path, *command: str) -> None:
    """Runs a pair of programs that record into one folder."""
    port = free_port()
    server = [*command, "-p", str(port)]
    ProgramPair(
        stage.nupa("run", "--host", "host0", "--record", str(folder), "--", *server),
        stage.nupa("run", "--host", "host1", "--record", str(folder), "--", *server, "localhost"),
        env=stage.env,
        port=port,
        deadline_s=DEADLINE_S,
    ).run().check()


def replayed(stage: Stage, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stage.ok("model", "replay", *arguments, "--json"))
    return found


def test_a_ping_pong_is_half_round_trips_on_another_fabric(fabric: Stage, tmp_path: Path) -> None:
    recorded(fabric, tmp_path, "ib_write_lat", "-F", "-s", "8", "-n", str(COUNT))
    found = replayed(fabric, str(tmp_path), "--on", "ib-hdr")
    assert found["ranks"] == 2
    assert [rank["messages"] for rank in found["per_rank"]] == [COUNT, COUNT]
    assert found["bytes"] == 2 * COUNT * 8
    # 1.87 us is what ib_write_lat says there.  This machine may be busy, and the program waits for
    # a processor: at most all of the recorded time is its own.
    half_us = found["time_ns"] / 1e3 / COUNT / 2
    own_us = found["recorded_ns"] / 1e3 / COUNT / 2
    assert 1.7 < half_us < 2.0 + own_us
    assert found["low_ns"] <= found["time_ns"] <= found["high_ns"]


def test_a_stream_is_limited_by_the_link(fabric: Stage, tmp_path: Path) -> None:
    size = 1 << 20
    recorded(fabric, tmp_path, "ib_write_bw", "-F", "-s", str(size), "-n", "200")
    found = replayed(fabric, str(tmp_path), "--on", "ib-hdr")
    # The program's copies of 100 us each are the fabric's part, and go.  What it computes, or waits
    # for a processor, adds to the time at most.
    serialised_ns = found["bytes"] * 8 / 200
    computation_ns = sum(rank["computation_ns"] for rank in found["per_rank"])
    assert serialised_ns < found["time_ns"] < 1.1 * serialised_ns + computation_ns


@pytest.mark.parametrize("program", ["ib_send_lat", "ib_send_bw", "ib_read_lat", "ib_atomic_bw"])
def test_each_operation_is_recorded_and_replayed(
    fabric: Stage, tmp_path: Path, program: str
) -> None:
    recorded(fabric, tmp_path, program, "-F", "-n", str(COUNT))
    recording = read(str(tmp_path))
    assert len(recording.processes) == 2
    assert recording.warnings == ()
    posts = [call for p in recording.processes for call in p.calls if call.kind == CallKind.POST]
    assert len(posts) >= COUNT
    found = replayed(fabric, str(tmp_path), "--on", "ib-hdr")
    assert found["time_ns"] > COUNT * 100
    assert not any("not recorded" in note for note in found["notes"])


def test_a_killed_program_leaves_what_it_did(fabric: Stage, tmp_path: Path) -> None:
    port = free_port()
    server = ["ib_write_bw", "-F", "-D", "30", "-p", str(port)]
    run = ("run", "--record", str(tmp_path))
    with (
        Program(fabric.nupa(*run, "--host", "host0", "--", *server), env=fabric.env) as first,
        Program(
            fabric.nupa(*run, "--host", "host1", "--", "sh", "-c",
                        f"sleep 1; exec {' '.join(server)} localhost"),
            env=fabric.env,
        ) as second,
    ):  # fmt: skip
        while not any(file.stat().st_size > 3 << 20 for file in tmp_path.glob(f"*{SUFFIX}")):
            assert first.running, first.outcome().describe()
            assert second.running, second.outcome().describe()
        first.kill("was killed: the test wants it so")
        second.kill("was killed: the test wants it so")
    recording = read(str(tmp_path))
    assert any("was killed" in warning for warning in recording.warnings)
    assert sum(len(process.calls) for process in recording.processes) > 1000


def test_a_recording_of_another_fabric_is_not_mixed_in(stage: Stage, tmp_path: Path) -> None:
    stage.ok("up")
    recorded(stage, tmp_path, "ib_write_lat", "-F", "-n", "5")
    stage.ok("down")
    stage.ok("up")
    outcome = stage.run(stage.nupa("run", "--record", str(tmp_path), "--", "true"))
    stage.ok("down")
    assert outcome.returncode == 1
    assert "has a recording of another fabric" in outcome.stderr


def test_a_program_without_verbs_is_told_of(fabric: Stage, tmp_path: Path) -> None:
    outcome = fabric.run(fabric.nupa("run", "--record", str(tmp_path / "r"), "--", "true"))
    assert outcome.returncode == 0
    assert "nothing was recorded" in outcome.stderr
