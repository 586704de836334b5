# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.trunk`: checked traffic between machines while processes die, and cables go.

The workers are those of tests/soak; two thirds of their connections cross the trunk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nupa
from tests.soak.crew import Place, Role, build
from tests.soak.director import Director
from tests.soak.links import SoakError
from tests.soak.soak import Report
from tests.trunk.lab import NAME, Cluster, Machine, cluster

_MACHINES = 3
_HOSTS = 9


class TrunkDirector(Director):
    """XRC does not cross machines, and bulk to other machines goes by relay alone."""

    services = {"UC": 25, "RC": 75}  # noqa: RUF012

    def __init__(self, *args: Any, n_workers: int, **options: Any) -> None:
        super().__init__(*args, n_workers=n_workers, **options)
        self._roles = [
            Role(i, None, events=i % 4 != 0, spared=i < _MACHINES) for i in range(n_workers)
        ]


def run_trunk_soak(
    *, seconds: float, seed: int, n_workers: int, n_links: int, say: Callable[[str], None]
) -> Report:
    """Runs a soak on three machines; nothing of it stays."""
    replay = (
        f"python -m tests.trunk --seed {seed} --seconds {seconds:g} --workers {n_workers} "
        f"--links {n_links}"
    )
    say(f"soak: {replay}")
    folder = Path(tempfile.mkdtemp(prefix="nupa-soak-"))
    start = time.monotonic()
    try:
        program = build(folder)
        with cluster(folder, _MACHINES, hosts=_HOSTS) as lab:
            lab.up().check()
            director = TrunkDirector(
                [place for machine in lab.machines for place in _places(machine)],
                program,
                seed=seed,
                n_workers=n_workers,
                n_links=n_links,
                env=_environment(),
                say=say,
            )
            try:
                director.run(seconds)
                _check_machines(lab, director, say)
            except SoakError:
                pass  # it is among the failures, and was told
            finally:
                director.close()
    finally:
        shutil.rmtree(folder)
    if director.figures.failures:
        say(f"again: {replay}")
    return Report(replay, time.monotonic() - start, director.figures)


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(Path(nupa.__file__).with_name("lib")),
        "NUPA_QUIET": "1",
        # Else what a thread keeps for its next malloc counts as held.
        "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    }


def _places(machine: Machine) -> list[Place]:
    shown = machine.show()
    (own,) = [each["hosts"] for each in shown["machines"] if each["name"] == machine.name]
    env = {**machine.env, "NUPA_FABRIC": shown["path"]}
    prefix = tuple(machine.space.argv())
    return [
        Place(host["name"], host["ipv4"], machine.space.number, prefix, env)
        for host in shown["hosts"]
        if host["name"] in own
    ]


def _check_machines(lab: Cluster, director: Director, say: Callable[[str], None]) -> None:
    """Checks that no machine has an attachment left, its own or another's, and all are joined."""
    for number, machine in enumerate(lab.machines):
        for host in machine.show()["hosts"]:
            if host["processes"]:
                director.figures.leaked_slots += len(host["processes"])
                director.figures.failures.append(
                    f"{machine.name} has {host['processes']} at {host['name']}"
                )
                say(director.figures.failures[-1])
        states = {name: state for name, state in machine.states().items() if state != "here"}
        if set(states.values()) != {"up"}:
            director.figures.failures.append(f"{NAME}: machine {number} sees {states}")
            say(director.figures.failures[-1])
