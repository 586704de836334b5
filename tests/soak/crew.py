# SPDX-License-Identifier: BSD-3-Clause
"""Workers as the director sees them: processes that it starts, tells what to do, and ends."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import nupa

from .board import Board

LINKS_MAX = 31  #: both ends of each may be in one worker, which has ENDS_MAX (worker/soak.h)
SOURCES = Path(__file__).with_name("worker")


def build(out: Path) -> Path:
    """Compiles the worker against the system's libibverbs into *out*; the program's path."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler: apt-get install gcc")
    program = out / "worker"
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    flags = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-D_GNU_SOURCE"]
    libraries = ["-lrdmacm", "-libverbs", "-lpthread"]
    subprocess.run([compiler, *flags, *sources, "-o", str(program), *libraries], check=True)
    return program


def environment() -> dict[str, str]:
    """Returns our environment with the drop-in libraries, for workers."""
    folder = Path(nupa.__file__).with_name("lib")
    if not (folder / "libibverbs.so.1").exists():
        raise FileNotFoundError(f"no libibverbs.so.1 in {folder}: make build")
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "NUPA_QUIET": "1",
        # Else what a thread keeps for its next malloc counts as held.
        "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    }


@dataclass(frozen=True)
class Role:
    """State of a worker that stays when its process is replaced."""

    index: int
    mover: str | None
    events: bool  #: sleeps until something happens, else it polls
    spared: bool  #: stopped, but never ended: what leaks shows in it


@dataclass(frozen=True)
class Place:
    """A host that workers run on."""

    name: str
    ipv4: str  #: by which others reach it
    site: int = 0  #: machines that wires join are numbered
    prefix: tuple[str, ...] = ()  #: the words before a command there
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def gid(self) -> str:
        """Returns its GID as 32 hexadecimal digits."""
        return "0" * 20 + "ffff" + socket.inet_aton(self.ipv4).hex()


@dataclass
class Stop:
    """One SIGSTOP, until when."""

    from_ns: int
    to_ns: int | None = None


@dataclass
class Worker:
    """One process."""

    role: Role
    place: Place
    process: subprocess.Popen[bytes]
    control: socket.socket
    board: Board
    started_ns: int
    pidfd: int
    ready: bool = False
    datagram_qpn: int = 0
    cm_port: int = 0  #: where it listens for rdma_cm
    ended_by: str = ""  #: what the director did to it, if it did
    ended_ns: int = 0
    died_ns: int = 0  #: when the director was told of it by the pidfd
    finished: bool = False
    stops: list[Stop] = field(default_factory=list)
    links: set[int] = field(default_factory=set)

    @classmethod
    def start(
        cls, program: Path, role: Role, place: Place, seed: int, env: Mapping[str, str], now_ns: int
    ) -> Worker:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        board = Board()
        environment = {**env, **place.env, "NUPA_HOST": place.name}
        if role.mover:
            environment["NUPA_MOVER"] = role.mover
        process = subprocess.Popen(
            [*place.prefix, str(program), str(int(role.events)), str(seed), str(board.fd)],
            stdin=theirs.fileno(),
            env=environment,
            pass_fds=[board.fd],
        )
        theirs.close()
        ours.setblocking(False)
        pidfd = os.pidfd_open(process.pid)
        return cls(role, place, process, ours, board, now_ns, pidfd)

    @property
    def name(self) -> str:
        return f"worker {self.role.index} (pid {self.process.pid})"

    @property
    def stopped(self) -> bool:
        return bool(self.stops) and self.stops[-1].to_ns is None

    @property
    def usable(self) -> bool:
        """Takes new links."""
        return self.ready and not self.ended_by

    @property
    def has_room(self) -> bool:
        """Takes a new link, of which it may have both ends."""
        return self.usable and len(self.links) < LINKS_MAX

    def ran_since(self, ns: int) -> bool:
        """Tells whether it was not stopped at any time since."""
        return all(stop.to_ns is not None and stop.to_ns < ns for stop in self.stops[-8:])

    def tell(self, line: str) -> None:
        # Broken: it has ended, and its pidfd says so.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.control.send(line.encode())

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal.  Popen's way would reap a dead process, and its pidfd tells no more."""
        signal.pidfd_send_signal(self.pidfd, number)

    def stop(self, now_ns: int) -> None:
        self.send_signal(signal.SIGSTOP)
        self.stops.append(Stop(now_ns))

    def resume(self, now_ns: int) -> None:
        self.send_signal(signal.SIGCONT)
        self.stops[-1].to_ns = now_ns

    def stacks(self) -> list[str]:
        """Returns the system calls of its threads, and their frames where gdb can tell."""
        gdb = shutil.which("gdb")
        waits = []
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends just now
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                waits.append(f"{task.name}: {(task / 'syscall').read_text().strip()}")
                with contextlib.suppress(PermissionError):  # root alone may read it
                    waits += [f"  {line}" for line in (task / "stack").read_text().splitlines()]
        if gdb is None:
            return waits
        command = [gdb, "-p", str(self.process.pid), "-batch", "-ex", "thread apply all bt 12"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        frames = [line for line in done.stdout.splitlines() if line.startswith(("#", "Thread"))]
        return [*waits, *(frames or done.stderr.splitlines())]

    def open_files(self) -> list[str]:
        """Returns its file descriptors, while it runs."""
        folder = Path(f"/proc/{self.process.pid}/fd")
        return [re.sub(r"\d+", "N", str(path.readlink())) for path in folder.iterdir()]

    def close(self) -> None:
        """Closes the files of a process that has ended."""
        self.control.close()
        os.close(self.pidfd)
        self.board.close()
