# SPDX-License-Identifier: BSD-3-Clause
"""No livelock: programs that poll finish on cores that others keep busy, and on a single core."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from nupa.programs.pair import Program
from tests.programs.stage import Stage

CPUS = sorted(os.sched_getaffinity(0))
POLLING = [
    ["ib_send_lat", "-F", "-s", "8", "-n", "1000"],
    ["ib_write_lat", "-F", "-s", "8", "-n", "100"],
    ["ib_read_lat", "-F", "-s", "8", "-n", "1000"],
    ["ib_write_bw", "-F", "-s", "65536", "-n", "1000", "-b"],
    ["ib_send_bw", "-F", "-s", "8", "-n", "5000", "-b"],
    ["ibv_rc_pingpong", "-g", "1", "-n", "1000"],
]


@pytest.fixture
def burners() -> Iterator[list[Program]]:
    """A process on each of two CPUs (of one, if there is but one) that computes for ever."""
    cpus = CPUS[0], CPUS[-1]
    programs = [Program([sys.executable, "-c", "while True: pass"], cpu=cpu) for cpu in cpus]
    yield programs
    for program in programs:
        program.close()


@pytest.mark.parametrize("command", POLLING, ids=lambda command: command[0])
def test_two_that_poll_finish_on_two_busy_cores(
    moved: Stage, burners: list[Program], command: list[str]
) -> None:
    moved.run_pair(command, cpus=(CPUS[0], CPUS[-1]))
    assert all(burner.running for burner in burners)


@pytest.mark.parametrize("command", POLLING, ids=lambda command: command[0])
def test_two_that_poll_finish_on_one_core(moved: Stage, command: list[str]) -> None:
    moved.run_pair(command, cpus=(CPUS[0], CPUS[0]))
