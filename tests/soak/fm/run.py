# SPDX-License-Identifier: BSD-3-Clause
"""The fabric manager's soak: starts hosts, managers and who plugs devices in and out, and says what
was wrong."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.server.server import Server, path_of
from nupa.cxl.switch.vppb import SwitchError
from tests.soak.command import SoakReport

from .hosts import SoakHost
from .ledger import Ledger
from .managers import LEGAL, SoakManager
from .rack import EMPTY_PORT, HOSTS, MLD_PORTS, SLD_PORTS, Rack

_NAME = "soak"
_HOT_PLUG_PAUSE_S = 0.05
_ROOT = Path(__file__).parents[3]


@dataclass
class Report(SoakReport):
    operations: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    plugged: int = 0
    checked_bytes: int = 0

    def counts(self) -> dict[str, Any]:
        return {
            "operations": sum(self.operations.values()),
            "by_operation": dict(sorted(self.operations.items())),
            "refusals": sum(self.refusals.values()),
            "by_code": dict(sorted(self.refusals.items())),
            "hot_plugs": self.plugged,
            "checked_bytes": self.checked_bytes,
            "hosts": dict(self.hosts),
            "accesses_that_failed": dict(self.lost),
        }


class _Operator(threading.Thread):
    """Pulls devices out and puts them in, also elsewhere, and breaks links."""

    def __init__(self, rack: Rack, seed: int, stop: threading.Event) -> None:
        super().__init__(name="operator", daemon=True)
        self.plugged = 0
        self.error: BaseException | None = None
        self._rack = rack
        self._random = Random(seed)
        self._stop_event = stop

    def run(self) -> None:
        try:
            while not self._stop_event.wait(_HOT_PLUG_PAUSE_S):
                self._once()
        except BaseException as error:
            self.error = error

    def _once(self) -> None:
        switch, lock = self._rack.switch, self._rack.manager.lock
        port = switch.port(self._random.choice((*SLD_PORTS, *MLD_PORTS)))
        if self._random.random() < 0.5:
            with lock:
                port.set_link(False)
            self._stop_event.wait(0.002)
            with lock:
                port.set_link(True)
            return
        with lock:
            if port.device is None:
                return
            device = port.remove()
        self.plugged += 1
        self._stop_event.wait(0.002)
        with lock:
            other = switch.port(EMPTY_PORT)
            if self._random.random() < 0.2 and not other.bound:
                other.insert(device)
                other.remove()
            try:
                port.insert(device)
            except SwitchError:  # bound meanwhile as it cannot be
                for vcs, vppb, binding in switch.bindings:
                    if binding.port is port:
                        switch.unbind(vcs, vppb)
                port.insert(device)


def _descriptors() -> int:
    """Counts descriptors without the file of ones, which a process has once it has windows."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += "nupa-ones" not in str(each.readlink())
    return found


def run_soak(*, seconds: float, seed: int, threads: int = 2, processes: int = 2) -> Report:
    """Returns one soak."""
    report = Report(seed, seconds)
    gc.collect()
    threads_before, descriptors_before = threading.active_count(), _descriptors()
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, NUPA_DIR=folder):
        _soak(report, threads, processes)
        if left := [each.name for each in Path(folder).iterdir()]:
            report.wrong.append(f"left behind: {left}")
    if illegal := report.refusals.keys() - {code.name for code in LEGAL}:
        report.wrong.append(f"refused with {sorted(illegal)}")
    if (now := threading.active_count()) != threads_before:
        report.wrong.append(f"{now} threads, {threads_before} before")
    gc.collect()
    if (now := _descriptors()) != descriptors_before:
        report.wrong.append(f"{now} descriptors, {descriptors_before} before")
    return report


def _soak(report: Report, threads: int, processes: int) -> None:
    seed, ledger, stop = report.seed, Ledger(report.seed), threading.Event()
    rack = Rack(ledger)
    hosts = [SoakHost(rack, number, seed * 31 + number, stop) for number in range(HOSTS)]
    operator = _Operator(rack, seed * 37, stop)
    with Server(rack.manager, path_of(_NAME)).start():
        _manage(report, hosts, operator, stop, threads, processes)
        rack.tidy()
    report.wrong += rack.leaks()
    rack.close()
    if len(rack.manager._sessions):
        report.wrong.append(f"{len(rack.manager._sessions)} sessions")
    report.checked_bytes = ledger.checked_bytes
    for host in hosts:
        report.hosts.update(host.figures)
        report.lost.update(host.lost)
    report.plugged = operator.plugged
    for actor in (*hosts, operator):
        if actor.is_alive():
            report.wrong.append(f"{actor.name} does not end")
        if actor.error is not None:
            report.wrong.append(f"{actor.name}: {actor.error!r}")


def _manage(
    report: Report,
    hosts: list[SoakHost],
    operator: _Operator,
    stop: threading.Event,
    threads: int,
    processes: int,
) -> None:
    seeds = Random(report.seed)
    children = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.soak.fm.managers", _NAME),
                *(str(seeds.getrandbits(32)), str(report.seconds)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        for _ in range(processes)
    ]
    end = time.monotonic() + report.seconds
    lock = threading.Lock()

    def manage(number: int) -> None:
        with FabricManager.open(_NAME) as fm:
            manager = SoakManager(fm, number)
            try:
                manager.run(lambda: time.monotonic() > end)
            except Exception as error:
                report.wrong.append(f"a manager: {error!r}")
            with lock:
                report.operations += manager.operations
                report.refusals += manager.refusals

    managers = [
        threading.Thread(target=manage, args=(seeds.getrandbits(32),)) for _ in range(threads)
    ]
    for actor in (*managers, *hosts, operator):
        actor.start()
    for each in managers:
        each.join(report.seconds + 60)
        if each.is_alive():
            report.wrong.append("a manager does not end")
    for child in children:
        out, _ = child.communicate(timeout=report.seconds + 60)
        operations, refusals, error = json.loads(out)
        report.operations.update(operations)
        report.refusals.update(refusals)
        if error:
            report.wrong.append(f"a manager's process: {error}")
    stop.set()
    for actor in (*hosts, operator):
        actor.join(60)
