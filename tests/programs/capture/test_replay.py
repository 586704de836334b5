# SPDX-License-Identifier: BSD-3-Clause
"""nupa.replay repeats what `nupa run --capture` recorded of real programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nupa.programs.pair import ProgramPair, free_port
from nupa.replay import Report, replay
from tests.programs.rdmacm import cm_stage
from tests.programs.stage import DEADLINE_S, Stage


def recorded(
    stage: Stage, file: Path, server: list[str], client: list[str], port: int | None = None
) -> ProgramPair:
    """Runs both programs, the server's run with a capture.  *port*: TCP, that the server listens
    on."""
    argv = stage.nupa("run", "--host", "host0", "--capture", str(file), "--", *server)
    return ProgramPair(
        argv, stage.nupa_run(client, "host1"), env=stage.env, port=port, deadline_s=DEADLINE_S
    )


def replayed(file: Path, requests: int) -> Report:
    """Returns its report, which has to have *requests* of them, without a difference."""
    report = replay(file).raise_for_differences()
    assert report.played == requests, report
    # The capture ends with its program: an answer to the last requests may come later.
    assert report.not_comparable <= 2, report
    assert report.matched == requests - report.not_comparable
    assert not report.skipped
    return report


@pytest.mark.parametrize(
    ("command", "requests"),
    [
        (["ibv_rc_pingpong", "-g", "1", "-n", "20"], 40),
        (["ibv_uc_pingpong", "-g", "1", "-n", "20"], 40),
        (["ibv_ud_pingpong", "-g", "1", "-n", "20"], 40),
        (["ib_write_bw", "-n", "20", "-s", "20000"], 20),
        (["ib_write_lat", "-n", "20"], 40),
        (["ib_send_bw", "-n", "20", "-s", "9000"], 20),
        (["ib_read_lat", "-n", "20"], 20),
        (["ib_read_bw", "-n", "5", "-q", "3", "-b", "-s", "9000"], 30),
        (["ib_atomic_lat", "-n", "20"], 20),
        (["ib_atomic_lat", "-n", "20", "-A", "CMP_AND_SWAP"], 20),
    ],
    ids=lambda value: "_".join(value[:1] + value[4:]) if isinstance(value, list) else None,
)
def test_a_replay_of_what_a_program_did_matches(
    stage: Stage, tmp_path: Path, command: list[str], requests: int
) -> None:
    port = free_port()
    file = tmp_path / "x.pcapng"
    server = [*command, "-p", str(port)]
    recorded(stage, file, server, [*server, "localhost"], port).run().check()
    assert replayed(file, requests).hosts == 2


def test_a_replay_of_rping_matches_though_its_client_changes_what_is_read(
    fabric: Stage, tmp_path: Path
) -> None:
    rping = cm_stage.program("rping")
    port = cm_stage.port()
    file = tmp_path / "x.pcapng"
    both = ["-a", cm_stage.SERVER, "-p", port, "-C", "5", "-V"]
    with recorded(fabric, file, [rping, "-s", *both], [rping, "-c", *both]) as pair:
        pair.start_server()
        cm_stage.wait_for_listener(fabric, pair, port)
        pair.start_client()
        pair.wait().check()
    report = replay(file).raise_for_differences()
    # Of each ping: the client's address, the server's READ, the go-ahead, and the same for WRITE.
    assert report.matched + report.not_comparable == 30, report
    assert report.not_comparable <= 2
