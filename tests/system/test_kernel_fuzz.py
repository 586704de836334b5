# SPDX-License-Identifier: BSD-3-Clause
"""Hostile writes into the segment while guests' kernels carry traffic: transfers may fail.

No kernel warns, hangs or ends, its modules can be unloaded, and attach again once the segment is
whole.  NUPA_TEST_SEED is the seed, which is printed; NUPA_FUZZ_SECONDS how long each part is
written to.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from . import fuzzed_guest, kernel
from .hostile_segment import HostileSegment
from .machine import PLAIN, Machine, booted, new_port

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(3600)]

SEED = int(os.environ.get("NUPA_TEST_SEED", random.SystemRandom().getrandbits(32)))
SECONDS = float(os.environ.get("NUPA_FUZZ_SECONDS", "8"))
EACH_MS = 20
#: So long goes traffic on afterwards.
AFTER_S = 2.0
SLOW_S = 120.0
#: The modules go within so many seconds: what they owe to others is waited for 1 s.
LEAVE_MAX_S = 20.0
AREAS = (
    "polite messages",
    "datagrams",
    "tables",
    "counts",
    "hazards",
    "contacts",
    "ports",
    "control",
    "regions",
    "rings",
    "messages",
    "slots",
    "claims",
    "geometry",
)


class Guests:
    """The guests of a machine whose segment is written to."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._words = {host: self._parameters(host) for host in machine.hosts}
        for number, host in enumerate(machine.hosts):
            self._run(host, "begin", str(number), str(len(machine.hosts)))
        self.segment = HostileSegment(machine.segment())

    def _parameters(self, host: str) -> list[str]:
        folder = "/sys/module/nupa_core/parameters"
        script = f"cd {folder}; for each in base bytes host; do echo $each=$(cat $each); done"
        return self.machine.plain(host, ["sh", "-c", script]).stdout.split()

    @staticmethod
    def _argv(*words: str) -> list[str]:
        return [sys.executable, fuzzed_guest.__file__, *words]

    def _run(self, host: str, *words: str) -> str:
        return self.machine.plain(host, self._argv(*words), deadline_s=SLOW_S).stdout

    def attach(self) -> None:
        self.segment.heal()
        for host in self.machine.hosts:
            self._run(host, "attach", *self._words[host])

    def leave(self) -> list[float]:
        """Unloads the modules; returns the seconds that each guest took."""
        return [float(self._run(host, "leave")) for host in self.machine.hosts]

    def _traffic(self, host: str, seconds: str, port: str) -> list[str]:
        server, words = self.machine.hosts[0], ["traffic", seconds, port]
        if host != server:
            words.append(server)
        return self.machine.argv(host, [*PLAIN, *self._argv(*words)])

    @contextmanager
    def traffic(self, seconds: float) -> Iterator[list[tuple[int, int]]]:
        """Runs programs in all guests, and yields when one has ended well in each.

        The list has at the end how many each guest began, and how many ended well.
        """
        port = str(new_port())
        counts: list[tuple[int, int]] = []
        with ExitStack() as stack:
            programs = [
                stack.enter_context(self.machine.program(self._traffic(host, str(seconds), port)))
                for host in self.machine.hosts
            ]
            for program in programs:
                program.wait_said("good", SLOW_S * kernel.PATIENCE)
            yield counts
            for program in programs:
                outcome = self.machine.wait(program, seconds + SLOW_S)
                assert outcome.ok, outcome.describe()
                begun, good = outcome.stdout.split()[1:]
                counts.append((int(begun), int(good)))


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with booted(2, "cxl", "--modules") as machine:
        yield machine


@pytest.fixture(scope="module")
def guests(machine: Machine) -> Guests:
    print(f"NUPA_TEST_SEED={SEED}")
    return Guests(machine)


def test_each_generator_has_its_turn(guests: Guests) -> None:
    assert guests.segment.areas() == list(AREAS)


def test_without_hostile_writes_all_goes_well(guests: Guests) -> None:
    guests.attach()
    with guests.traffic(AFTER_S + SECONDS) as counts:
        pass
    assert all(begun >= good > 0 for begun, good in counts), counts
    guests.leave()


@pytest.mark.parametrize("area", AREAS)
def test_a_kernel_survives_hostile_writes(machine: Machine, guests: Guests, area: str) -> None:
    guests.attach()
    with guests.traffic(AFTER_S + SECONDS) as counts:
        writes = guests.segment.scribble(area, SEED, SECONDS, EACH_MS)
    took_s = guests.leave()
    warnings = {host: machine.warnings(host) for host in machine.hosts}
    print(f"{area}: {writes} writes, programs {counts}, left in {took_s} s")
    assert warnings == {host: [] for host in machine.hosts}
    assert max(took_s) < LEAVE_MAX_S * kernel.PATIENCE


def test_a_segment_that_is_whole_again_serves_anew(machine: Machine, guests: Guests) -> None:
    guests.attach()
    with guests.traffic(AFTER_S + SECONDS) as counts:
        pass
    assert all(good > 0 for _, good in counts), counts
    guests.leave()
    assert all(machine.warnings(host) == [] for host in machine.hosts)
