# SPDX-License-Identifier: BSD-3-Clause
"""Programs in the guests of a machine, by `nupa vm run`: a step in one, a server and a client."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nupa.programs.pair import NUPA, Program, ProgramError, ProgramPair

Tick = Callable[[float], None]

_TICK_S = 0.1
_LISTENS = "nupa: the server listens"
# Says so once "$@" listens on TCP port $0, which stands in hexadecimal in proc_net_tcp(5).
_AWAIT_PORT = f"""\
port=$(printf :%04X "$0")
"$@" &
until grep -qE "$port [0:]+ 0A" /proc/net/tcp /proc/net/tcp6; do
	kill -0 $! 2>/dev/null || break
	sleep 0.05
done
echo '{_LISTENS}' >&2
wait $!
"""


@dataclass(frozen=True)
class Pair:
    """Two guests: servers run in the first, clients in the second."""

    machine: str
    hosts: tuple[str, str]
    deadline_s: float
    tick: Tick

    def command(self, host: str, argv: Sequence[str], *, nupa: bool) -> list[str]:
        """The command line that runs *argv* in that guest; not *nupa*: with the system's RDMA."""
        own = [] if nupa else ["env", "-u", "LD_PRELOAD", "-u", "LD_LIBRARY_PATH"]
        return [*NUPA, "vm", "run", "--name", self.machine, host, "--", *own, *argv]

    def run(self, host: str, argv: Sequence[str]) -> str:
        """What a command prints in a guest.  ProgramError: it failed, or is not done in time."""
        program = Program(self.command(host, argv, nupa=False))
        try:
            poll = select.poll()
            poll.register(program.pidfd, select.POLLIN)
            start_s = time.monotonic()
            while not poll.poll(1000 * _TICK_S):
                passed_s = time.monotonic() - start_s
                self.tick(passed_s)
                if passed_s > self.deadline_s:
                    program.kill(f"was killed: not done after {passed_s:.0f} s")
            outcome = program.outcome()
        finally:
            program.close()
        if not outcome.ok:
            raise ProgramError(outcome.describe())
        return outcome.stdout

    def measure(
        self, server: Sequence[str], client: Sequence[str], port: int, *, nupa: bool
    ) -> str:
        """What the client prints.  It starts once the server listens on TCP *port*.

        ProgramError: one of them failed, or is not done in time."""
        listener = ["sh", "-c", _AWAIT_PORT, str(port), *server]
        with ProgramPair(
            self.command(self.hosts[0], listener, nupa=nupa),
            self.command(self.hosts[1], client, nupa=nupa),
            ready=_LISTENS,
            deadline_s=self.deadline_s,
            tick=self.tick,
        ) as pair:
            pair.start_server()
            pair.start_client()
            return pair.wait().check().client.stdout
