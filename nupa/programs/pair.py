# SPDX-License-Identifier: BSD-3-Clause
"""Real programs: one, or a server and a client on two hosts of a fabric."""

from __future__ import annotations

import os
import random
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from nupa.base.closing import Closing

_TCP_LISTEN = "0A"  # /proc/net/tcp, column st: TCP_LISTEN of <netinet/tcp.h>
_TICK_S = 0.1
_LISTEN_POLL_S = 0.002
_SAID_POLL_S = 0.02
_TAIL_LINES = 12
#: Below Linux' default ip_local_port_range, so no connect() of another program takes one.
_PORTS = range(20000, 32000)


class ProgramError(Exception):
    """A program failed, ended too early or missed its deadline.

    The message names the program and ends with its last lines, and those of its partner.
    """


@dataclass(frozen=True)
class ProgramOutcome:
    """The end of one program.  *returncode* is that of subprocess: -N after signal N."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    killed: str = ""  #: why it was killed; empty if it ended by itself

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.killed

    @property
    def reason(self) -> str:
        """Says in one line how a failed program ended."""
        if self.killed:
            return self.killed
        if self.returncode < 0:
            return f"ended by {signal.Signals(-self.returncode).name}"
        lines = self.stderr.strip().splitlines()
        return lines[-1] if lines else f"ended with {self.returncode}"

    def check(self) -> ProgramOutcome:
        """Returns itself; ProgramError if the program failed."""
        if not self.ok:
            raise ProgramError(self.describe())
        return self

    def describe(self) -> str:
        """Returns the command, its end and its last lines, for error messages."""
        how = self.killed or f"ended with {self.returncode}"
        lines = [line for line in (self.stdout + "\n" + self.stderr).splitlines() if line.strip()]
        tail = "".join(f"\n  | {line.rstrip()}" for line in lines[-_TAIL_LINES:])
        return f"`{shlex.join(self.argv)}` {how}" + (f":{tail}" if tail else ", and wrote nothing")


@dataclass(frozen=True)
class PairResult:
    server: ProgramOutcome
    client: ProgramOutcome
    elapsed_s: float

    def check(self) -> PairResult:
        """Returns itself; ProgramError if either end failed."""
        if self.client.ok and self.server.ok:
            return self
        raise ProgramError(f"{self.client.describe()}\n{self.server.describe()}")


class Program(Closing):
    """One started program; a context manager that kills it.

    Its output goes to files, so that it never waits for a reader.  It leads a session of its own:
    `kill` reaches its children, too.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cpu: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.argv = tuple(argv)
        self._stdout: IO[bytes] = tempfile.TemporaryFile()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()
        self._killed = ""
        try:
            with _pinned(cpu):
                self._process = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=self._stdout,
                    stderr=self._stderr,
                    env=None if env is None else {**os.environ, **env},
                    pass_fds=pass_fds,
                    start_new_session=True,
                )
        except BaseException as error:
            self._stdout.close()
            self._stderr.close()
            if isinstance(error, OSError):
                raise ProgramError(f"`{shlex.join(self.argv)}` did not start: {error}") from error
            raise
        self.pidfd = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def failed(self) -> bool:
        return bool(self._process.poll())

    def signal(self, number: int) -> None:
        """Signals the program and its children, past `nupa run`.  ProcessLookupError: it ended."""
        os.killpg(self.pid, number)

    def kill(self, why: str) -> None:
        """Sends SIGKILL to the program and its children, if it still runs."""
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
            if self._process.wait() == -signal.SIGKILL:
                self._killed = why

    def has_said(self, text: str) -> bool:
        """Returns whether *text* is in its output so far, of stdout or stderr."""
        return any(text in output for output in self.said())

    def said(self) -> tuple[str, str]:
        """Returns its output so far, of stdout and stderr."""
        found = []
        for file in (self._stdout, self._stderr):
            # pread: the file's offset is shared with the program, which writes there.
            descriptor = file.fileno()
            output = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            found.append(output.decode(errors="replace"))
        return found[0], found[1]

    def wait_said(self, text: str, deadline_s: float) -> None:
        """Waits until it has written *text*.  ProgramError: it ended first, or was too slow."""
        end_s = time.monotonic() + deadline_s
        while not self.has_said(text):
            if not self.running and not self.has_said(text):
                raise ProgramError(f"did not say {text!r}: {self.outcome().describe()}")
            if time.monotonic() > end_s:
                self.kill(f"was killed: had not said {text!r} after {deadline_s:g} s")
                raise ProgramError(self.outcome().describe())
            await_end([self], _SAID_POLL_S)

    def wait(
        self, deadline_s: float | None = None, tick: Callable[[float], None] | None = None
    ) -> ProgramOutcome:
        """Waits for the end, kills it at the deadline, and reads the output.

        *tick* is called about ten times a second with the seconds passed.
        """
        start_s = time.monotonic()
        while self.running and (deadline_s is not None or tick is not None):
            passed_s = time.monotonic() - start_s
            if tick is not None:
                tick(passed_s)
            if deadline_s is not None and passed_s > deadline_s:
                self.kill(f"was killed: not done after {passed_s:.1f} s")
            await_end([self], _TICK_S)
        return self.outcome()

    def outcome(self) -> ProgramOutcome:
        """Waits for the end, which must be near, and reads the output."""
        returncode = self._process.wait()
        texts = []
        for file in (self._stdout, self._stderr):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return ProgramOutcome(self.argv, returncode, texts[0], texts[1], self._killed)

    def close(self) -> None:
        self.kill("was killed at the end of the test")
        os.close(self.pidfd)
        self._stdout.close()
        self._stderr.close()


