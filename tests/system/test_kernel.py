# SPDX-License-Identifier: BSD-3-Clause
"""Kernel modules in two guests: loaded, listed, a disk over them, and no warning."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.system import kernel

from .machine import Machine, booted
from .programs import net_up

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]

#: The kernel's own answers: without the drop-in libraries and the shim.
PLAIN = ("env", "-u", "LD_PRELOAD", "-u", "LD_LIBRARY_PATH")


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with booted(2, "cxl", "--modules") as machine:
        net_up(machine, "host0", "host1")
        yield machine


def _warnings(machine: Machine, host: str) -> str:
    log = machine.run(host, ["dmesg"]).stdout
    return "\n".join(line for line in log.splitlines() if "WARNING" in line or "BUG" in line)


def test_each_kernel_is_listed_among_the_attachments(machine: Machine) -> None:
    shown = machine.nupa("show", "--fabric", machine.name).stdout
    assert [line.split()[2] for line in shown.splitlines() if " nupa_core " in line] == [
        "host0",
        "host1",
    ]


def test_the_link_is_active_beside_nupa_net0(machine: Machine) -> None:
    shown = machine.run("host0", [*PLAIN, "rdma", "link"]).stdout
    assert "link nupa_rdma0/1 state ACTIVE physical_state LINK_UP netdev nupa_net0" in shown


def test_a_disk_over_fabrics_reads_what_was_written(machine: Machine) -> None:
    for host, role in (("host0", "target"), ("host1", "initiator")):
        machine.run(host, [*PLAIN, sys.executable, kernel.__file__, role], deadline_s=200)
    assert _warnings(machine, "host0") == _warnings(machine, "host1") == ""


def test_unloaded_modules_leave_the_fabric(machine: Machine) -> None:
    machine.run("host1", [*PLAIN, sys.executable, kernel.__file__, "unload"], deadline_s=200)
    shown = machine.nupa("show", "--fabric", machine.name).stdout
    assert [line.split()[2] for line in shown.splitlines() if " nupa_core " in line] == ["host0"]
    assert _warnings(machine, "host1") == ""
