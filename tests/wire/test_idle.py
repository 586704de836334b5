# SPDX-License-Identifier: BSD-3-Clause
"""A wire that carries nothing costs nearly nothing: one thread of a process, which sleeps."""

from __future__ import annotations

import re
import time
from pathlib import Path

from nupa.programs.pair import Program
from tests.programs.stage import DEADLINE_S
from tests.wire.lab import Wired
from tests.wire.talk import held

THREAD = "nupa-wire"
WINDOW_S = 2.0
MOST = 0.02  # of a CPU


def pid_of(program: Program) -> int:
    """Returns the pid of one end of held.py, once its QPs have carried something."""
    program.wait_said(".", DEADLINE_S)
    found = re.search(r"pid (\d+)\.", program.said()[0])
    assert found, program.said()
    return int(found[1])


def threads(pid: int, name: str = "") -> list[Path]:
    """Lists the threads of a process, of that name if one is given."""
    every = Path(f"/proc/{pid}/task").iterdir()
    return [each for each in every if name in ("", (each / "comm").read_text().strip())]


def used_ns(those: list[Path]) -> int:
    """Returns the CPU time of threads."""
    return sum(int((each / "schedstat").read_text().split()[0]) for each in those)


def test_a_process_has_one_thread_for_each_wire_and_idle_ones_sleep(two_wires: Wired) -> None:
    keepers = [entry["keeper"] for end in (0, 1) for entry in two_wires.side(end).wires()]
    with held(two_wires, "--gids", "3,4") as programs:
        pids = [pid_of(program) for program in programs]
        ports = {pid: threads(pid, THREAD) for pid in pids}
        assert [len(found) for found in ports.values()] == [2, 2]
        watched = [*(thread for found in ports.values() for thread in found)]
        watched += [thread for pid in keepers for thread in threads(pid)]
        before = {thread: used_ns([thread]) for thread in watched}
        from_s = time.monotonic()
        time.sleep(WINDOW_S)  # that is what is measured
        used = {thread: used_ns([thread]) - before[thread] for thread in watched}
        passed_ns = (time.monotonic() - from_s) * 1e9
        assert {pid: threads(pid, THREAD) for pid in pids} == ports
    share = {str(thread): ns / passed_ns for thread, ns in used.items()}
    assert max(share.values()) < MOST, share
