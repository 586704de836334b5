# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.trunk`: checked traffic between machines while processes and trunks die.

The workers are those of tests/soak; two thirds of their connections cross the trunk.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.soak.command import say
from tests.soak.crew import Place, build, environment
from tests.soak.director import Director
from tests.soak.soak import Report, conduct
from tests.trunk.director import TrunkDirector
from tests.trunk.lab import NAME, Cluster, Machine, cluster

_MACHINES = 3
_HOSTS = 9


#: A death is told to a trunk, by it to another, and by that to a process: each waits for a CPU.
_HOPS = 3


class TrunkReport(Report):
    """The report of a soak of trunks."""

    @property
    def limit_ms(self) -> float:
        return _HOPS * super().limit_ms


def run_trunk_soak(
    *, seconds: float, seed: int, workers: int, links: int, say: Callable[[str], None] = say
) -> Report:
    """Checked traffic in one fabric on three machines, while processes and trunks die and cables
    are pulled."""
    replay = (
        f"python -m tests.trunk --seed {seed} --seconds {seconds:g} --workers {workers} "
        f"--links {links}"
    )
    say(f"soak: {replay}")
    folder = Path(tempfile.mkdtemp(prefix="nupa-soak-"))
    start = time.monotonic()
    try:
        program = build(folder)
        with cluster(folder, _MACHINES, hosts=_HOSTS) as lab:
            lab.up().check()
            director = TrunkDirector(
                lab,
                [place for machine in lab.machines for place in _places(machine)],
                program,
                seed=seed,
                n_workers=workers,
                n_links=links,
                env=environment(),
                say=say,
            )
            found = conduct(director, seconds, partial(_check_machines, lab, director, say))
    finally:
        shutil.rmtree(folder)
    if found.failures:
        say(f"again: {replay}")
    return TrunkReport(replay, time.monotonic() - start, found)


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
