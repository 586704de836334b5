# SPDX-License-Identifier: BSD-3-Clause
"""The choice of two CPUs, on machines made of files."""

from __future__ import annotations

import os
from pathlib import Path

from nupa.programs.cpus import busy_cpus, load_note, pick_two


def machine(root: Path, cpus: dict[int, tuple[int, int]]) -> Path:
    """Makes a folder of *cpus*: number -> (package, core)."""
    for cpu, (package, core) in cpus.items():
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")
    return root


def test_two_threads_of_one_core_are_avoided(tmp_path: Path) -> None:
    root = machine(tmp_path, {0: (0, 0), 1: (0, 0), 2: (0, 1), 3: (0, 1)})
    assert pick_two([0, 1, 2, 3], root) == (0, 2)


def test_another_core_of_the_same_package_is_better_than_one_of_the_next(tmp_path: Path) -> None:
    root = machine(tmp_path, {0: (0, 0), 1: (1, 0), 2: (0, 1)})
    assert pick_two([0, 1, 2], root) == (0, 2)


def test_two_threads_of_one_core_are_better_than_nothing(tmp_path: Path) -> None:
    assert pick_two([4, 5], machine(tmp_path, {4: (0, 2), 5: (0, 2)})) == (4, 5)


def test_where_the_topology_is_hidden_the_two_lowest_are_taken(tmp_path: Path) -> None:
    assert pick_two([7, 3, 5], tmp_path) == (3, 5)


def test_one_cpu_is_not_enough(tmp_path: Path) -> None:
    assert pick_two([3], tmp_path) is None


def test_busy_cpus_are_the_time_that_was_not_idle(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 1000 20 0 0 0 0 0\ncpu0 1 2 3\n")

    def later(seconds: float) -> None:
        """Counts one CPU in user, half of one in system mode, the rest idle or waiting for a
        disk."""
        passed = int(ticks * seconds)
        stat.write_text(
            f"cpu  {100 + passed} 0 {50 + passed // 2} {1000 + passed} {20 + passed} 0 0 0 0 0\n"
        )

    assert busy_cpus(2.0, stat=stat, sleep=later) == 1.5


def test_a_busy_machine_is_worth_a_note_and_a_quiet_one_is_not() -> None:
    assert load_note(0.1) == ""
    assert "busy with other work (1.5 CPUs)" in load_note(1.5)
