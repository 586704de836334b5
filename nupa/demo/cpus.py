# SPDX-License-Identifier: BSD-3-Clause
"""Two CPUs to measure between: as two hosts have them, not two threads of one core."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


def pick_two(
    usable: Collection[int] | None = None, topology: Path = _TOPOLOGY
) -> tuple[int, int] | None:
    """The lowest usable CPU, and the next of another core of its package if there is one.

    Where the topology is hidden, the two lowest; None if this process may use one CPU only.
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
    """One number of /sys/devices/system/cpu/cpuN/topology; None where it is hidden."""
    try:
        return (topology / f"cpu{cpu}" / "topology" / name).read_text().strip()
    except OSError:
        return None
