# SPDX-License-Identifier: BSD-3-Clause
"""The guest of a storage target dies in the midst of I/O: the initiator is told in the time that it
has set, connects again by itself, and its data are right."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.system.upper import nvme

from . import programs, verbs
from .machine import BOOT_S, PLAIN, Machine, booted

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1500)]

TARGET, INITIATOR = "host0", "host1"
STEP_S = 300.0
#: A death is known in 2 s, and an I/O error follows 2 s later; emulated guests take their time.
ERROR_S = 60.0


@pytest.fixture
def machine() -> Iterator[Machine]:
    with booted(2, "cxl", "--modules") as machine:
        programs.net_up(machine, TARGET, INITIATOR)
        yield machine


def _role(name: str) -> list[str]:
    return [sys.executable, nvme.__file__, name]


def test_an_initiator_outlives_its_target(machine: Machine) -> None:
    machine.plain(TARGET, _role("target"), deadline_s=STEP_S)
    survivor = machine.start(INITIATOR, [*PLAIN, *_role("survivor")])
    machine.until(lambda: survivor.has_said("begun"), survivor, STEP_S)
    machine.signal(TARGET, signal.SIGKILL)
    machine.until(lambda: survivor.has_said("after"), survivor, ERROR_S)
    machine.start_again(TARGET)
    programs.net_up(machine, TARGET)
    machine.plain(TARGET, _role("target"), deadline_s=STEP_S)
    outcome = machine.wait(survivor, STEP_S + BOOT_S)
    assert outcome.ok, outcome.describe()
    assert re.search(r"Input/output error after [\d.]+ s\nequal\n", outcome.stdout)
    assert machine.warnings(INITIATOR) == machine.warnings(TARGET) == []


def test_an_initiator_that_stood_still_ends_its_connection(machine: Machine) -> None:
    """Its kernel was declared dead: its requests are flushed, and its queue pairs drain."""
    machine.plain(TARGET, _role("target"), deadline_s=STEP_S)
    loser = machine.start(INITIATOR, [*PLAIN, *_role("loser")])
    machine.until(lambda: loser.has_said("begun"), loser, STEP_S)
    with verbs.standing_still(machine, INITIATOR):
        pass
    outcome = machine.wait(loser, STEP_S)
    assert outcome.ok, outcome.describe()
    assert re.fullmatch(r"begun\nInput/output error after [\d.]+ s\n", outcome.stdout)
    assert machine.warnings(INITIATOR) == machine.warnings(TARGET) == []
    verbs.run(machine, INITIATOR, "unload", "nvme_rdma", "nupa_rdma", "nupa_net", "nupa_core")
