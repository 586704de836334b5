# SPDX-License-Identifier: BSD-3-Clause
"""The tenants' soak: starts the hosts' workers, exchanges and changes, and says what was wrong."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

from nupa.fabric import Fabric
from nupa.topology.topology import star
from tests.soak.command import SoakReport

from .changes import TENANTS, Changes
from .exchange import Verdict, exchange
from .host import SoakHost


@dataclass
class Report(SoakReport):
    outcomes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)

    def counts(self) -> dict[str, Any]:
        return {
            "exchanges": dict(sorted(self.outcomes.items())),
            "statuses": dict(sorted(self.statuses.items())),
            "changes": dict(sorted(self.changes.items())),
        }


class _Actor(threading.Thread):
    """Does *what* until the end, or until it goes wrong."""

    def __init__(self, name: str, what: Any, end: threading.Event, report: Report) -> None:
        super().__init__(name=name, daemon=True)
        self._what, self._stop_event, self._report = what, end, report

    def run(self) -> None:
        try:
            while not self._stop_event.is_set():
                self._what()
        except Exception as error:
            self._report.wrong.append(f"{self.name}: {error!r}")
            self._stop_event.set()


def run_soak(
    *,
    seconds: float,
    seed: int,
    hosts: int = 6,
    pairs: int = 2,
    enough: Callable[[Report], bool] = lambda _: False,
) -> Report:
    """Returns the report of one soak.  *pairs*: exchanges at a time; *enough*: ends it early."""
    report = Report(seed, seconds)
    name = f"soak-tenants-{os.getpid()}"
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric.create(name, star(hosts)))
        stack.callback(Fabric.remove, name, force=True)
        for number in range(TENANTS):
            fabric.tenants.add(f"tenant{number}")
        there = [SoakHost(name, host.name) for host in fabric.hosts]
        try:
            for host in there:
                host.ask("close")  # it has started
            _soak(report, fabric, there, pairs, enough)
        finally:
            ends = {host.name: host.end() for host in there}
        report.wrong += [f"{name} ended with {status}" for name, status in ends.items() if status]
    return report


def _soak(
    report: Report,
    fabric: Fabric,
    hosts: list[SoakHost],
    pairs: int,
    enough: Callable[[Report], bool],
) -> None:
    end, lock, seeds = threading.Event(), threading.Lock(), Random(report.seed)
    changes = Changes(fabric, hosts, seeds.getrandbits(32))
    # Changes come seldom enough that most exchanges see none.
    pace = Random(seeds.getrandbits(32))

    def note(verdict: Verdict) -> None:
        with lock:
            report.outcomes[verdict.outcome] += 1
            report.statuses[verdict.status] += 1
            if verdict.wrong is not None:
                report.wrong.append(verdict.wrong)
            if enough(report):
                end.set()

    def meet(rng: Random) -> None:
        a, b = rng.sample(hosts, 2)
        first, second = sorted((a, b), key=lambda host: host.name)
        with first.busy, second.busy:
            note(exchange(a, b, lambda host: fabric.host(host).pkeys, rng))

    def change() -> None:
        changes.once()
        end.wait(pace.expovariate(20))

    def actor(number: int) -> _Actor:
        rng = Random(seeds.getrandbits(32))
        return _Actor(f"exchange {number}", lambda: meet(rng), end, report)

    actors = [actor(number) for number in range(pairs)]
    actors.append(_Actor("changes", change, end, report))
    for each in actors:
        each.start()
    begun = time.monotonic()
    end.wait(report.seconds)
    end.set()
    for each in actors:
        each.join(120)
        if each.is_alive():
            report.wrong.append(f"{each.name} does not end")
    report.seconds = time.monotonic() - begun
    report.changes = changes.made
