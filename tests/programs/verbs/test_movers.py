# SPDX-License-Identifier: BSD-3-Clause
"""The self-test at first contact chooses the mover, and programs do not notice which."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tests.programs.stage import Stage

FOR_EVER = ["ibv_rc_pingpong", "-g", "1", "-n", "1000000000"]


def movers(stage: Stage) -> dict[str, str]:
    """Returns the movers by host, as `nupa show` says while two programs run."""
    with stage.pair(FOR_EVER) as pair:
        pair.start_server()
        pair.start_client()
        found = stage.wait_for_contact(pair)
        for program in pair.server, pair.client:
            program.signal(signal.SIGTERM)
        pair.wait()
    return found


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        ((), {"host0": "cma", "host1": "cma"}),
        (("host0", "host1"), {"host0": "relay", "host1": "relay"}),
        (("host0",), {"host0": "relay", "host1": "cma"}),
        (("host1",), {"host0": "cma", "host1": "relay"}),
    ],
)
def test_each_end_takes_what_it_is_allowed(
    by_user: Stage, denied: tuple[str, ...], expected: dict[str, str]
) -> None:
    assert movers(replace(by_user, denied=denied)) == expected


def test_a_forced_mover_is_taken(moved: Stage) -> None:
    # A ping-pong registers nothing that peers may touch, so nothing of it is shared.
    taken = "relay" if moved.mover == "shared" else moved.mover
    assert set(movers(moved).values()) == {taken}


@pytest.mark.parametrize("denied", ["host0", "host1"])
@pytest.mark.parametrize("program", ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"])
@pytest.mark.parametrize("size", ["64", "65536"])
def test_data_is_intact_where_only_one_end_is_denied(
    stage: Stage, denied: str, program: str, size: str
) -> None:
    stage = replace(stage, denied=(denied,))
    result = stage.run_pair([program, "-g", "1", "-n", "100", "-r", "20", "-s", size, "-c", "-e"])
    assert "invalid data" not in result.server.stdout + result.client.stdout


@pytest.mark.parametrize("denied", ["host0", "host1"])
@pytest.mark.parametrize("verb", ["write", "read", "send", "atomic"])
def test_both_directions_go_where_only_one_end_is_denied(
    stage: Stage, denied: str, verb: str
) -> None:
    replace(stage, denied=(denied,)).run_pair([f"ib_{verb}_bw", "-F", "-b", "-n", "200"])


def test_a_forced_mover_that_is_denied_fails_with_a_reason(stage: Stage) -> None:
    stage = replace(stage, mover="cma", denied=("host1",))
    with stage.pair(FOR_EVER) as pair:
        pair.start_server()
        pair.start_client()
        client = pair.client.outcome()
        # The server has never heard of it.
        pair.server.signal(signal.SIGTERM)
        pair.wait()
    assert client.returncode == 1
    assert "transport retry counter exceeded" in client.stderr
    assert "NUPA_MOVER" in client.stderr
