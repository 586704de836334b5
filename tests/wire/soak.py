# SPDX-License-Identifier: BSD-3-Clause
"""A soak of wires from beginning to end: two fabrics, the director's run, and the report."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.common import impair
from tests.common.impair import Impairment, impaired
from tests.common.namespaces import Namespace, machines
from tests.programs import users
from tests.soak.command import say
from tests.soak.crew import Place, build, environment
from tests.soak.links import Figures
from tests.soak.soak import Report, conduct
from tests.wire.director import RETRY_NS, TIMEOUT, WireDirector
from tests.wire.lab import GID_INDEX, HOSTS, Wired, wired

#: Impairments by their names on the command line.
LEVELS = {
    "none": Impairment(),
    "loss": Impairment(loss=0.01),
    "mild": Impairment(loss=0.002, duplicate=0.002, reorder=0.002, corrupt=0.002, mark=0.001),
    "harsh": Impairment(loss=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02, mark=0.01),
}
NOTICE_LIMIT_MS = 3 * RETRY_NS / 1e6


@dataclass(frozen=True)
class WireReport(Report):
    """The report of a soak of wires: *impaired* are counts of packets, on their way."""

    wires: dict[str, int] | None = None
    impaired: dict[str, int] | None = None

    def figures(self) -> dict[str, Any]:
        return {"wires": self.wires, "packets": self.impaired, **super().figures()}


def run_wire_soak(
    *,
    seconds: float,
    seed: int,
    workers: int,
    links: int,
    impairment: str = "none",
    say: Callable[[str], None] = say,
) -> WireReport:
    """Checked traffic between two machines, while processes and keepers die and cables go."""
    replay = (
        f"python -m tests.wire --seed {seed} --seconds {seconds:g} --workers {workers} "
        f"--links {links} --impairment {impairment}"
    )
    say(f"soak: {replay}")
    folder = Path(tempfile.mkdtemp(prefix="nupa-soak-"))
    packets = folder / "packets"
    start = time.monotonic()
    try:
        program = build(folder)
        with (
            machines(2) as pair,
            impaired(
                impair.build(folder), *pair, LEVELS[impairment], seed=seed, record=packets
            ) as counts,
            wired(pair, users.ourselves()) as stage,
        ):
            before = _Left.of(stage)
            director = WireDirector(
                stage,
                packets,
                [_place(stage, end) for end in (0, 1)],
                program,
                seed=seed,
                n_workers=workers,
                n_links=links,
                env=environment(),
                say=say,
            )
            check = partial(_check_machines, stage, before, director.figures, say)
            found = conduct(director, seconds, check)
            for end in (0, 1):
                director.count(stage.side(end).show()["wires"])
    finally:
        shutil.rmtree(folder)
    if found.failures:
        say(f"again: {replay}")
    passed = time.monotonic() - start
    return WireReport(replay, passed, found, NOTICE_LIMIT_MS, dict(director.counters), counts)


def _place(stage: Wired, end: int) -> Place:
    env = {
        **stage.env,
        "NUPA_FABRIC": stage.side(end).show()["path"],
        "SOAK_GID_INDEX": str(GID_INDEX),
        "SOAK_TIMEOUT": str(TIMEOUT),
        "SOAK_NETWORK": "1",
        "SOAK_MTU_BYTES": str(stage.side(end).wire()["mtu_bytes"]),
    }
    prefix = tuple(stage.machines[end].argv())
    return Place(HOSTS[end], stage.addresses[end], end, prefix, env)


@dataclass(frozen=True)
class _Left:
    """What there is while no program runs."""

    files: frozenset[str]
    processes: tuple[str, ...]  #: by their names
    sockets: int  #: of UDP
    attachments: int

    @classmethod
    def of(cls, stage: Wired) -> _Left:
        found = [process for machine in stage.machines for process in machine.processes()]
        shown = [stage.side(end).show() for end in (0, 1)]
        return cls(
            frozenset(path.name for path in stage.folder.iterdir()),
            tuple(sorted(_name(process.pid) for process in found)),
            sum(_sockets(machine) for machine in stage.machines),
            sum(len(host["processes"]) for each in shown for host in each["hosts"]),
        )


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _sockets(machine: Namespace) -> int:
    tables = [Path(f"/proc/{machine.holder.pid}/net/{name}") for name in ("udp", "udp6")]
    return sum(len(table.read_text().splitlines()) - 1 for table in tables)


def _check_machines(
    stage: Wired, before: _Left, figures: Figures, say: Callable[[str], None]
) -> None:
    """Checks that nothing is there that was not before the first worker."""
    after = _Left.of(stage)
    for name, was in vars(before).items():
        if (now := getattr(after, name)) != was:
            figures.failures.append(f"{name}: {now} are left, {was} were there before")
            say(figures.failures[-1])
