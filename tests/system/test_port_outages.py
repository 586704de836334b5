# SPDX-License-Identifier: BSD-3-Clause
"""A host's port on the fabric goes down while a disk over NVMe over Fabrics is written, and comes
up again: whatever the initiator was told, its data are right."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from nupa.programs.pair import Program
from tests.programs.needs import needs
from tests.system.upper import nvme, outage

from . import programs
from .machine import PLAIN, Machine, booted

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1500)]

TARGET, INITIATOR = "host0", "host1"
STEP_S = 300.0
#: The queue pairs of nvme-rdma give up after 4.3 s; emulated guests take their time.
ERROR_S = 60.0
#: Longer than that: what ends the connection is not its keep-alive.
_LONG_KEPT = "keep_alive_tmo=60"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    needs("fio", "fio")
    with booted(2, "cxl", "--modules") as machine:
        programs.net_up(machine, TARGET, INITIATOR)
        machine.plain(TARGET, [sys.executable, nvme.__file__, "target"], deadline_s=STEP_S)
        yield machine


@pytest.fixture(autouse=True)
def _up_and_no_defect(machine: Machine) -> Iterator[None]:
    yield
    for host in machine.hosts:
        machine.nupa("port", host, "up", "--fabric", machine.name).check()
    assert {host: machine.warnings(host) for host in machine.hosts} == {TARGET: [], INITIATOR: []}


def _port(machine: Machine, host: str, state: str) -> None:
    machine.nupa("port", host, state, "--fabric", machine.name).check()


def _start(machine: Machine, script: str, *words: str) -> Program:
    started = machine.start(INITIATOR, [*PLAIN, sys.executable, script, *words])
    machine.until(lambda: started.has_said("begun"), started, STEP_S)
    return started


def _said(machine: Machine, program: Program) -> str:
    return machine.wait(program, STEP_S).check().stdout


@pytest.mark.parametrize("host", [TARGET, INITIATOR])
def test_a_short_outage_is_a_pause(machine: Machine, host: str) -> None:
    """The queue pairs repeat their requests, so neither end notices."""
    fio = _start(machine, outage.__file__, _LONG_KEPT)
    _port(machine, host, "down")
    machine.until(lambda: fio.has_said("stands"), fio, ERROR_S)
    _port(machine, host, "up")
    shape = r"begun\nstands\nwent on after [\d.]+ s\nverified \d+ times\n"
    assert re.fullmatch(shape, _said(machine, fio))


@pytest.mark.parametrize("host", [TARGET, INITIATOR])
def test_requests_wait_for_a_new_connection_after_a_long_outage(
    machine: Machine, host: str
) -> None:
    """The queue pairs give up, the initiator connects again, and fio sees a pause only."""
    fio = _start(machine, outage.__file__, f"{_LONG_KEPT},reconnect_delay=1")
    _port(machine, host, "down")
    machine.until(lambda: fio.has_said("connecting"), fio, ERROR_S)
    _port(machine, host, "up")
    said = _said(machine, fio)
    assert re.search(r"\nconnecting\n(.*\n)*live\n(.*\n)*went on after [\d.]+ s\n", said)
    assert re.search(r"verified \d+ times\n$", said)


@pytest.mark.parametrize("host", [TARGET, INITIATOR])
def test_requests_fail_where_the_initiator_is_impatient(machine: Machine, host: str) -> None:
    writer = _start(machine, nvme.__file__, "survivor")
    _port(machine, host, "down")
    machine.until(lambda: writer.has_said("after"), writer, ERROR_S)
    _port(machine, host, "up")
    shape = r"begun\nInput/output error after [\d.]+ s\nequal\n"
    assert re.fullmatch(shape, _said(machine, writer))
