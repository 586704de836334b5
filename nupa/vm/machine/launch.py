# SPDX-License-Identifier: BSD-3-Clause
"""Starts guests' processes, waits for the HELLO of their agents, and ends them."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nupa.base import locks
from nupa.base.errors import FabricError, LocalError, RemoteError
from nupa.base.ownership import open_own
from nupa.base.process import Process, end, find_all, of_pid, spawn_detached
from nupa.base.quantity import say_bytes
from nupa.vm.agent.agent import AgentConnection, try_link
from nupa.vm.files.place import AGENT_PORTS, MachineFolder, try_lock
from nupa.vm.files.state import Guest, MachineState, store
from nupa.vm.machine import doorbell

Say = Callable[[str], None]

_POLL_S = 0.05
_TAIL_LINES = 25
_TAIL_BYTES = 16384
# Not LD_PRELOAD and LD_LIBRARY_PATH, which are meant for programs in guests.
_ENVIRONMENT = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "USER")


@contextmanager
def locked(place: MachineFolder, what: str) -> Iterator[None]:
    """Holds the machine's lock.  LocalError: another command changes the machine (EBUSY)."""
    lock = try_lock(place.file("lock"))
    if lock is None:
        raise LocalError(
            f"cannot {what} {place.name!r}: another `nupa vm` starts or ends its guests; "
            f"wait for it, or end it",
            errno.EBUSY,
        )
    try:
        yield
    finally:
        os.close(lock)


