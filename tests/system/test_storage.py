# SPDX-License-Identifier: BSD-3-Clause
"""`nupa vm storage` in real guests: small jobs, whose data fio verifies, over each transport."""

from __future__ import annotations

import json
import signal
from contextlib import closing

import pytest

from nupa.programs import disk
from nupa.vm.storage.transport import TRANSPORTS

from .machine import BOOT_S, DEADLINE_S, Machine, StallError

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]

#: Each transport is verified and measured by five workloads, on emulated processors.
RUN_S = 2 * BOOT_S + 300.0
SMALL = ("--seconds", "500ms", "--size", "4M", "--kind", "ivshmem", "--timeout", f"{BOOT_S:g}")


def _measure(protocol: str) -> None:
    # Machine.close() finds guests and segments that were left.
    with closing(Machine()) as machine:
        words = ["vm", "storage", protocol, "--name", machine.name, *SMALL, "--json"]
        outcome = machine.nupa(*words, deadline_s=RUN_S)
        assert outcome.stdout, outcome.describe()
        found = json.loads(outcome.stdout)
        assert found["failures"] == []
        measured = {(each["transport"], each["direction"]) for each in found["results"]}
        assert measured == {(each.name, way) for each in TRANSPORTS for way in ("read", "write")}
        assert len(found["results"]) == len(TRANSPORTS) * len(disk.WORKLOADS)
        assert all(each["operations_per_s"] > 0 for each in found["results"])
        assert machine.left() == []


def _once_more(protocol: str) -> None:
    try:
        _measure(protocol)
    except StallError as stalled:
        print(f"once more, since an emulator may stand still: {stalled}")
        _measure(protocol)


def test_nvme_over_fabrics_is_verified_and_measured_over_each_transport() -> None:
    _once_more("nvme")


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["nfs", "iser"])
def test_nfs_and_iser_are_verified_and_measured_over_each_transport(protocol: str) -> None:
    _once_more(protocol)


@pytest.mark.long
def test_an_interrupted_measurement_leaves_nothing() -> None:
    with closing(Machine()) as machine:
        words = machine.nupa_argv("vm", "storage", "nvme", "--name", machine.name, *SMALL)
        with machine.program(words) as program:
            machine.until(lambda: program.has_said("[2/"), program, RUN_S)
            program.signal(signal.SIGINT)
            assert machine.wait(program, DEADLINE_S).returncode == 128 + signal.SIGINT
        assert machine.left() == []
