# SPDX-License-Identifier: BSD-3-Clause
"""Programs in the guests of a machine, by `nupa vm run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nupa.programs.pair import NUPA, ProgramPair, run

Tick = Callable[[float], None]

#: Commands in a guest run as root, also where a user's PATH lacks root's folders.
ROOTS_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
_LISTENS = "nupa: the server listens"
# Prints _LISTENS once "$@" listens on TCP port $0, in hexadecimal as in proc_net_tcp(5).
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
        """Returns the command that runs *argv* in a guest; not *nupa*: with the system's RDMA."""
        own = [] if nupa else ["env", "-u", "LD_PRELOAD", "-u", "LD_LIBRARY_PATH"]
        return [*NUPA, "vm", "run", "--name", self.machine, host, "--", *own, *argv]

    def run(self, host: str, argv: Sequence[str], *, deadline_s: float | None = None) -> str:
        """Returns the output of a command in a guest.  ProgramError: it failed or took too long."""
        command = self.command(host, argv, nupa=False)
        limit_s = self.deadline_s if deadline_s is None else deadline_s
        return run(command, deadline_s=limit_s, tick=self.tick).check().stdout

    def net_up(self) -> None:
        """Makes nupa_net0 in both guests.  ProgramError: it failed."""
        for host in self.hosts:
            self.run(host, [*NUPA, "net", "up"])

    def measure(
        self, server: Sequence[str], client: Sequence[str], port: int, *, nupa: bool
    ) -> str:
        """Returns the client's output.  It starts once the server listens on TCP *port*.

        ProgramError: one of them failed, or took too long.
        """
        listener = ["sh", "-c", _AWAIT_PORT, str(port), *server]
        pair = ProgramPair(
            self.command(self.hosts[0], listener, nupa=nupa),
            self.command(self.hosts[1], client, nupa=nupa),
            ready=_LISTENS,
            deadline_s=self.deadline_s,
            tick=self.tick,
        )
        return pair.run().check().client.stdout
