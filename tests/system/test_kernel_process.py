# SPDX-License-Identifier: BSD-3-Clause
"""One wire between a kernel and a process: NVMe over Fabrics with the other end in nupa.verbs."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.needs import needs
from tests.system import nvme_process
from tests.system.upper import nvme, plan9

from .machine import PLAIN, Machine, booted, new_port
from .programs import address, net_up

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(900)]

PROCESS = (sys.executable, nvme_process.__file__)
SLOW_S = 200.0
TARGET_PORT = "4421"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with booted(1, "cxl", "--modules") as machine:
        net_up(machine, "host0", machine.here)
        yield machine


@pytest.fixture(scope="module")
def target(machine: Machine) -> tuple[str, ...]:
    """Serves a disk by the guest's kernel: the words by which nvme_process finds it."""
    machine.run("host0", [*PLAIN, sys.executable, nvme.__file__, "target"], deadline_s=SLOW_S)
    return nvme.ADDRESS, nvme.PORT, nvme.NQN


def connections(machine: Machine) -> int:
    """Returns the connected queue pairs of the guest's kernel."""
    shown = machine.run("host0", [*PLAIN, "rdma", "-j", "res", "show", "qp"]).stdout
    return sum(each["type"] == "RC" for each in json.loads(shown))


def test_a_process_reaches_a_disk_of_the_kernel(machine: Machine, target: tuple[str, ...]) -> None:
    told = machine.run(machine.here, [*PROCESS, "ask", *target], deadline_s=SLOW_S).stdout
    said = told.splitlines()
    assert [said[0].split()[0], *said[2:]] == [
        "controller",
        f"identified {nvme.NQN}",
        "disconnected",
    ]
    assert int(said[1].removeprefix("capabilities "), 16) & 0xFFFF == 0x7F  # 128 entries


def test_a_process_of_the_same_guest_reaches_its_kernel(
    machine: Machine, target: tuple[str, ...]
) -> None:
    """rping speaks no NVMe: nvmet accepts its request, and ends it at the first message."""
    command = [
        needs("rping", "rdmacm-utils"),
        "-d",
        "-c",
        "-C",
        "1",
        "-a",
        target[0],
        "-p",
        target[1],
    ]
    said = machine.attempt("host0", command, deadline_s=SLOW_S).describe()
    for event in ("ESTABLISHED", "DISCONNECTED"):
        assert f"RDMA_CM_EVENT_{event}" in said


def test_a_port_at_which_neither_listens_is_refused(
    machine: Machine, target: tuple[str, ...]
) -> None:
    command = [*PROCESS, "ask", target[0], "4499", target[2]]
    outcome = machine.attempt(machine.here, command, deadline_s=SLOW_S)
    assert not outcome.ok
    assert "Connection refused" in outcome.describe()


def test_the_kernel_is_told_of_a_process_that_was_killed(
    machine: Machine, target: tuple[str, ...]
) -> None:
    program = machine.start(machine.here, [*PROCESS, "hold", *target])
    machine.until(lambda: connections(machine) == 1, program, SLOW_S)
    os.kill(pid_of_holder(), signal.SIGKILL)
    machine.wait(program, SLOW_S)
    with machine.program(["sleep", f"{SLOW_S:g}"]) as clock:
        machine.until(lambda: connections(machine) == 0, clock, SLOW_S)


def pid_of_holder() -> int:
    """Returns the process of `nvme_process.py hold` that is attached."""
    words = [str(each).encode() for each in (nvme_process.__file__, "hold")]
    found = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.read_bytes().split(b"\0")[1:3] == words
    ]
    (pid,) = found
    return pid


_CONNECT = """
import os
for attempt in range(2):
    fabrics = os.open("/dev/nvme-fabrics", os.O_RDWR)
    try:
        os.write(fabrics, b"transport=rdma,traddr={address},trsvcid={port},nqn={nqn}")
    except OSError as error:
        print(error.errno)
    os.close(fabrics)
"""


def test_the_kernel_connects_to_a_process(machine: Machine) -> None:
    nqn = "process"
    address = f"10.0.0.{int(machine.here.removeprefix('host')) + 1}"
    script = _CONNECT.format(address=address, port=TARGET_PORT, nqn=nqn)
    machine.run("host0", [*PLAIN, "/sbin/modprobe", "nvme_rdma"], deadline_s=SLOW_S)
    server, told = machine.talk(
        (machine.here, [*PROCESS, "serve", TARGET_PORT, nqn]),
        ("host0", [*PLAIN, sys.executable, "-c", script]),
        machine.cm(int(TARGET_PORT)),
        deadline_s=SLOW_S,
    )
    # The rejection is ECONNRESET of nvme-rdma; the refused command EIO.
    assert told.stdout.split() == ["104", "5"]
    said = server.stdout.splitlines()
    assert said[:4] == ["listens", "request recfmt 0 qid 0 queue 32", "established", "disconnected"]
    assert said[4].startswith("connect from nqn.")
    log = machine.run("host0", [*PLAIN, "dmesg"]).stdout
    assert f"nvme status {nvme_process.NO_RESOURCES}" in log


def test_a_process_serves_files_to_the_kernel_by_9p(machine: Machine) -> None:
    port = str(new_port())
    words = [sys.executable, "-P", plan9.__file__]
    machine.plain("host0", ["/sbin/modprobe", "9pnet_rdma"])
    with machine.program(machine.argv(machine.here, [*words, "server", port])) as server:
        machine.until(lambda: server.has_said("listens"), server)
        command = [*words, "client", address(machine.here), port]
        read, wrote = machine.plain("host0", command, deadline_s=SLOW_S).stdout.splitlines()
        served = machine.wait(server).check().stdout.splitlines()[-1]
    assert read == f"read {plan9.sum_of(0)}"
    assert [wrote, served] == [f"wrote {plan9.sum_of(1)}", f"served {plan9.sum_of(1)}"]


def test_the_kernel_has_no_warning(machine: Machine) -> None:
    assert machine.warnings("host0") == []
