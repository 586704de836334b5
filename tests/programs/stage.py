# SPDX-License-Identifier: BSD-3-Clause
"""Where programs are run: a folder for their fabrics, a user, and what is denied to them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nupa.programs.pair import PairResult, ProgramOutcome, ProgramPair, free_port, run
from tests.programs.users import User

DENIED = Path(__file__).with_name("denied.py")
DEADLINE_S = 50.0  # what takes longer hangs


@dataclass(frozen=True)
class Stage:
    """Commands of one user over the fabrics of one folder.

    *denied* names the hosts whose programs may not call process_vm_readv and process_vm_writev.
    """

    folder: Path  #: None of the user's own: NUPA_DIR
    user: User
    mover: str | None = None
    denied: tuple[str, ...] = ()
    preload: str = ""  #: a library, that the user can read

    @property
    def env(self) -> dict[str, str]:
        preload = {"LD_PRELOAD": self.preload} if self.preload else {}
        return {"NUPA_DIR": str(self.folder), **preload, **self.user.env}

    def nupa(self, *arguments: str) -> list[str]:
        return [*self.user.prefix, self.user.python, "-P", "-m", "nupa.cli", *arguments]

    def nupa_run(self, command: Sequence[str], host: str = "host0") -> list[str]:
        """Returns the command line that runs *command* on that host of the default fabric."""
        mover = () if self.mover is None else ("--mover", self.mover)
        argv = self.nupa("run", "--host", host, *mover, "--", *command)
        if host not in self.denied:
            return argv
        at = len(self.user.prefix)
        # Its text: the user may not be able to read the file.
        return [*argv[:at], self.user.python, "-c", DENIED.read_text(), *argv[at:]]

    def run(self, argv: Sequence[str], deadline_s: float = DEADLINE_S) -> ProgramOutcome:
        """Runs one command line to its end; that it fails is in what is returned."""
        return run(argv, env=self.env, deadline_s=deadline_s)

    def ok(self, *arguments: str) -> str:
        """Returns the output of `nupa`, which must succeed."""
        return self.run(self.nupa(*arguments)).check().stdout

    def pair(
        self,
        command: Sequence[str],
        *,
        hosts: tuple[str, str] = ("host0", "host1"),
        cpus: tuple[int, int] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> ProgramPair:
        """Returns *command* as a server on one host and as its client on the other, not yet
        started."""
        port = free_port()
        server = [*command, "-p", str(port)]
        return ProgramPair(
            self.nupa_run(server, hosts[0]),
            self.nupa_run([*server, "localhost"], hosts[1]),
            env=self.env,
            cpus=cpus,
            port=port,
            deadline_s=deadline_s,
        )

    def run_pair(
        self,
        command: Sequence[str],
        *,
        cpus: tuple[int, int] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> PairResult:
        """Runs the same to the end.  ProgramError, with what they wrote, unless both
        succeed."""
        return self.pair(command, cpus=cpus, deadline_s=deadline_s).run().check()

    def show(self) -> dict[str, Any]:
        """Returns `nupa show --json` of the default fabric."""
        shown: dict[str, Any] = json.loads(self.ok("show", "--json"))
        return shown

    def wait_for_contact(self, pair: ProgramPair) -> dict[str, str]:
        """Waits until both programs have moved something: the mover of each, by its host."""
        while len(found := self.show()["movers"]) < 2:
            assert pair.server.running, pair.server.outcome().describe()
            assert pair.client.running, pair.client.outcome().describe()
            assert pair.elapsed_s < pair.deadline_s, found
        return {end["from"]["host"]: end["mover"] for end in found}


def sizes_of(table: str) -> list[int]:
    """Returns the sizes in perftest's table: lines that begin with bytes and iterations."""
    return [int(size) for size in re.findall(r"^\s*(\d+)\s+\d+\s", table, re.MULTILINE)]
