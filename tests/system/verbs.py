# SPDX-License-Identifier: BSD-3-Clause
"""Programs of rdma-core and perftest on the kernel's own device, by unmodified libraries."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nupa.programs.pair import ProgramOutcome
from tests.programs.needs import needs

from . import kernel, programs
from .machine import PLAIN, Machine, booted, new_port

HOSTILE = Path(__file__).with_name("hostile.py")
ROUNDS = 50
_DEADLINE_S = 180.0
GUESTS = ("host0", "host1")
#: Hosts, server first, and those of them whose programs have the kernel's device.
WAYS = {
    "between kernels": (GUESTS, GUESTS),
    "from drop-in libraries": (GUESTS, ("host0",)),
    "to drop-in libraries": (GUESTS, ("host1",)),
    "from this machine": (("host0", "host2"), ("host0",)),
    "to this machine": (("host2", "host1"), ("host1",)),
}
MIXED_WAYS = [way for way, (hosts, plain) in WAYS.items() if hosts != plain]
#: Of nupa_net0's IPv4 address, on the kernel's device and on ours.
_GID = "1"


@contextmanager
def booted_for_programs() -> Iterator[Machine]:
    """Yields two guests whose kernels have the device, and give it to programs."""
    with booted(2, "cxl", "--modules") as machine:
        programs.net_up(machine, *machine.hosts, machine.here)
        for host in machine.hosts:
            run(machine, host, "load", "ib_uverbs", "rdma_ucm")
        yield machine


def attached(machine: Machine) -> list[str]:
    """Returns the hosts whose kernels are attached."""
    shown = machine.nupa("show", "--fabric", machine.name).stdout
    return [line.split()[2] for line in shown.splitlines() if " nupa_core " in line]


@contextmanager
def standing_still(machine: Machine, host: str) -> Iterator[None]:
    """Stops one of two guests until its kernel is declared dead; it goes on afterwards."""
    others = [each for each in machine.hosts if each != host]
    meanwhile = machine.start(others[0], ["sleep", "600"])
    machine.signal(host, signal.SIGSTOP)
    try:
        machine.until(lambda: attached(machine) == others, meanwhile)
        yield
    finally:
        machine.signal(host, signal.SIGCONT)
        machine.end(meanwhile)


def run(machine: Machine, host: str, role: str, *arguments: str) -> str:
    """Runs a role of kernel.py; returns what it prints."""
    words = [*PLAIN, sys.executable, kernel.__file__, role, *arguments]
    return machine.run(host, words, deadline_s=2 * _DEADLINE_S).stdout


def pair(
    machine: Machine, hosts: Sequence[str], command: Sequence[str], plain: Collection[str]
) -> tuple[ProgramOutcome, ProgramOutcome]:
    """Runs *command* on two *hosts*, server first, which meet by TCP on nupa_net0.

    Hosts of *plain* have the kernel's device, the others the drop-in libraries.
    """
    port = new_port()
    server, client = (
        [*(PLAIN if host in plain else ()), *machine.on_net(host, [*command, "-p", str(port)])]
        for host in hosts
    )
    return machine.talk(
        (hosts[0], server),
        (hosts[1], [*client, programs.address(hosts[0])]),
        machine.tcp(hosts[0], port),
        deadline_s=_DEADLINE_S,
    )


def perftest(
    machine: Machine, hosts: Sequence[str], plain: Collection[str], name: str, *options: str
) -> None:
    command = [needs(name, "perftest"), "-F", "-n", str(ROUNDS), "-x", _GID, *options]
    _, told = pair(machine, hosts, command, plain)
    assert re.search(rf"^ *\d+ +{ROUNDS} +[\d.]+ ", told.stdout, re.MULTILINE), told.describe()


def pingpong(
    machine: Machine, hosts: Sequence[str], plain: Collection[str], name: str, *options: str
) -> None:
    command = [needs(name, "ibverbs-utils"), "-g", _GID, "-n", str(ROUNDS), *options]
    for told in pair(machine, hosts, command, plain):
        assert f"{ROUNDS} iters in" in told.stdout, told.describe()


def by_rdma_cm(
    machine: Machine,
    hosts: Sequence[str],
    plain: Collection[str],
    server: Sequence[str],
    client: Sequence[str],
    port: int,
    space: str = "tcp",
) -> ProgramOutcome:
    """Runs two programs that meet by the RDMA CM, that of the kernel on hosts of *plain*; returns
    the client's end."""

    def listens_in_kernel() -> bool:
        shown = machine.run(hosts[0], [*PLAIN, "rdma", "resource", "show", "cm_id"]).stdout
        return any("state LISTEN" in line and f":{port}" in line for line in shown.splitlines())

    first, second = (
        (host, [*(PLAIN if host in plain else ()), *command])
        for host, command in zip(hosts, (server, client), strict=True)
    )
    listens = listens_in_kernel if hosts[0] in plain else machine.cm(port, space)
    return machine.talk(first, second, listens, deadline_s=_DEADLINE_S)[1]
