# SPDX-License-Identifier: BSD-3-Clause
"""A machine of QEMU guests for tests: booted, given commands, its guests killed, all taken down.

It has folders of its own, so that it stands beside a user's.  Guests are emulated, ten to thirty
times slower than this machine: counts are small, deadlines long, and nothing sleeps.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from nupa.base.process import find_all
from nupa.programs.pair import Program, ProgramOutcome
from tests.programs.users import User, ourselves

from .kernel import PATIENCE

#: Of a command in a guest that runs alone; what takes longer hangs.
DEADLINE_S = 60.0
#: Of a guest's start: 10 s, or more where the cores are shared.
BOOT_S = 120.0
#: Until a death is known: the most that a user is told (docs/design.md).
DEATH_S = 2.0
TICK_S = 0.05
#: Takes the drop-in libraries and the shim from a command in a guest.
PLAIN = ("env", "-u", "LD_PRELOAD", "-u", "LD_LIBRARY_PATH")
_DEFECTS = (
    "WARNING",
    "BUG",
    "Oops",
    "blocked for more than",
    "detected stall",
    "detected expedited stalls",
    "UBSAN",
    "non-static key",  # lockdep of a lock that was not made
    "locking correctness validator",  # lockdep says that it ends
)
#: KCSAN reports many races of Linux's own.  Its title names the functions, with their modules.
_RACE, _OURS = "BUG: KCSAN", "[nupa_"
_REPORT_LINES = 60
_PORTS = itertools.count(20000)


def _is_defect(line: str) -> bool:
    if _RACE in line:
        return _OURS in line
    return any(word in line for word in _DEFECTS)


class StallError(Exception):
    """Something did not come in time: a hang, or an emulator that stood still."""


class Machine:
    """`nupa vm` with folders of its own.  host0, host1, … are guests; *here* is this machine."""

    name = "vm"

    def __init__(
        self,
        guests: int = 2,
        kind: str = "cxl",
        *options: str,
        user: User | None = None,
        cache: Path | None = None,
    ) -> None:
        """Makes the folders.  *cache* has what guests boot from, where *user* may read it."""
        self.hosts = [f"host{number}" for number in range(guests)]
        self.here = f"host{guests}"
        self._options = ["--guests", str(guests), "--kind", kind, *options]
        # Not tmp_path: a socket's path is short.
        self._run = Path(tempfile.mkdtemp(prefix="nupa-test-"))
        self._segments = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
        self._user = user or ourselves()
        for folder in (self._run, self._segments):
            os.chown(folder, self._user.uid, -1)
        self._env = {
            "XDG_RUNTIME_DIR": str(self._run),
            "NUPA_DIR": str(self._segments),
            **({"NUPA_VM_CACHE": str(cache)} if cache else {}),
            **self._user.env,
        }
        self._started: list[Program] = []

    def segment(self) -> Path:
        """Returns the file that is the guests' shared memory."""
        (path,) = self._segments.iterdir()
        return path

    def up(self) -> None:
        """Boots the guests.  StallError: one did not come up."""
        boot = f"{BOOT_S * PATIENCE:g}"
        outcome = self.nupa("vm", "up", *self._options, "--timeout", boot, deadline_s=2 * BOOT_S)
        if not outcome.ok:
            raise StallError(outcome.describe())

    def nupa(self, *arguments: str, deadline_s: float = DEADLINE_S) -> ProgramOutcome:
        """Runs `nupa` with these arguments to its end; the result says whether it failed."""
        with self.program(self.nupa_argv(*arguments)) as program:
            return self.wait(program, deadline_s)

    def nupa_argv(self, *arguments: str) -> list[str]:
        return [*self._user.prefix, *self.nupa_words(), *arguments]

    def nupa_words(self) -> list[str]:
        """Returns the words of `nupa`, as the user of the machine runs it."""
        return [self._user.python, "-P", "-m", "nupa.cli"]

    def program(self, argv: Sequence[str]) -> Program:
        """Starts any command line; the caller closes it."""
        return Program(argv, env=self._env)

    def on_net(self, host: str, command: Sequence[str]) -> list[str]:
        """Returns the words that run *command* where nupa_net0 of *host* is; in a guest, itself."""
        if host != self.here:
            return list(command)
        return self.nupa_argv("net", "exec", "--fabric", self.name, host, "--", *command)

    def argv(self, host: str, command: Sequence[str]) -> list[str]:
        return self.nupa_argv("vm", "run", host, "--", *command)

    def wait(self, program: Program, deadline_s: float = DEADLINE_S) -> ProgramOutcome:
        """Waits for its end.  StallError: it does not come."""
        deadline_s *= PATIENCE
        if not select.select([program.pidfd], [], [], deadline_s)[0]:
            program.kill(f"was killed: not done after {deadline_s:g} s")
            raise StallError(program.outcome().describe())
        return program.outcome()

    def run(
        self, host: str, command: Sequence[str], *, deadline_s: float = DEADLINE_S
    ) -> ProgramOutcome:
        """Runs *command* on *host* to its end: it must succeed."""
        outcome = self.attempt(host, command, deadline_s=deadline_s)
        assert outcome.ok, outcome.describe()
        return outcome

    def attempt(
        self, host: str, command: Sequence[str], *, deadline_s: float = DEADLINE_S
    ) -> ProgramOutcome:
        """Runs *command* on *host* to its end; the result says whether it failed."""
        with self.program(self.argv(host, command)) as program:
            return self.wait(program, deadline_s)

    def plain(
        self, host: str, command: Sequence[str], *, deadline_s: float = DEADLINE_S
    ) -> ProgramOutcome:
        """Runs *command* without the drop-in libraries and the shim: the kernel answers."""
        return self.run(host, [*PLAIN, *command], deadline_s=deadline_s)

    def warnings(self, host: str) -> list[str]:
        """Returns the kernel's lines of defects that it has noticed; prints what follows them."""
        log = self.run(host, ["dmesg"]).stdout.splitlines()
        found = [at for at, line in enumerate(log) if _is_defect(line)]
        for at in found:
            print("\n".join([host, *log[at : at + _REPORT_LINES]]))
        return [log[at] for at in found]

    def start(self, host: str, command: Sequence[str]) -> Program:
        """Starts *command* on *host*; it is ended with the machine, or by end()."""
        program = self.program(self.argv(host, command))
        self._started.append(program)
        return program

    def end(self, program: Program) -> None:
        self._started.remove(program)
        program.close()

    def talk(
        self,
        server: tuple[str, Sequence[str]],
        client: tuple[str, Sequence[str]],
        listens: Callable[[], bool],
        *,
        deadline_s: float = DEADLINE_S,
    ) -> tuple[ProgramOutcome, ProgramOutcome]:
        """Runs a server and its client, each (host, command), to their ends: both must succeed.

        The client is started when *listens* says so.
        """
        with self.program(self.argv(*server)) as first:
            self.until(listens, first, deadline_s)
            with self.program(self.argv(*client)) as second:
                told = self.wait(second, deadline_s)
                assert told.ok, f"{told.describe()}\n{self.said_by(first)}"
            outcome = self.wait(first, deadline_s)
        assert outcome.ok, f"{outcome.describe()}\n{told.describe()}"
        return outcome, told

    def until(
        self, what: Callable[[], bool], program: Program, deadline_s: float = DEADLINE_S
    ) -> None:
        """Waits until *what* is true while *program* runs.  StallError: it does not come true."""
        deadline_s *= PATIENCE
        end_s = time.monotonic() + deadline_s
        while not what():
            assert program.running, program.outcome().describe()
            if time.monotonic() > end_s:
                raise StallError(f"after {deadline_s:g} s in vain: {self.said_by(program)}")
            # Until it ends, or for a moment.
            select.select([program.pidfd], [], [], TICK_S)

    @staticmethod
    def said_by(program: Program) -> str:
        """Kills it and returns its output."""
        program.kill("was killed")
        return program.outcome().describe()

    def tcp(self, host: str, port: int) -> Callable[[], bool]:
        """Tells whether a process on *host* listens on that TCP port; on this machine, of
        nupa_net0."""
        query = self.on_net(host, ["ss", "-Hnlt", f"sport = :{port}"])
        return lambda: bool(self.run(host, query).stdout.strip())

    def cm(self, port: int, space: str = "tcp") -> Callable[[], bool]:
        """Tells whether a process on the fabric listens there by the RDMA CM."""

        def listens() -> bool:
            outcome = self.nupa("show", self.name, "--json").check()
            found = json.loads(outcome.stdout)["listeners"]
            return any((at["port"], at["space"]) == (port, space) for at in found)

        return listens

    def traffic(self, host: str) -> int:
        """Returns the bytes, in words of four, that the host has sent, as `nupa show` counts
        them."""
        outcome = self.nupa("show", self.name, "--json").check()
        return sum(
            port["counters"]["port_xmit_data"]
            for port in json.loads(outcome.stdout)["ports"]
            if port["name"].startswith(f"{host}/")
        )

    def guests(self) -> dict[str, dict[str, Any]]:
        """Returns the guests of `nupa vm ls --json`."""
        outcome = self.nupa("vm", "ls", "--json").check()
        (found,) = json.loads(outcome.stdout)
        return {guest["name"]: guest for guest in found["guests"]}

    def signal(self, host: str, number: signal.Signals) -> None:
        """Sends it to the QEMU of that guest.  After SIGKILL it is gone."""
        pidfd = os.pidfd_open(self.guests()[host]["pid"])
        signal.pidfd_send_signal(pidfd, number)
        if number == signal.SIGKILL:
            assert select.select([pidfd], [], [], DEADLINE_S)[0]
        os.close(pidfd)

    def start_again(self, host: str) -> None:
        boot = ("--timeout", f"{BOOT_S * PATIENCE:g}")
        self.nupa("vm", "start", host, *boot, deadline_s=2 * BOOT_S).check()

    def consoles(self) -> str:
        """Returns the text of the guests' consoles."""
        texts = [f"{log.name}\n{log.read_text(errors='replace')}" for log in self._logs()]
        return "\n".join(texts) or "no guest has said anything"

    def _logs(self) -> list[Path]:
        return sorted(self._run.glob("nupa-vm-*/*.log"))

    def close(self) -> None:
        """Ends commands and guests; what is left is an error."""
        with ExitStack() as stack:
            for folder in (self._run, self._segments):
                stack.callback(shutil.rmtree, folder)
            stack.callback(self._take_down)
            for program in self._started:
                stack.callback(program.close)

    def _take_down(self) -> None:
        self.nupa("vm", "down", "--force").check()
        assert self.left() == []

    def left(self) -> list[str]:
        """Returns folders and files of machines, and guests that run: after their end, none."""
        left = [str(path) for path in (*self._run.iterdir(), *self._segments.iterdir())]
        return left + [str(each) for host in self.hosts for each in self._qemus(host)]

    def _qemus(self, host: str) -> list[object]:
        folder = self._run / f"nupa-vm-{self.name}"
        return list(find_all(str(folder / f"{host}.pid"), user=self._user.uid))


@contextmanager
def booted(
    guests: int = 2,
    kind: str = "cxl",
    *options: str,
    user: User | None = None,
    cache: Path | None = None,
) -> Iterator[Machine]:
    """Yields a machine that is up.  StallError: it did not come up, twice."""
    with closing(Machine(guests, kind, *options, user=user, cache=cache)) as machine:
        try:
            machine.up()
        except StallError as stalled:
            print(f"once more, since an emulator may stand still: {stalled}", file=sys.stderr)
            machine.up()
        yield machine


def new_port() -> int:
    """Returns a port that no test has used: remains of a server are not in the way."""
    return next(_PORTS)
