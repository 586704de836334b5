# SPDX-License-Identifier: BSD-3-Clause
"""rsockets, call by call.  Each scenario is a function of a script beside this file, run on host0.
The script starts a process on host1 for the other ends of its connections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.programs.stage import Stage

SCRIPTS = Path(__file__).parent


def scenarios(script: str) -> list[str]:
    """Returns the public functions of one script."""
    return re.findall(r"^def ([a-z]\w*)", (SCRIPTS / f"{script}.py").read_text(), re.MULTILINE)


def play(stage: Stage, script: str, scenario: str) -> None:
    command = [stage.user.python, str(SCRIPTS / f"{script}.py"), scenario]
    stage.run(stage.nupa_run(command)).check()


@pytest.mark.parametrize("scenario", scenarios("streams"))
def test_a_stream_carries_bytes(stage: Stage, scenario: str) -> None:
    play(stage, "streams", scenario)


@pytest.mark.parametrize("scenario", scenarios("ends"))
def test_a_stream_begins_and_ends(stage: Stage, scenario: str) -> None:
    play(stage, "ends", scenario)


@pytest.mark.parametrize("scenario", scenarios("datagrams"))
def test_datagrams_mappings_and_options(stage: Stage, scenario: str) -> None:
    play(stage, "datagrams", scenario)


@pytest.fixture(params=["cma", "relay", "denied"])
def forced(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Stage]:
    if request.param == "denied":
        yield replace(stage, denied=("host0",))
    else:
        yield replace(stage, mover=request.param)


@pytest.mark.parametrize(
    "scenario",
    [
        "every_byte_arrives_in_both_directions_at_once",
        "both_may_send_before_either_receives",
        "a_full_stream_refuses_more_until_the_peer_reads",
    ],
)
def test_a_stream_carries_bytes_by_any_mover(forced: Stage, scenario: str) -> None:
    play(forced, "streams", scenario)


def test_mapped_memory_is_written_by_any_mover(forced: Stage) -> None:
    play(forced, "datagrams", "mapped_memory_is_written_before_the_next_message")