def start(place: MachineFolder, state: MachineState, guest: Guest) -> MachineState:
    """Starts the QEMU of *guest*, and stores the state.  FabricError: it does not start."""
    for port in range(AGENT_PORTS):
        # A killed QEMU leaves its sockets, where clients would wait.
        Path(place.socket(guest.name, port)).unlink(missing_ok=True)
    env = {key: value for key, value in os.environ.items() if key in _ENVIRONMENT}
    log = open_own(place.log(guest.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        # QEMU keeps this open: the fabric is in use as long as it lives (nupa/fabric/registry.py).
        use = open_own(state.segment, os.O_RDONLY)
    except BaseException:
        os.close(log)
        raise
    try:
        locks.hold(use, fcntl.LOCK_SH, state.segment)
        pid = spawn_detached(guest.argv, env, fds=[use], output=log, cpu=guest.cpu)
    except OSError as error:
        raise FabricError(
            f"cannot start {guest.argv[0]} for {guest.name}: {error.strerror}", error.errno or 0
        ) from error
    finally:
        os.close(use)
        os.close(log)
    # If the process has ended already, await_up() reports it.
    process = of_pid(pid) or Process(pid, 1)
    started = guest._replace(
        process=process, started_s=time.time(), up_s=None, device="", device_bytes=0, bell=False
    )
    state = state.with_guest(started)
    store(place, state)
    return state


def start_doorbell(place: MachineFolder, state: MachineState) -> MachineState:
    """Starts the doorbells' server, and stores the state.  FabricError: it does not start."""
    argv = [sys.executable, "-P", "-m", "nupa.vm.machine.doorbell", place.bell_socket]
    env = {key: os.environ[key] for key in (*_ENVIRONMENT, "PYTHONPATH") if key in os.environ}
    log = open_own(place.log("bell"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        memory = open_own(state.segment, os.O_RDWR)
    except BaseException:
        os.close(log)
        raise
    try:
        with doorbell.listen(place.bell_socket) as listener:
            fds = [listener.fileno(), memory]
            pid = spawn_detached([*argv, *map(str, fds)], env, fds=fds, output=log)
    except OSError as error:
        raise FabricError(
            f"cannot start the server of doorbells: {error.strerror}", error.errno or 0
        ) from error
    finally:
        os.close(memory)
        os.close(log)
    state = state._replace(doorbell=of_pid(pid))
    store(place, state)
    return state


def end_doorbell(place: MachineFolder) -> None:
    """Ends the doorbells' server, if it runs."""
    for process in find_all(place.bell_socket):
        end(process)


class _Booting:
    """A guest that boots: its HELLO has not arrived."""

    def __init__(self, place: MachineFolder, guest: Guest) -> None:
        assert guest.process is not None
        self.guest = guest
        self.link: AgentConnection | None = None
        self.pidfd = guest.process.open()
        self._place = place

    def has_died(self) -> bool:
        return self.pidfd is None or bool(select.select([self.pidfd], [], [], 0)[0])

    def connect(self) -> None:
        """Connects to its first port, once that exists."""
        if self.link is None:
            with suppress(RemoteError):
                self.link = try_link(self._place, self.guest.name, 0)

    def is_up(self) -> bool:
        """Returns whether its HELLO has arrived; drops a link that QEMU closed, to reconnect."""
        try:
            return self.link is not None and self.link.take_hello()
        except RemoteError as error:
            if error.errno != errno.ECONNRESET:
                raise
            self._drop()
            return False

    def fds(self) -> list[int]:
        found = [] if self.pidfd is None else [self.pidfd]
        return found if self.link is None else [*found, self.link.socket.fileno()]

    def close(self) -> None:
        self._drop()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def _drop(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None


def await_up(
    place: MachineFolder, state: MachineState, hosts: Iterable[str], say: Say, *, timeout_s: float
) -> MachineState:
    """Waits for the HELLO of these guests, and stores the state.

    FabricError: one died, did not answer in time, or has other memory.  *say* got the end of its
    console then.
    """
    until = time.monotonic() + timeout_s
    with ExitStack() as stack:
        booting = [_Booting(place, state.guest(host)) for host in hosts]
        for each in booting:
            stack.callback(each.close)
        while booting:
            for each in list(booting):
                each.connect()
                if each.is_up():
                    booting.remove(each)
                    state = _note_up(place, state, each, say)
                    each.close()
                elif each.has_died():
                    raise _failed(place, each.guest.name, "ended while it booted", say)
            if booting and time.monotonic() >= until:
                name = booting[0].guest.name
                raise _failed(place, name, f"is not up after {timeout_s:g} s", say)
            _wait(booting, until)
    return state


def _wait(booting: Sequence[_Booting], until: float) -> None:
    """Waits until a guest may have answered or died, or for a moment."""
    poll = select.poll()
    for each in booting:
        for fd in each.fds():
            poll.register(fd, select.POLLIN)
    left_s = max(0.0, until - time.monotonic())
    connected = all(each.link is not None for each in booting)
    if booting:
        poll.poll(1000 * (left_s if connected else min(left_s, _POLL_S)))


def _note_up(place: MachineFolder, state: MachineState, booted: _Booting, say: Say) -> MachineState:
    assert booted.link is not None
    hello, guest = booted.link.hello, booted.guest
    size = hello.get("bytes", "")
    guest = guest._replace(
        up_s=round(time.time() - guest.started_s, 3),
        device=hello.get("device", ""),
        device_bytes=int(size) if size.isdecimal() else 0,
        bell=hello.get("bell") == "1",
    )
    if guest.device_bytes != state.memory_bytes:
        raise _failed(
            place,
            guest.name,
            f"has {guest.device or 'no device'} of {size or 'no'} bytes, and "
            f"{state.memory_bytes} were expected",
            say,
        )
    state = state.with_guest(guest)
    store(place, state)
    say(f"{guest.name}: up in {guest.up_s:.1f} s: {guest.device}, {say_bytes(guest.device_bytes)}")
    if state.doorbell and not guest.bell:
        say(f"{guest.name}: has no doorbell, so it polls: `nupa vm log {guest.name}` says why")
    return state


def _failed(place: MachineFolder, host: str, what: str, say: Say) -> FabricError:
    """Says the end of the console of *host*; returns the error to raise."""
    lines = tail(place, host)
    for line in lines:
        say(f"{host} | {line}")
    said = "the end of its console is above" if lines else "its console is empty"
    return FabricError(f"{host} {what}; {said}", errno.EIO)


def tail(place: MachineFolder, host: str) -> list[str]:
    """Returns the last lines of the console of *host*."""
    try:
        with os.fdopen(open_own(place.log(host), os.O_RDONLY), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    lines = [printable(line) for line in text.splitlines()]
    return [line for line in lines if line.strip()][-_TAIL_LINES:]


def printable(line: str) -> str:
    """Returns *line* without control characters, which would reach the terminal."""
    return "".join(c for c in line.rstrip() if c == "\t" or c.isprintable())


def end_all(place: MachineFolder, guests: Iterable[Guest], hosts: Iterable[str]) -> int:
    """Ends the QEMUs of these guests, including those not in the state; returns how many."""
    found = {guest.process for guest in guests if guest.process is not None}
    for host in hosts:
        found.update(find_all(place.pid_file(host)))
    alive = [process for process in found if process.alive]
    for process in alive:
        fd = process.open()
        if fd is not None:
            with suppress(ProcessLookupError):
                # All at once; end() waits for each.
                signal.pidfd_send_signal(fd, signal.SIGTERM)
            os.close(fd)
    for process in alive:
        end(process)
    return len(alive)
