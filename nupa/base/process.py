# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each `nupa net exec` 10 ms.
# ruff: noqa: PTH123, PTH208
"""Processes that outlive the command that started them, identified by pid and start time."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, NoReturn

from nupa.base.printable import printable

_START_FIELD = 22  # of /proc/PID/stat, counted from 1 (proc_pid_stat(5))
_GRACE_S = 3.0


class Process(NamedTuple):
    """A process: its pid, and its start time in clock ticks since the boot."""

    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        return of_pid(self.pid) == self

    def open(self) -> int | None:
        """Returns a pidfd, which the caller closes; None if the process is gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        # Checked after opening: the pidfd keeps the pid from being reused.
        if self.alive:
            return fd
        os.close(fd)
        return None


def of_pid(pid: int) -> Process | None:
    """Returns the process that has this pid now; None if there is none, or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before it may hold blanks and brackets.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in b"ZX" else Process(pid, int(fields[_START_FIELD - 3]))


def say(pid: int) -> str:
    """Returns 'sleep (pid 12)'; an empty text if there is no such process."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return f"{printable(file.read().rstrip())} (pid {pid})"
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid: int) -> list[int]:
    """Lists the children of a process's first thread, as far as the kernel says
    (proc_pid_tid_children(5))."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def end(process: Process, *, grace_s: float = _GRACE_S) -> None:
    """Sends SIGTERM, after *grace_s* SIGKILL, and waits until the process is gone."""
    fd = process.open()
    if fd is None:
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, signal.SIGTERM)
            if not poll.poll(grace_s * 1000):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                poll.poll()
    finally:
        os.close(fd)


@contextmanager
def signals_held() -> Iterator[None]:
    """Holds signals back until the block ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def find_all(*words: str, user: int | None = None) -> list[Process]:
    """Finds the processes of a user, ours by default, whose command lines have all *words*."""
    user = os.geteuid() if user is None else user
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if os.fstat(file.fileno()).st_uid != user:
                    continue
                argv = file.read().split(b"\0")
        except OSError:  # it has exited
            continue
        process = of_pid(int(entry)) if all(word.encode() in argv for word in words) else None
        if process is not None:
            found.append(process)
    return found


def spawn_detached(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    fds: Collection[int],
    output: int,
    cpu: int | None = None,
) -> int:
    """Starts a program in a session of its own, without a parent, with *fds* and no other file.

    Its standard input is empty; *output* is its standard output and error.  *cpu*: the only CPU it
    may use.  Returns its pid.  OSError: it did not start.
    """
    have_standard_files()
    told, tell = os.pipe()
    with signals_held():
        child = os.fork()
        if child == 0:
            _spawn(argv, env, fds, output, cpu, tell)
    os.close(tell)
    with open(told, encoding="ascii") as file:
        pid = int(file.read() or 0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))
    return pid


def _spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    fds: Collection[int],
    output: int,
    cpu: int | None,
    tell: int,
) -> NoReturn:
    """Spawns the program in a child and exits, so that the program has no parent."""
    code = 255
    try:
        os.setsid()
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        inherit_only(fds)
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsigmask=[],
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
        os.write(tell, str(pid).encode())
        code = 0
    except OSError as error:
        code = error.errno or code
    finally:
        os._exit(code)


def have_standard_files() -> None:
    """Opens files 0 to 2 where they are closed, so that no other file gets these numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def inherit_only(fds: Collection[int]) -> None:
    """Lets a program that is started from here inherit these files and 0 to 2 alone."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # the listing's own descriptor is closed already
            os.set_inheritable(fd, fd in fds or fd <= 2)