@dataclass
class ProgramPair:
    """A server and a client, one on each of two hosts of a fabric; a context manager.

    `run` does all of it, unless the programs are to be disturbed on their way::

        with ProgramPair(["ib_send_lat", ...], [...], fabric="f", port=port) as pair:
            pair.start_server()     # returns when it listens on *port*
            pair.start_client()
            pair.client.signal(signal.SIGKILL)
            result = pair.wait()

    *fabric*: None runs the commands as they are, without `nupa run`.  *env* is added to ours.
    *cpus* pins the server to the first, the client to the second.  *fds*: an open file that each
    inherits.  *port*, *ready*: the client starts when the server listens on that TCP port and has
    written those words.  *deadline_s* is for all; *grace_s* is for one end, once the other failed.
    *tick* is called about ten times a second with the seconds passed.
    """

    server_cmd: Sequence[str]
    client_cmd: Sequence[str]
    fabric: str | None = None
    mover: str | None = None
    env: Mapping[str, str] | None = None
    hosts: tuple[str, str] = ("host0", "host1")
    cpus: tuple[int, int] | None = None
    fds: tuple[int, int] | None = None
    port: int | None = None
    ready: str | None = None
    deadline_s: float = 30.0
    grace_s: float = 5.0
    tick: Callable[[float], None] | None = None
    _programs: list[Program] = field(default_factory=list, init=False)
    _start_s: float = field(default=0.0, init=False)

    def __enter__(self) -> ProgramPair:
        self._start_s = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.close()

    @property
    def server(self) -> Program:
        return self._programs[0]

    @property
    def client(self) -> Program:
        return self._programs[1]

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start_s

    def start_server(self) -> None:
        """Starts the server and waits until it listens on *port* and has said *ready*, if given."""
        self._start(self.server_cmd, 0)
        awaited = f"listen on port {self.port}" if self.ready is None else f"say '{self.ready}'"
        while not self._server_is_ready():
            if not self.server.running:
                raise ProgramError(f"did not {awaited}: {self.server.outcome().describe()}")
            if self.elapsed_s > self.deadline_s:
                self.server.kill(f"did not {awaited} in {self.deadline_s:g} s")
                raise ProgramError(self.server.outcome().describe())
            self._sleep([self.server], _LISTEN_POLL_S)

    def _server_is_ready(self) -> bool:
        if self.ready is not None and not self.server.has_said(self.ready):
            return False
        return self.port is None or is_listening(self.port, self.server.pid)

    def start_client(self) -> None:
        self._start(self.client_cmd, 1)

    def run(self) -> PairResult:
        """Starts both, waits for both ends and closes.

        A failed program is in the result (`check` raises it); ProgramError: one did not start, or
        never listened.
        """
        with self:
            self.start_server()
            self.start_client()
            return self.wait()

    def wait(self) -> PairResult:
        """Waits for both ends; kills at the deadline those that still run."""
        end_s = self.deadline_s
        while running := [program for program in self._programs if program.running]:
            if any(program.failed for program in self._programs):
                end_s = min(end_s, self.elapsed_s + self.grace_s)
            if self.elapsed_s > end_s:
                for program in running:
                    program.kill(f"was killed: not done after {self.elapsed_s:.1f} s")
            self._sleep(running, _TICK_S)
        return PairResult(self.server.outcome(), self.client.outcome(), self.elapsed_s)

    def _start(self, command: Sequence[str], end: int) -> None:
        argv = list(command)
        if self.fabric is not None:
            argv = nupa_run(argv, fabric=self.fabric, host=self.hosts[end], mover=self.mover)
        cpu = None if self.cpus is None else self.cpus[end]
        fds = () if self.fds is None else (self.fds[end],)
        self._programs.append(Program(argv, env=self.env, cpu=cpu, pass_fds=fds))

    def _sleep(self, programs: list[Program], seconds: float) -> None:
        await_end(programs, seconds)
        if self.tick is not None:
            self.tick(self.elapsed_s)


