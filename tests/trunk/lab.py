# SPDX-License-Identifier: BSD-3-Clause
"""A cluster for tests: machines, each with a folder of its own, and their parts of one fabric."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nupa.base import process
from nupa.programs.pair import NUPA, PairResult, Program, ProgramOutcome, await_end, run
from tests.common.namespaces import DEADLINE_S, Namespace, machines
from tests.programs.needs import needs

NAMES = ("alpha", "beta", "gamma")
NAME = "lab"
_TICK_S = 0.02

#: ssh's place: the machine of an address, as ssh(1) is called.
_SSH = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done # options, as mpirun's -x
address=$1
shift
case $address in
{cases}
esac
echo "ssh: Could not resolve hostname $address: Name or service not known" >&2
exit 255
"""
_CASE = """{address}) exec {enter} env NUPA_DIR={folder} sh -c "$*" ;;"""


@dataclass(frozen=True)
class Machine:
    """*folder*: its NUPA_DIR, in the /dev/shm that all share here."""

    name: str
    space: Namespace
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {"NUPA_DIR": str(self.folder)}

    @property
    def command(self) -> str:
        """The words that run `nupa` there."""
        return " ".join(["env", f"NUPA_DIR={self.folder}", *NUPA])

    def argv(self, *arguments: str) -> list[str]:
        """Returns the command line of `nupa` on this machine."""
        return self.space.argv("env", f"NUPA_DIR={self.folder}", *NUPA, *arguments)

    def on(self, host: str, *command: str) -> list[str]:
        """Returns the command line that runs *command* on that host, which is this machine's."""
        return self.argv("run", "--fabric", NAME, "--host", host, "--", *command)

    def nupa(self, *arguments: str, deadline_s: float = DEADLINE_S) -> ProgramOutcome:
        """Runs `nupa` there; that it fails is in what is returned."""
        return run(self.argv(*arguments), deadline_s=deadline_s)

    def ok(self, *arguments: str) -> str:
        return self.nupa(*arguments).check().stdout

    def ls(self) -> dict[str, Any]:
        """Returns `nupa trunk ls --json`."""
        found: dict[str, Any] = json.loads(self.ok("trunk", "ls", "--fabric", NAME, "--json"))
        return found

    def states(self) -> dict[str, str]:
        """Returns the state of each machine, as this one sees it."""
        return {machine["name"]: machine["state"] for machine in self.ls()["machines"]}

    def show(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ok("show", NAME, "--json"))
        return found

    def port_states(self) -> dict[str, str]:
        """Returns the states of hosts' ports by host."""
        return {host["name"]: host["state"] for host in self.show()["hosts"]}

    def await_listener(self, program: Program, port: int) -> None:
        """Waits until something listens there on that TCP port."""
        query = self.space.argv(needs("ss", "iproute2"), "-Hnlt", f"sport = :{port}")
        self._await(program, lambda: bool(run(query, deadline_s=DEADLINE_S).stdout.strip()))

    def await_cm_listener(self, program: Program, port: int) -> None:
        """Waits until a program listens on that port of rdma_cm."""
        self._await(program, lambda: port in {each["port"] for each in self.show()["listeners"]})

    def _await(self, program: Program, there: Callable[[], bool]) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not there():
            assert program.running, program.outcome().describe()
            assert time.monotonic() < end_s, "it does not listen"
            await_end([program], _TICK_S)

    def await_end(self) -> None:
        """Waits until no trunk runs here and its files are gone."""
        end_s = time.monotonic() + DEADLINE_S
        while self.trunks() or any(self.folder.iterdir()):
            assert time.monotonic() < end_s, [*self.trunks(), *self.folder.iterdir()]
            time.sleep(_TICK_S)  # it is no child of ours

    def trunks(self) -> list[process.Process]:
        """Returns the trunk's processes of this machine."""
        return process.find_all("nupa.trunk.process", str(self.folder))


