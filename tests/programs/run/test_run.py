# SPDX-License-Identifier: BSD-3-Clause
"""`nupa run` around RDMA programs: how they end, what they leave, where the fabric is."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from nupa.base.ownership import outer_uid
from nupa.programs.pair import NUPA, free_port
from tests.programs.stage import DEADLINE_S, Stage

FOR_EVER = ["ibv_rc_pingpong", "-g", "1", "-n", "1000000000"]


def test_the_exit_code_of_a_program_passes_through(stage: Stage) -> None:
    refused = ["ibv_rc_pingpong", "-g", "1", "-p", str(free_port()), "localhost"]
    assert stage.run(stage.nupa_run(refused)).returncode == 1
    then_3 = "ibv_devices; exit 3"
    outcome = stage.run(stage.nupa_run(["sh", "-c", then_3]))
    assert outcome.returncode == 3
    assert "nupa_rdma0" in outcome.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_the_signal_that_ends_a_program_passes_through(
    stage: Stage, number: signal.Signals
) -> None:
    with stage.pair(FOR_EVER) as pair:
        pair.start_server()
        # To the program alone: the only other process of its session is nupa.
        child = Path(f"/proc/{pair.server.pid}/task/{pair.server.pid}/children").read_text()
        os.kill(int(child), number)
        result = pair.server.outcome()
    assert result.returncode == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_nupa_ends_the_program_in_the_midst_of_its_work(
    stage: Stage, number: signal.Signals
) -> None:
    with stage.pair(FOR_EVER) as pair:
        pair.start_server()
        pair.start_client()
        stage.wait_for_contact(pair)
        os.kill(pair.client.pid, number)
        result = pair.wait()
    assert result.client.returncode == -number
    # IBV_WC_RETRY_EXC_ERR, and if it has nothing under way IBV_WC_WR_FLUSH_ERR.
    assert result.server.returncode == 1
    assert "Failed status" in result.server.stderr


def test_the_partner_of_a_program_that_is_killed_fails_at_once(moved: Stage) -> None:
    with moved.pair(FOR_EVER) as pair:
        pair.start_server()
        pair.start_client()
        moved.wait_for_contact(pair)
        pair.client.signal(signal.SIGKILL)
        pair.deadline_s = pair.elapsed_s + 5
        result = pair.wait()
    assert result.client.returncode == -signal.SIGKILL
    assert (result.server.returncode, result.server.killed) == (1, "")
    assert "Failed status" in result.server.stderr


def test_a_fabric_serves_again_after_its_programs_were_killed(stage: Stage) -> None:
    assert stage.run(stage.nupa("up")).ok
    for _ in range(3):
        with stage.pair(FOR_EVER) as pair:
            pair.start_server()
            pair.start_client()
            stage.wait_for_contact(pair)
            for program in pair.server, pair.client:
                program.signal(signal.SIGKILL)
            pair.wait()
        assert [host["processes"] for host in stage.show()["hosts"]] == [[], []]
    stage.run_pair(["ibv_rc_pingpong", "-g", "1", "-c"])
    assert stage.run(stage.nupa("down")).ok


def test_a_script_runs_both_ends_on_one_host(moved: Stage) -> None:
    """The client asks until the server listens."""
    pingpong = f"ibv_rc_pingpong -g 1 -c -p {free_port()}"
    script = f"{pingpong} & until {pingpong} localhost 2>/dev/null; do :; done; wait $!"
    outcome = moved.run(moved.nupa_run(["sh", "-c", script])).check()
    assert outcome.stdout.count("1000 iters in") == 2


@pytest.mark.parametrize("program", ["ib_write_bw", "ib_send_lat", "ib_read_bw", "ib_atomic_bw"])
def test_a_script_runs_perftest_on_one_host(moved: Stage, program: str) -> None:
    test = f"{program} -F -n 100 -p {free_port()}"
    script = f"{test} >/dev/null & until {test} localhost 2>/dev/null; do :; done; wait $!"
    moved.run(moved.nupa_run(["sh", "-c", script])).check()


def test_a_host_that_is_not_there_is_named(stage: Stage) -> None:
    outcome = stage.run(stage.nupa_run(["ibv_devices"], "host7"))
    assert outcome.returncode == 1
    assert outcome.stderr == (
        "nupa: the fabric 'default' has no host 'host7': its hosts are host0, host1\n"
    )


def test_a_fabric_that_is_not_there_is_named(stage: Stage) -> None:
    outcome = stage.run(stage.nupa("run", "--fabric", "rack", "--", "ibv_devices"))
    assert outcome.returncode == 1
    assert outcome.stderr == (
        "nupa: no fabric is named 'rack'; up are: none; `nupa up --fabric rack` makes it\n"
    )


def test_the_default_fabric_is_in_the_users_own_folder_and_goes_with_its_last_user() -> None:
    """Unless it was up before: then it stays."""
    fabric = Path(f"/dev/shm/nupa-{outer_uid()}/nupa-{os.geteuid()}-default")
    was_up = fabric.exists()
    done = subprocess.run(
        [*NUPA, "run", "--fabric", "default", "--", "sh", "-c", 'ls "$NUPA_FABRIC"; ibv_devices'],
        env={name: value for name, value in os.environ.items() if name != "NUPA_DIR"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == str(fabric)
    assert "nupa_rdma0" in done.stdout
    assert fabric.exists() == was_up
