# SPDX-License-Identifier: BSD-3-Clause
"""Kernel modules in two guests: loaded, listed, a disk over them, and no warning."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.system import kernel
from tests.system.upper import nvme

from .machine import Machine, booted
from .programs import net_up

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with booted(2, "cxl", "--modules") as machine:
        net_up(machine, "host0", "host1")
        yield machine


def test_each_kernel_is_listed_among_the_attachments(machine: Machine) -> None:
    shown = machine.nupa("show", "--fabric", machine.name).stdout
    assert [line.split()[2] for line in shown.splitlines() if " nupa_core " in line] == [
        "host0",
        "host1",
    ]


def test_the_link_is_active_beside_nupa_net0(machine: Machine) -> None:
    shown = machine.plain("host0", ["rdma", "link"]).stdout
    assert "link nupa_rdma0/1 state ACTIVE physical_state LINK_UP netdev nupa_net0" in shown


def test_a_disk_over_fabrics_reads_what_was_written(machine: Machine) -> None:
    for host, role in (("host0", "target"), ("host1", "initiator")):
        machine.plain(host, [sys.executable, nvme.__file__, role], deadline_s=200)
    assert machine.warnings("host0") == machine.warnings("host1") == []


def test_unloaded_modules_leave_the_fabric(machine: Machine) -> None:
    modules = ["nvme_rdma", "nupa_rdma", "nupa_net", "nupa_core"]
    machine.plain("host1", [sys.executable, kernel.__file__, "unload", *modules], deadline_s=200)
    shown = machine.nupa("show", "--fabric", machine.name).stdout
    assert [line.split()[2] for line in shown.splitlines() if " nupa_core " in line] == ["host0"]
    assert machine.warnings("host1") == []
