# SPDX-License-Identifier: BSD-3-Clause
"""Two machines, each with a fabric of its own name and a wire to the other's.

Both fabrics have host0 and host1.  Programs of the left machine run on host0, and its host1 is the
wire; on the right machine it is the other way round.  So the table of tests/programs runs as it is:
its server is on the left, its client on the right.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nupa.programs.pair import Program, ProgramOutcome, ProgramPair
from tests.common.namespaces import Namespace
from tests.programs.stage import DEADLINE_S, Stage
from tests.programs.users import User

HOSTS = ("host0", "host1")
NAMES = ("left", "right")
GID_INDEX = 3  # of the wire's local address, behind a host's own three
_LOCAL_NAMES = ("localhost", "127.0.0.1")
#: Of host0 and host1 on a fabric, as programs of rdma_cm are given them; also within a word.
_ADDRESSES = re.compile(r"(?<![\d.])10\.0\.0\.([12])(?![\d.])")
#: Programs that say by -g which GID they use; perftest's option is -x.
_GID_OPTION = {"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"}


@dataclass(frozen=True)
class Wired(Stage):
    """The stage of both machines: host0 is on the left one, host1 on the right one.

    Commands of the fabric are the left one's; see side().
    """

    machines: tuple[Namespace, ...] = ()
    addresses: tuple[str, ...] = ()  #: of the wires' ends
    end: int = 0  #: whose `nupa` is meant by nupa(), ok() and show()

    def side(self, end: int) -> Wired:
        """Returns the same, for commands of the machine *end*: 0 is left, 1 is right."""
        return Wired(**{**vars(self), "end": end})

    @property
    def other(self) -> int:
        return 1 - self.end

    def _argv(self, end: int, arguments: Sequence[str]) -> list[str]:
        user = self.user
        command = ["env", f"NUPA_FABRIC={NAMES[end]}", user.python, "-P", "-m", "nupa.cli"]
        return self.machines[end].argv(*user.prefix, *command, *arguments)

    def nupa(self, *arguments: str) -> list[str]:
        return self._argv(self.end, arguments)

    def nupa_run(self, command: Sequence[str], host: str = "host0") -> list[str]:
        """Returns the command line that runs *command* on that host's machine."""
        end = HOSTS.index(host)
        mover = () if self.mover is None else ("--mover", self.mover)
        return self._argv(end, ["run", "--host", host, *mover, "--", *self.adapted(command)])

    def adapted(self, command: Sequence[str]) -> list[str]:
        """Returns *command* with the hosts' real addresses, and the GID of the wire's address.

        Programs other than those of rdma_cm meet by TCP over IPv4, which perftest and UCX ask for.
        """
        server = self.addresses[0] if "-R" in command else self.machines[0].ipv4
        words = [
            server if word in _LOCAL_NAMES else _ADDRESSES.sub(self._address, word)
            for word in command
        ]
        name = Path(words[0]).name
        if name in _GID_OPTION:
            at = words.index("-g")
            words[at + 1] = str(GID_INDEX)
        elif name.startswith("ib_") and "-R" not in words and "-x" not in words:
            words[1:1] = ["-x", str(GID_INDEX)]
        return words

    def _address(self, found: re.Match[str]) -> str:
        return self.addresses[int(found[1]) - 1]

    def start(self, end: int, command: Sequence[str]) -> Program:
        """Starts *command* on the host of that machine."""
        return Program(self.nupa_run(command, HOSTS[end]), env=self.env)

    def on(
        self, end: int, command: Sequence[str], deadline_s: float = DEADLINE_S
    ) -> ProgramOutcome:
        """Runs *command* on the host of that machine to its end."""
        return self.run(self.nupa_run(command, HOSTS[end]), deadline_s)

    def pair(
        self,
        command: Sequence[str],
        *,
        hosts: tuple[str, str] = HOSTS,
        cpus: tuple[int, int] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> ProgramPair:
        assert set(hosts) == set(HOSTS), "one program on each machine"
        return super().pair(command, hosts=hosts, cpus=cpus, deadline_s=deadline_s)

    @property
    def far(self) -> tuple[str, str]:
        """Returns the host that is this side's wire, and the address there."""
        return HOSTS[self.other], self.addresses[self.other]

    def wire(self) -> dict[str, Any]:
        """Returns the entry of this side's only wire."""
        (found,) = self.wires()
        return found

    def wires(self) -> list[dict[str, Any]]:
        """Returns the entries of this side's wires in `nupa show --json`."""
        found: list[dict[str, Any]] = self.show()["wires"]
        return found

    def up(self, *options: str, hosts: int = 2) -> None:
        """Makes both fabrics and both wires."""
        for end in (0, 1):
            self.side(end).ok("up", "--hosts", str(hosts))
        for end in (0, 1):
            self.side(end).add_wire(*options)

    def add_wire(self, *options: str) -> None:
        far, address = self.far
        self.ok("wire", "add", far, "--address", address, *options)

    def down(self) -> None:
        for end in (0, 1):
            self.run(self.side(end).nupa("down", "--force"))


@contextmanager
def wired(
    machines: Sequence[Namespace],
    user: User,
    *,
    ipv6: bool = False,
    options: Sequence[str] = (),
    hosts: int = 2,
) -> Iterator[Wired]:
    """Makes both fabrics and their wires; anything that is left of them at the end is an error."""
    folder = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
    os.chown(folder, user.uid, -1)
    addresses = tuple(machine.ipv6 if ipv6 else machine.ipv4 for machine in machines)
    stage = Wired(folder, user, machines=tuple(machines), addresses=addresses)
    try:
        stage.up(*options, hosts=hosts)
        yield stage
    finally:
        stage.down()
        left = [entry.name for entry in folder.iterdir()]
        shutil.rmtree(folder)
        assert left == []
