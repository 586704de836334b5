# SPDX-License-Identifier: BSD-3-Clause
"""A folder for fabrics of a test's own, and programs run there to their ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nupa.programs.pair import NUPA, PairResult, Program, ProgramOutcome, ProgramPair, free_port

DEADLINE_S = 50.0  # what takes longer hangs


@dataclass(frozen=True)
class Lab:
    """Fabrics of *folder*; commands run on the default one."""

    folder: Path  #: None of the user's own: NUPA_DIR
    build: Path  #: For what a test compiles

    @property
    def env(self) -> dict[str, str]:
        return {"NUPA_DIR": str(self.folder)}

    def on(self, host: str | None, *command: str) -> list[str]:
        """Returns the command line that runs *command* on that host; None: on the next free one."""
        where = () if host is None else ("--host", host)
        return [*NUPA, "run", *where, "--", *command]

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Program:
        return Program(argv, env={**self.env, **(env or {})})

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> ProgramOutcome:
        """Runs one command line to its end; that it fails is in what is returned."""
        with self.start(argv, env) as program:
            return program.wait(deadline_s)

    def must(self, argv: Sequence[str], **options: Any) -> str:
        """Runs a command that must succeed; returns its standard output."""
        return self.run(argv, **options).check().stdout

    def nupa(self, *arguments: str) -> str:
        return self.must([*NUPA, *arguments])

    def pair(
        self,
        server: Sequence[str],
        client: Sequence[str],
        *,
        port: int,
        env: Mapping[str, str] | None = None,
        hosts: tuple[str | None, str | None] = ("host0", "host1"),
    ) -> ProgramPair:
        """Returns a server that listens on TCP *port* and its client, on two hosts (None: the next
        free one), not yet started."""
        return ProgramPair(
            self.on(hosts[0], *server),
            self.on(hosts[1], *client),
            env={**self.env, **(env or {})},
            port=port,
            deadline_s=DEADLINE_S,
        )

    @contextmanager
    def meet(
        self,
        server: Sequence[str],
        client: Sequence[str],
        *,
        port: int,
        space: str = "tcp",
        env: Mapping[str, str] | None = None,
        hosts: tuple[str | None, str | None] = (None, None),
    ) -> Iterator[ProgramPair]:
        """Yields both running: the client starts when a process listens on rdma_cm's *port*."""
        with ProgramPair(
            self.on(hosts[0], *server),
            self.on(hosts[1], *client),
            env={**self.env, **(env or {})},
            deadline_s=DEADLINE_S,
        ) as pair:
            pair.start_server()
            while (port, space) not in {
                (at["port"], at["space"]) for at in self.show()["listeners"]
            }:
                assert pair.server.running, pair.server.outcome().describe()
                assert pair.elapsed_s < pair.deadline_s, f"no process listens on {space} {port}"
            pair.start_client()
            yield pair

    def run_pair(
        self,
        command: Sequence[str],
        *options: str,
        env: Mapping[str, str] | None = None,
    ) -> PairResult:
        """Runs `command -p PORT` and `command -p PORT localhost OPTIONS` to their ends."""
        port = free_port()
        server = [*command, "-p", str(port)]
        return self.pair(server, [*server, "localhost", *options], port=port, env=env).run().check()

    def show(self) -> dict[str, Any]:
        """Returns `nupa show --json` of the default fabric."""
        shown: dict[str, Any] = json.loads(self.nupa("show", "--json"))
        return shown

    def moved_bytes(self) -> dict[str, int]:
        """Returns the counters of each host's port, by the host's name."""
        ports = {port["name"]: port["counters"] for port in self.show()["ports"]}
        return {
            host["name"]: 4 * (counters["port_xmit_data"] + counters["port_rcv_data"])
            for host in self.show()["hosts"]
            for counters in [ports[host["port"]]]
        }

    def compile(self, source: Path, *options: str, compiler: str = "gcc") -> str:
        """Returns the program that *compiler* makes of a C file."""
        program = self.build / source.stem
        command = [compiler, "-O1", "-g", "-Wall", "-o", str(program), str(source), *options]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return str(program)