def await_end(programs: Sequence[Program], seconds: float) -> bool:
    """Waits until one of the programs ends, at most *seconds*; returns whether one did."""
    poller = select.poll()
    for program in programs:
        poller.register(program.pidfd, select.POLLIN)
    return bool(poller.poll(max(0.0, seconds) * 1000))


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cpu: int | None = None,
    deadline_s: float | None = None,
    tick: Callable[[float], None] | None = None,
) -> ProgramOutcome:
    """Runs one program to its end and returns how it ended; arguments as for `Program.wait`."""
    with Program(argv, env=env, cpu=cpu) as program:
        return program.wait(deadline_s, tick)


def nupa_run(
    command: Sequence[str], *, fabric: str, host: str | None = None, mover: str | None = None
) -> list[str]:
    """Returns the command line that runs *command* on a host of *fabric*, by this Python."""
    argv = [*NUPA, "run", "--fabric", fabric]
    if host is not None:
        argv += ["--host", host]
    if mover is not None:
        argv += ["--mover", mover]
    return [*argv, "--", *command]


#: `nupa` by this interpreter, installed or not on PATH.
NUPA = (sys.executable, "-P", "-m", "nupa.cli")


def free_port(rng: random.Random | None = None) -> int:
    """Returns a TCP port that nothing is bound to now, on any address of either family."""
    rng = rng or random.Random(os.getpid() ^ time.monotonic_ns())
    for port in rng.sample(_PORTS, 100):
        try:
            with _bound(port):
                return port
        except OSError:
            continue
    raise ProgramError(f"no free TCP port: 100 were tried between {_PORTS.start} and {_PORTS.stop}")


def _bound(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def is_listening(port: int, pid: int | None = None) -> bool:
    """Returns whether a TCP socket listens on *port* in the network namespace of *pid*, or in ours.

    False if that process has ended (proc_net_tcp).
    """
    for name in ("tcp", "tcp6"):
        try:
            table = Path(f"/proc/{pid or 'self'}/net/{name}").read_text()
        except (FileNotFoundError, ProcessLookupError):  # no IPv6, no process
            continue
        for line in table.splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == _TCP_LISTEN and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


@contextmanager
def _pinned(cpu: int | None) -> Iterator[None]:
    """Pins this thread, and so the programs that it starts meanwhile, to one CPU."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError as error:
        raise ProgramError(
            f"cannot pin to CPU {cpu}: {error}; usable are {sorted(before)}"
        ) from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
