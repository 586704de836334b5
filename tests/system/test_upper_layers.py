# SPDX-License-Identifier: BSD-3-Clause
"""Protocols of the kernel above nupa_rdma, between two guests: what was written comes back, and
neither kernel has noticed a defect."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nupa.vm.storage.protocol import PROTOCOLS
from tests.programs.needs import needs
from tests.system import upper

from . import programs
from .machine import PLAIN, Machine, booted, new_port

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1200)]

SERVER, CLIENT = "host0", "host1"
#: Beside other work, emulated guests take so long for tens of megabytes.
STEP_S = 300.0
EXERCISE_S = 300.0
#: Loads of stress-ng, and how many operations each has.
_EXERCISES = {
    "hdd": 2,
    "fallocate": 1,
    "dentry": 16,
    "rename": 20,
    "lockf": 50,
    "utime": 50,
}
_UPPER = Path(upper.__file__).parent
#: To load in the target, and in the initiator: of what `nupa vm up --modules` puts into guests.
_MODULES = {
    "nfs": (("nfsd", "rpcrdma"), ("nfsv4", "rpcrdma")),
    "iser": (("ib_isert", "crc32c_generic"), ("ib_iser", "sd_mod", "crc32c_generic")),
}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with booted(2, "cxl", "--modules") as machine:
        programs.net_up(machine, SERVER, CLIENT)
        yield machine


@pytest.fixture(autouse=True)
def _no_defect(machine: Machine) -> Iterator[None]:
    yield
    assert {host: machine.warnings(host) for host in machine.hosts} == {SERVER: [], CLIENT: []}


def _python(name: str, *words: str) -> list[str]:
    return [sys.executable, str(_UPPER / f"{name}.py"), *words]


def _compared(machine: Machine, path: str, megabytes: int) -> None:
    told = machine.plain(CLIENT, _python("compare", path, str(megabytes)), deadline_s=STEP_S)
    assert told.stdout == f"{megabytes} MB are equal\n"


@contextmanager
def _storage(machine: Machine, name: str, megabytes: int) -> Iterator[str]:
    """Yields the path, in the client, of storage that `nupa vm storage` would measure."""
    (protocol,) = (each for each in PROTOCOLS if each.name == name)
    variables = [f"{key}={value}" for key, value in protocol.variables(print).items()]
    here, there = programs.address(SERVER), programs.address(CLIENT)

    def step(host: str, *words: str) -> str:
        command = ["env", *variables, "sh", protocol.script, *words]
        return machine.plain(host, command, deadline_s=STEP_S).stdout.strip()

    for host, modules in zip((SERVER, CLIENT), _MODULES[name], strict=True):
        for module in modules:
            machine.plain(host, ["/sbin/modprobe", module])
    step(SERVER, "serve", str(megabytes), there)
    step(SERVER, "offer", "rdma", here)
    yield step(CLIENT, "attach", "rdma", here, there)
    step(CLIENT, "detach")
    step(SERVER, "withdraw")
    step(SERVER, "end")


def test_nfs_reads_60_megabytes_that_it_wrote(machine: Machine) -> None:
    with _storage(machine, "nfs", 80) as path:
        _compared(machine, path, 60)


def test_nfs_bears_an_exerciser_of_file_systems(machine: Machine) -> None:
    """Each load of stress-ng compares its data or names, while others change theirs.

    It ends with another code than 0 where one found a difference.  Its own timeout is a signal,
    which interrupts what a load does: so it counts operations, again and again.
    """
    words = [needs("stress-ng", "stress-ng"), "--verify", "--timeout", "0", "--dentries", "16"]
    for kind, operations in _EXERCISES.items():
        words += [f"--{kind}", "1", f"--{kind}-ops", str(operations)]
    for kind in ("hdd", "fallocate"):
        words += [f"--{kind}-bytes", "8M"]
    until, rounds = time.monotonic() + EXERCISE_S, 0
    with _storage(machine, "nfs", 300) as path:
        while time.monotonic() < until:
            exercise = [*words, "--temp-path", str(Path(path).parent)]
            told = machine.plain(CLIENT, exercise, deadline_s=STEP_S)
            assert "successful run completed" in told.stdout + told.stderr
            rounds += 1
        print(f"{rounds} rounds of {_EXERCISES}")
        _compared(machine, path, 20)


def test_iser_reads_what_it_wrote(machine: Machine) -> None:
    with _storage(machine, "iser", 24) as path:
        assert machine.run(CLIENT, ["ls", "/sys/class/iscsi_transport"]).stdout == "iser\n"
        _compared(machine, path, 20)


def test_srp_reads_what_it_wrote(machine: Machine) -> None:
    port, address = str(new_port()), programs.address(SERVER)

    def step(host: str, *words: str) -> str:
        command = ["sh", str(_UPPER / "srp.sh"), *words]
        return machine.plain(host, command, deadline_s=STEP_S).stdout.strip()

    target = step(SERVER, "serve", "24", address, port)
    _compared(machine, step(CLIENT, "attach", address, port, target), 20)
    step(CLIENT, "detach")
    step(SERVER, "end")


def _served(machine: Machine, name: str, server: list[str], client: list[str]) -> str:
    """Returns the output of a client of a server that ends with it."""
    command = [*PLAIN, *_python(name, "server", *server)]
    with machine.program(machine.argv(SERVER, command)) as listener:
        machine.until(lambda: listener.has_said("listens"), listener, STEP_S)
        told = machine.plain(CLIENT, _python(name, "client", *client), deadline_s=STEP_S)
        assert machine.wait(listener).ok
    return told.stdout


def test_smc_goes_by_rdma_and_does_not_fall_back(machine: Machine) -> None:
    words = [programs.address(SERVER), str(new_port())]
    assert _served(machine, "smc", words, words) == "4194304 bytes by SMC-R nupa_rdma0\n"


def test_rds_returns_messages_and_answers_pings(machine: Machine) -> None:
    here, there, port = programs.address(SERVER), programs.address(CLIENT), str(new_port())
    told = _served(machine, "rds", [here, port], [there, here, port])
    assert told == "32 messages came back\n"
    told = machine.plain(CLIENT, _python("rds", "ping", there, here), deadline_s=STEP_S).stdout
    assert told == "32 pings were answered\n"
