# SPDX-License-Identifier: BSD-3-Clause
"""Orders to the parts of a cluster: `nupa trunk part` on each machine, by ssh, at the same time.

An order is JSON on its standard input, the answer JSON on its standard output.  Nothing else is
copied to a machine.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple

from nupa.base.errors import LocalError
from nupa.base.printable import printable
from nupa.trunk.cluster import Machine

#: Never asks for a password, and gives up on a machine that does not answer.
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
VARIABLE = "NUPA_TRUNK_SSH"
ANSWER_BYTES_MAX = 1 << 20
DEADLINE_S = 120.0
_EXIT_SSH = 255
_EXIT_NOT_FOUND = 127
_PART = ("trunk", "part")


class MachineAnswer(NamedTuple):
    """The answer of a machine.  error: empty, or why there is no *value*."""

    value: dict[str, Any]
    error: str = ""


def ssh_words(said: str | None) -> tuple[str, ...] | None:
    """Returns the words of --ssh "COMMAND", else of NUPA_TRUNK_SSH; None: neither is given.

    LocalError: not a command.
    """
    origin, text = "--ssh", said
    if text is None:
        origin, text = VARIABLE, os.environ.get(VARIABLE) or None
    if text is None:
        return None
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise LocalError(f"{origin} is {text!r}: {error}", errno.EINVAL) from None
    if not words:
        raise LocalError(
            f"{origin} is empty: name the command that reaches a machine", errno.EINVAL
        )
    return words


def command_line(machine: Machine, ssh: Sequence[str] | None) -> list[str]:
    """Returns the words that run `nupa trunk part` on the machine.

    *ssh*: as given by --ssh; None: a machine with an address of this one and no `ssh` is this one.
    """
    own = [*machine.command, *_PART]
    if ssh is None and not machine.ssh and is_local(machine.address):
        if machine.command == ("nupa",):
            return [sys.executable, "-P", "-m", "nupa.cli", *_PART]
        return own
    # ssh(1) joins its words with blanks, for a shell.
    return [*(ssh or SSH), machine.destination, *map(shlex.quote, own)]


def is_local(address: str) -> bool:
    """Tells whether one may listen at the address here."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except (OSError, UnicodeError):
        return False
    return True


def ask(
    machines: Sequence[Machine],
    orders: Mapping[str, Mapping[str, Any]],
    *,
    ssh: Sequence[str] | None = None,
    deadline_s: float = DEADLINE_S,
    each: Callable[[Machine, MachineAnswer], None] | None = None,
) -> dict[str, MachineAnswer]:
    """Gives each machine its order; returns the answers by name.

    *each* is called with an answer when it comes, in this thread.  At an exception, such as a
    signal's, all that run are ended.
    """
    answers: dict[str, MachineAnswer] = {}
    running = _Commands()
    with ThreadPoolExecutor(max_workers=len(machines) or 1) as pool:
        try:
            futures = {
                pool.submit(
                    _ask, machine, json.dumps(orders[machine.name]), ssh, deadline_s, running
                ): machine
                for machine in machines
            }
            for future in as_completed(futures):
                machine = futures[future]
                answers[machine.name] = future.result()
                if each is not None:
                    each(machine, answers[machine.name])
        except BaseException:
            running.end()
            raise
    return {machine.name: answers[machine.name] for machine in machines}


class _Commands:
    """The commands that run; each has a process group of its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        with self._lock:
            if self._ended:
                raise OSError(errno.EINTR, "interrupted")
            process = subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
            self._processes.add(process)
            return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._processes.discard(process)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._processes:
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Its group exists until it is reaped, which communicate() does.
    with suppress(ProcessLookupError, PermissionError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)


def _ask(
    machine: Machine,
    order: str,
    ssh: Sequence[str] | None,
    deadline_s: float,
    running: _Commands,
) -> MachineAnswer:
    argv = command_line(machine, ssh)
    try:
        process = running.start(argv)
    except OSError as error:
        return MachineAnswer({}, f"cannot run {argv[0]}: {error.strerror}")
    try:
        out, err = process.communicate(order.encode(), timeout=deadline_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.communicate()
        return MachineAnswer({}, f"no answer after {deadline_s:g} s from `{shlex.join(argv)}`")
    finally:
        running.forget(process)
    return judged(machine, process.returncode, out, err)


def judged(machine: Machine, code: int, out: bytes, err: bytes) -> MachineAnswer:
    """Returns the answer that a command has given, which is checked as hostile."""
    lines = [printable(line) for line in err.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1].removeprefix("nupa: ") if lines else ""
    if code == _EXIT_NOT_FOUND:
        return MachineAnswer(
            {},
            f"`{shlex.join(machine.command)}` is not found there ({last or 'exit code 127'}): "
            f"install NUPA, or say where it is by `command` in the cluster file",
        )
    if code == _EXIT_SSH:
        return MachineAnswer({}, f"{last or 'ssh failed'}; try: ssh {machine.destination} true")
    if code:
        return MachineAnswer({}, last or f"`nupa trunk part` ended with {code}")
    try:
        if len(out) > ANSWER_BYTES_MAX:
            raise ValueError(f"more than {ANSWER_BYTES_MAX} bytes")
        value = json.loads(out)
    except (ValueError, RecursionError) as error:
        return MachineAnswer(
            {}, f"its answer is not JSON ({error}): does a shell's start file print?"
        )
    if not isinstance(value, dict):
        return MachineAnswer({}, "its answer is not that of `nupa trunk part`")
    said = value.get("error")
    return MachineAnswer(value, printable(said) if isinstance(said, str) else "")
