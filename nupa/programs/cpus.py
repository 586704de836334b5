# SPDX-License-Identifier: BSD-3-Clause
"""The choice of two CPUs to measure on, and the load of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")
_BUSY_CPUS = 0.25


def pick_two(
    usable: Collection[int] | None = None, topology: Path = _TOPOLOGY
) -> tuple[int, int] | None:
    """Returns the lowest usable CPU, and the next one of another core of its package, if any.

    Without a topology, the two lowest; None if this process may use only one CPU.
    """
    cpus = sorted(os.sched_getaffinity(0) if usable is None else usable)
    if len(cpus) < 2:
        return None
    first = cpus[0]

    def distance(cpu: int) -> tuple[bool, bool, int]:
        same_core = _read(topology, cpu, "core_id") == _read(topology, first, "core_id")
        same_package = _read(topology, cpu, "physical_package_id") == _read(
            topology, first, "physical_package_id"
        )
        return (same_core and same_package, not same_package, cpu)

    return first, min(cpus[1:], key=distance)


def _read(topology: Path, cpu: int, name: str) -> str | None:
    """Returns a number of /sys/devices/system/cpu/cpuN/topology; None if it is hidden."""
    try:
        return (topology / f"cpu{cpu}" / "topology" / name).read_text().strip()
    except OSError:
        return None


def busy_cpus(
    interval_s: float = 0.2,
    *,
    stat: Path = Path("/proc/stat"),
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Returns how many CPUs were busy during an interval (proc_stat(5), line `cpu`)."""
    before = _cpu_ticks(stat)
    sleep(interval_s)
    after = _cpu_ticks(stat)
    spent = [later - earlier for earlier, later in zip(before, after, strict=True)]
    idle = spent[3] + spent[4]  # idle, iowait
    return (sum(spent) - idle) / os.sysconf("SC_CLK_TCK") / interval_s


def _cpu_ticks(stat: Path) -> list[int]:
    # user nice system idle iowait irq softirq steal; guest time is in user already.
    return [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:9]]


def load_note(busy: float) -> str:
    """Returns a note for readers of the numbers; empty on a quiet machine."""
    if busy < _BUSY_CPUS:
        return ""
    return f"the machine was busy with other work ({busy:.1f} CPUs): measure again when it is quiet"
