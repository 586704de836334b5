# SPDX-License-Identifier: BSD-3-Clause
"""Collectives between processes: results, and the death of a rank at any moment."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.programs.pair import Program
from nupa.topology.topology import star

pytestmark = pytest.mark.usefixtures("folder")

NAME = "collectives"
RANKS = 4
#: A rank that reduces for ever, or to a given number of calls; it says what happens.
RANK = """
import sys
import numpy as np
from nupa.collectives import Communicator, RankError
rank, size, over, algorithm, calls, deadline = sys.argv[1:]
array = np.arange(70000, dtype="i8") + int(rank)
done = 0
try:
    with Communicator("job", int(rank), int(size), fabric="collectives", over=over,
                      deadline_s=float(deadline)) as ranks:
        while done != int(calls):
            found = ranks.all_reduce(array, algorithm=algorithm)
            n = int(size)
            assert (found == np.arange(70000) * n + n * (n - 1) // 2).all()
            done += 1
            if done == 3:
                print("reducing", flush=True)
except RankError as error:
    print("RankError:", error, flush=True)
    sys.exit(3)
print("all reduced")
"""


@pytest.fixture
def fabric(folder: Path) -> Iterator[Fabric]:
    del folder  # the segment is in it
    with Fabric.create(NAME, star(RANKS)) as made:
        yield made
    Fabric.remove(NAME, force=True)


def started(
    stack: ExitStack, over: str, algorithm: str, calls: int, deadline_s: float = 30
) -> list[Program]:
    words = [over, algorithm, str(calls), str(deadline_s)]
    return [
        stack.enter_context(Program([sys.executable, "-c", RANK, str(rank), str(RANKS), *words]))
        for rank in range(RANKS)
    ]


WAYS = [("verbs", "ring"), ("verbs", "tree"), ("windows", "ring"), ("windows", "in-network")]


@pytest.mark.parametrize(("over", "algorithm"), WAYS)
def test_processes_reduce_and_leave_nothing_behind(
    fabric: Fabric, over: str, algorithm: str
) -> None:
    with ExitStack() as stack:
        for program in started(stack, over, algorithm, 5):
            assert program.wait(deadline_s=40).check().stdout.endswith("all reduced\n")
    assert fabric.pool.regions() == []


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize(("over", "algorithm"), WAYS)
def test_a_rank_that_dies_is_an_error_of_all_others_soon(
    fabric: Fabric, over: str, algorithm: str, victim: int
) -> None:
    rng = random.Random(f"{over} {algorithm} {victim}")
    with ExitStack() as stack:
        programs = started(stack, over, algorithm, -1)
        for program in programs:
            program.wait_said("reducing", deadline_s=40)
        time.sleep(rng.uniform(0, 0.02))  # at any moment of a call
        programs[victim].signal(signal.SIGKILL)
        start_s = time.monotonic()
        for rank, program in enumerate(programs):
            if rank == victim:
                continue
            outcome = program.wait(deadline_s=10)
            assert outcome.returncode == 3, outcome.describe()
            assert "RankError" in outcome.stdout
        assert time.monotonic() - start_s < 8
    assert fabric.pool.regions() == []


@pytest.mark.parametrize(("over", "algorithm"), [WAYS[0], WAYS[-1]])
def test_a_rank_that_is_stopped_is_an_error_at_the_deadline(
    fabric: Fabric, over: str, algorithm: str
) -> None:
    del fabric
    with ExitStack() as stack:
        programs = started(stack, over, algorithm, -1, deadline_s=2)
        for program in programs:
            program.wait_said("reducing", deadline_s=40)
        programs[1].signal(signal.SIGSTOP)
        start_s = time.monotonic()
        for rank in (0, 2, 3):
            outcome = programs[rank].wait(deadline_s=25)
            assert outcome.returncode == 3, outcome.describe()
            assert "RankError" in outcome.stdout
        assert time.monotonic() - start_s < 20
