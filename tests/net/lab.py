# SPDX-License-Identifier: BSD-3-Clause
"""A fabric with interfaces, of a user, and programs on its hosts."""

from __future__ import annotations

import json
import select
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nupa.base import process
from nupa.programs.pair import Program, ProgramOutcome, run
from tests.programs.needs import needs
from tests.programs.users import User

DEADLINE_S = 40.0  # what takes longer hangs
_TICK_S = 0.02


@dataclass
class Net:
    """The default fabric of *folder*, and commands of *user* on it.

    The program of exec() runs in the namespace of a host to its end; one of start() ends with the
    test.  With shell=True it has the verbs of that host, as in `nupa shell`. 10.0.0.1 is host0,
    10.0.0.2 host1: see ip().
    """

    folder: Path  #: None of the user's own: NUPA_DIR
    user: User
    started: list[Program] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return {"NUPA_DIR": str(self.folder), **self.user.env}

    def argv(self, *arguments: str) -> list[str]:
        """Returns the command line of `nupa` with these arguments."""
        return [*self.user.prefix, self.user.python, "-P", "-m", "nupa.cli", *arguments]

    def argv_on(self, host: str, command: Sequence[str], *, shell: bool = False) -> list[str]:
        where = ("shell", host) if shell else ("net", "exec", host)
        return self.argv(*where, "--", *command)

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> ProgramOutcome:
        """Runs any command line to its end; that it fails is in what is returned."""
        return run(argv, env={**self.env, **(env or {})}, deadline_s=deadline_s)

    def nupa(self, *arguments: str, deadline_s: float = DEADLINE_S) -> ProgramOutcome:
        """Runs `nupa` with these arguments; that it fails is in what is returned."""
        return self.run(self.argv(*arguments), deadline_s=deadline_s)

    def ok(self, *arguments: str) -> ProgramOutcome:
        """Runs the same, which must succeed."""
        return self.nupa(*arguments).check()

    def exec(
        self,
        host: str,
        command: Sequence[str],
        *,
        shell: bool = False,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> ProgramOutcome:
        """Runs *command* on *host* to its end; with *check* it must succeed."""
        argv = self.argv_on(host, command, shell=shell)
        outcome = self.run(argv, env=env, deadline_s=deadline_s)
        return outcome.check() if check else outcome

    def start(
        self,
        host: str,
        command: Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Program:
        """Starts *command* on *host*; it is ended with the test, or by its close()."""
        argv = self.argv_on(host, command, shell=shell)
        program = Program(argv, env={**self.env, **(env or {})})
        self.started.append(program)
        return program

    def listening(self, host: str, port: int, server: Program, *, udp: bool = False) -> None:
        """Waits until *server*, started on *host*, has a socket on that port."""
        table = "-Hnlu" if udp else "-Hnlt"
        query = [needs("ss", "iproute2"), table, f"sport = :{port}"]
        while not self.exec(host, query).stdout.strip():
            assert server.running, server.outcome().describe()
            select.select([server.pidfd], [], [], _TICK_S)

    def ls(self) -> list[dict[str, Any]]:
        """Returns the output of `nupa net ls --json`."""
        found: list[dict[str, Any]] = json.loads(self.ok("net", "ls", "--json").stdout)
        return found

    def state_of(self, host: str) -> str:
        return str(next(entry["state"] for entry in self.ls() if entry["host"] == host))

    def stored(self) -> dict[str, Any]:
        """Returns the state file, as it is."""
        (file,) = self.folder.glob(".nupa-*.net")
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def processes(self) -> list[process.Process]:
        """Returns all keepers and pumps of this folder."""
        folder, uid = str(self.folder), self.user.uid
        pumps = process.find_all("nupa.netdev.pump", folder, user=uid)
        return pumps + process.find_all("nupa_keeper", f"{folder}/nupa-{uid}-default", user=uid)

    def close(self) -> None:
        for program in self.started:
            program.close()
        self.nupa("down", "--all", "--force")

    def left(self) -> list[str]:
        """Lists things that should not be there any more."""
        return [str(found) for found in self.processes()] + [
            entry.name for entry in self.folder.iterdir()
        ]


def ip(host: int) -> str:
    """Returns the IPv4 address of host *host*, counted from 0."""
    return f"10.0.0.{host + 1}"


@contextmanager
def closed(net: Net) -> Iterator[Net]:
    """Takes all down at the end; what is left is an error."""
    try:
        yield net
    finally:
        net.close()
        left = net.left()
        shutil.rmtree(net.folder)
        assert left == []