@dataclass
class Cluster:
    """Machines and their file.  Commands of the test run outside of all machines."""

    machines: tuple[Machine, ...]
    file: Path
    ssh: str
    started: list[Program] = field(default_factory=list)

    def __getitem__(self, index: int) -> Machine:
        return self.machines[index]

    def nupa(self, *arguments: str, deadline_s: float = DEADLINE_S) -> ProgramOutcome:
        """Runs `nupa` outside of all machines, with ssh's stand-in."""
        return run([*NUPA, *arguments], env=self.env, deadline_s=deadline_s)

    @property
    def env(self) -> dict[str, str]:
        return {"NUPA_TRUNK_SSH": self.ssh, "NUPA_DIR": str(self.file.parent)}

    def up_words(self) -> list[str]:
        return ["trunk", "up", str(self.file)]

    def up(self, *options: str) -> ProgramOutcome:
        return self.nupa(*self.up_words(), *options)

    def down(self, *options: str) -> ProgramOutcome:
        return self.nupa("trunk", "down", str(self.file), *options)

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Program:
        """Starts a program, which ends with the test."""
        program = Program(argv, env=env)
        self.started.append(program)
        return program

    @property
    def nupa_words(self) -> list[str]:
        """The words that run `nupa` with the environment as it is."""
        return list(NUPA)

    def meet_cm(self, server: Sequence[str], client: Sequence[str], port: int) -> PairResult:
        """Runs a server on alpha's host0, and its client on beta's host2 once the server listens on
        rdma_cm's *port*."""
        first = self.start(self[0].on("host0", *server))
        self[0].await_cm_listener(first, port)
        outcome = self.start(self[1].on("host2", *client)).wait(60)
        return PairResult(first.wait(20 if outcome.ok else 1), outcome, 0.0).check()

    def moved(self, at: int, host: str) -> int:
        """Returns the bytes that a machine counts at the port of its host."""
        shown = self[at].show()
        (name,) = [each["port"] for each in shown["hosts"] if each["name"] == host]
        (counters,) = [each["counters"] for each in shown["ports"] if each["name"] == name]
        return 4 * (int(counters["port_xmit_data"]) + int(counters["port_rcv_data"]))

    def await_moved(self, at: int, host: str, least: int, programs: Sequence[Program]) -> None:
        """Waits until it counts so many bytes, while all programs run."""
        end_s = time.monotonic() + DEADLINE_S
        while self.moved(at, host) < least:
            for program in programs:
                assert program.running, program.outcome().describe()
            assert time.monotonic() < end_s, f"{self.moved(at, host)} bytes, not {least}"

    def await_states(self, at: int, want: Mapping[str, str], deadline_s: float = 20.0) -> None:
        """Waits until a machine sees the states that are wanted."""
        end_s = time.monotonic() + deadline_s
        while True:
            seen = self[at].states()
            if all(seen[name] == state for name, state in want.items()):
                return
            assert time.monotonic() < end_s, f"{self[at].name} sees {seen}, not {dict(want)}"
            time.sleep(_TICK_S)  # nothing tells of a state

    def await_ports(self, at: int, want: Mapping[str, str], deadline_s: float = 20.0) -> None:
        """Waits until the ports of hosts have these states there."""
        end_s = time.monotonic() + deadline_s
        while True:
            seen = self[at].port_states()
            if all(seen[name] == state for name, state in want.items()):
                return
            assert time.monotonic() < end_s, f"{self[at].name} sees {seen}, not {dict(want)}"
            time.sleep(_TICK_S)  # nothing tells of a state

    def close(self) -> None:
        for program in self.started:
            program.close()
        self.down("--force")

    def left(self) -> list[str]:
        """Lists things that should not be there any more."""
        found = [str(each) for machine in self.machines for each in machine.trunks()]
        return found + [
            f"{machine.name}/{entry.name}"
            for machine in self.machines
            for entry in machine.folder.iterdir()
        ]


def text(made: Sequence[Machine], topology: str, trunk: str = "") -> str:
    """Returns a cluster file of these machines."""
    parts = [topology]
    for machine in made:
        parts.append(
            f'[[machine]]\nname = "{machine.name}"\naddress = "{machine.space.ipv4}"\n'
            f'command = "{machine.command}"\n'
        )
    return "\n".join([*parts, f'[[trunk]]\nby = "ucx"\n{trunk}'])


def topology(hosts: int) -> str:
    """Returns the tables of *hosts* hosts on one switch."""
    return (
        f'[[switch]]\nname = "switch0"\nports = {hosts}\n'
        f'[[host]]\nname = "host"\ncount = {hosts}\nswitch = "switch0"\n'
    )


@contextmanager
def cluster(
    folder: Path, count: int = 2, *, hosts: int = 4, trunk: str = "", cables: int = 1
) -> Iterator[Cluster]:
    """Makes machines and their file, with nothing up; what is left at the end is an error."""
    with machines(count, cables=cables) as spaces:
        made = tuple(
            Machine(name, space, Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm")))
            for name, space in zip(NAMES, spaces, strict=False)
        )
        file = folder / f"{NAME}.toml"
        file.write_text(text(made, topology(hosts), trunk))
        cases = [
            _CASE.format(
                address=each.space.ipv4, enter=" ".join(each.space.argv()), folder=each.folder
            )
            for each in made
        ]
        ssh = folder / "ssh"
        ssh.write_text(_SSH.format(cases="\n".join(cases)))
        ssh.chmod(0o755)
        lab = Cluster(made, file, str(ssh))
        try:
            yield lab
        finally:
            lab.close()
            left = lab.left()
            for machine in made:
                shutil.rmtree(machine.folder)
            assert left == []
