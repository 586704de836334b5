# SPDX-License-Identifier: BSD-3-Clause
"""A soak from beginning to end: a fabric of its own, the director's run, and the report."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nupa.fabric import Fabric
from nupa.topology.file import load

from .command import say
from .crew import Place, build, environment
from .director import Director
from .links import Figures, SoakError

# p99 of the time from a death, as the kernel tells it, to the partner's completion, besides the
# machine's own time.  A dying process needs the processor, and so does its partner: the time from
# SIGKILL until the kernel tells of a death is a measure of that wait.
NOTICE_LIMIT_MS = 100.0


def _percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


@dataclass(frozen=True)
class Report:
    """The report of a soak."""

    replay: str
    seconds: float
    found: Figures
    notice_limit_ms: float = NOTICE_LIMIT_MS

    @property
    def p50_ms(self) -> float:
        return _percentile(self.found.notices_ms, 50)

    @property
    def p99_ms(self) -> float:
        return _percentile(self.found.notices_ms, 99)

    @property
    def stall_p99_ms(self) -> float:
        """From SIGKILL until the director was told by the pidfd."""
        return _percentile(self.found.stalls_ms, 99)

    @property
    def limit_ms(self) -> float:
        return self.notice_limit_ms + self.stall_p99_ms

    @property
    def good(self) -> bool:
        return not self.found.failures and self.p99_ms <= self.limit_ms

    def figures(self) -> dict[str, Any]:
        """Returns all figures; names say their units."""
        found = self.found
        return {
            "replay": self.replay,
            "seconds": round(self.seconds, 1),
            "operations": found.operations,
            "bytes_checked": found.bytes_checked,
            "datagrams_received": found.datagrams,
            "connections_by_rdma_cm": found.dials,
            "connections_not_told_of_a_death": found.untold,
            "links": dict(sorted(found.links.items())),
            "strikes": dict(sorted(found.strikes.items())),
            "wrong": found.wrong,
            "hung": found.hung,
            "leaked_segments": found.leaked_segments,
            "leaked_slots": found.leaked_slots,
            "leaked_ring_bytes": found.leaked_ring_bytes,
            "leaked_fds": found.leaked_fds,
            "leaked_heap_bytes": found.leaked_heap_bytes,
            "statuses_of_deaths": dict(sorted(found.statuses.items())),
            "deaths_timed": len(found.notices_ms),
            "death_to_completion_p50_ms": round(self.p50_ms, 2),
            "death_to_completion_p99_ms": round(self.p99_ms, 2),
            "machine_stall_p99_ms": round(self.stall_p99_ms, 2),
            "death_to_completion_limit_ms": round(self.limit_ms, 2),
            "longest_dereg_s": round(found.longest_dereg_s, 3),
            "failures": found.failures,
            "good": self.good,
        }

    def text(self) -> str:
        """Returns the same for people."""
        lines = []
        for name, value in self.figures().items():
            if isinstance(value, dict):
                value = ", ".join(f"{k} {v}" for k, v in value.items()) or "none"
            if isinstance(value, int) and not isinstance(value, bool):
                value = f"{value:,}"
            lines.append(f"{name.replace('_', ' '):32} {value}")
        return "\n".join(lines)


def _held_bytes(fabric: Fabric) -> int:
    """Returns the memory that the fabric's segment has."""
    return Path(fabric.path).stat().st_blocks * 512


def run_soak(
    *, seconds: float, seed: int, workers: int, links: int, say: Callable[[str], None] = say
) -> Report:
    """Checked traffic of all kinds in one fabric, while processes die.

    Nothing of it stays.  Failures are in the report and were given to *say*.
    """
    replay = (
        f"python -m tests.soak --seed {seed} --seconds {seconds:g} --workers {workers} "
        f"--links {links}"
    )
    say(f"soak: {replay}")
    folder = Path(tempfile.mkdtemp(prefix="nupa-soak-", dir="/dev/shm"))
    start = time.monotonic()
    before = os.environ.get("NUPA_DIR")
    os.environ["NUPA_DIR"] = str(folder)
    try:
        found = _run_in(folder, seconds, seed, workers, links, say)
    finally:
        if before is None:
            del os.environ["NUPA_DIR"]
        else:
            os.environ["NUPA_DIR"] = before
        shutil.rmtree(folder)
    if found.failures:
        say(f"again: {replay}")
    return Report(replay, time.monotonic() - start, found)


def _run_in(
    folder: Path,
    seconds: float,
    seed: int,
    workers: int,
    links: int,
    say: Callable[[str], None],
) -> Figures:
    build_folder = Path(tempfile.mkdtemp(prefix="nupa-soak-"))
    try:
        program = build(build_folder)
        with Fabric.create("soak", load("rack24")) as fabric:
            env = {**environment(), "NUPA_FABRIC": fabric.path}
            for host in fabric.hosts:
                host_env = {**env, "NUPA_HOST": host.name}
                subprocess.run([program, "warm-up"], env=host_env, check=True)
            empty_bytes = _held_bytes(fabric)
            director = Director(
                [Place(host.name, host.ipv4) for host in fabric.hosts],
                program,
                seed=seed,
                n_workers=workers,
                n_links=links,
                env=env,
                say=say,
            )
            check = partial(_check_fabric, fabric, director.figures, empty_bytes, folder, say)
            return conduct(director, seconds, check)
    finally:
        shutil.rmtree(build_folder)


def conduct(director: Director, seconds: float, check: Callable[[], None]) -> Figures:
    """Runs the director, and *check* once all workers have ended."""
    try:
        director.run(seconds)
        check()
    except SoakError:
        pass  # it is among the failures, and was told
    finally:
        director.close()
    return director.figures


def _check_fabric(
    fabric: Fabric, figures: Figures, empty_bytes: int, folder: Path, say: Callable[[str], None]
) -> None:
    """Checks that all processes are gone, and so is all that they had."""
    fabric.show()  # takes back what is left to take back
    figures.leaked_slots = len(fabric.processes())
    figures.leaked_ring_bytes = _held_bytes(fabric) - empty_bytes
    files = {path.name for path in folder.iterdir()} - {Path(fabric.path).name}
    figures.leaked_segments = len([name for name in files if not name.startswith(".")])
    for name in ("leaked_slots", "leaked_ring_bytes", "leaked_segments"):
        if getattr(figures, name):
            figures.failures.append(f"{name}: {getattr(figures, name)}")
            say(figures.failures[-1])
