# SPDX-License-Identifier: BSD-3-Clause
"""Peer processes: forked from a nursery that has imported all, commanded by a socket, ended by pid.

A test says peer.method(...) to run a command of programs.Node and have its result, or
peer.begin("method", ...) to go on while it runs.  Each answer has a deadline.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.cross.peers.node import WAIT_S
from tests.cross.peers.programs import Node

_LENGTH = struct.Struct("<I")
_PR_SET_PDEATHSIG = 1
# Beyond the waits that commands make themselves.
ANSWER_S = WAIT_S + 10


class PeerError(Exception):
    """A command raised: kind is the exception's name, text what it said, errno if it had one."""

    def __init__(self, kind: str, text: str, errno: int, trace: str) -> None:
        super().__init__(f"{kind}: {text}\n{trace}")
        self.kind = kind
        self.text = text
        self.errno = errno


class PeerGoneError(Exception):
    """The process ended instead of answering."""


def _send(sock: socket.socket, value: object) -> None:
    data = pickle.dumps(value)
    sock.sendall(_LENGTH.pack(len(data)) + data)


def _read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        try:
            part = sock.recv(count - len(data))
        except ConnectionResetError:
            part = b""
        if not part:
            raise EOFError
        data += part
    return data


def _receive(sock: socket.socket) -> Any:
    return pickle.loads(_read(sock, _LENGTH.unpack(_read(sock, _LENGTH.size))[0]))


# --- the other side -----------------------------------------------------------------------------


def _serve(sock: socket.socket) -> None:
    """Runs commands until the test closes the socket."""

    def note(value: object) -> None:
        # One without a reader is dropped: the command must not wait for its reader.
        if select.select([], [sock], [], 0)[1]:
            _send(sock, ("note", value))

    def stopped() -> bool:
        # While a command runs, all that can come is "stop", or the end.
        return bool(select.select([sock], [], [], 0)[0])

    node = Node(note, stopped)
    _send(sock, ("done", os.getpid()))
    while True:
        try:
            name, args, kwargs = _receive(sock)
        except EOFError:
            return
        if name == "stop":
            continue
        try:
            answer: tuple[str, Any] = ("done", getattr(node, name)(*args, **kwargs))
        except Exception as error:
            code = getattr(error, "errno", None) or 0
            answer = (
                "error",
                (type(error).__name__, str(error), code, traceback.format_exc()),
            )
        _send(sock, answer)


def nurse(fd: int) -> None:
    """Forks a peer for each socket that it is sent: the nursery."""
    faulthandler.enable()
    libc = ctypes.CDLL(None)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    nursery = socket.socket(fileno=fd)
    while True:
        _, fds, _, _ = socket.recv_fds(nursery, 1, 1)
        if not fds:
            return
        if os.fork() == 0:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            nursery.close()
            _serve(socket.socket(fileno=fds[0]))
            os._exit(0)
        os.close(fds[0])


# --- the test's side ----------------------------------------------------------------------------


class Nursery:
    """A process without attachments that peers are forked from.  *prefix* runs it, e.g. in
    namespaces of its own."""

    def __init__(self, env: dict[str, str] | None = None, prefix: list[str] | None = None) -> None:
        here, there = socket.socketpair()
        # By the name under which the test imports it: so both pickle the same classes.
        root = Path(__file__).parents[__name__.count(".")]
        code = (
            f"import sys; sys.path.append({str(root)!r}); "
            f"from {__name__} import nurse; nurse({there.fileno()})"
        )
        self._process = subprocess.Popen(
            [*(prefix or []), sys.executable, "-P", "-c", code],
            env={**os.environ, **(env or {})},
            pass_fds=[there.fileno()],
        )
        there.close()
        self._sock = here

    def peer(self) -> Peer:
        here, there = socket.socketpair()
        with there:
            socket.send_fds(self._sock, [b"p"], [there.fileno()])
        return Peer(here)

    def close(self) -> None:
        self._sock.close()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise


class Pending:
    """A command that runs."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def note(self, timeout: float = ANSWER_S) -> Any:
        """Returns the next word of the running command."""
        kind, value = self._peer._answer(timeout)
        assert kind == "note", f"the command ended with {value!r}"
        return value

    def result(self, timeout: float = ANSWER_S) -> Any:
        """Returns its result; PeerError, PeerGoneError, TimeoutError."""
        deadline = time.monotonic() + timeout
        while True:
            kind, value = self._peer._answer(deadline - time.monotonic())
            if kind == "done":
                return value
            if kind == "error":
                raise PeerError(*value)

    def stop(self) -> None:
        _send(self._peer._sock, ("stop", (), {}))


class Peer:
    """A process that runs commands."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        kind, self.pid = self._answer(ANSWER_S)
        assert kind == "done"
        self._pidfd = os.pidfd_open(self.pid)

    def _answer(self, timeout: float) -> tuple[str, Any]:
        if not select.select([self._sock], [], [], max(0.0, timeout))[0]:
            raise TimeoutError(f"no answer from peer {self.pid} within {timeout} s")
        try:
            kind, value = _receive(self._sock)
        except EOFError:
            raise PeerGoneError("a peer ended instead of answering") from None
        return kind, value

    def begin(self, name: str, *args: Any, **kwargs: Any) -> Pending:
        """Starts a command."""
        _send(self._sock, (name, args, kwargs))
        return Pending(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Node, name):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.begin(name, *args, **kwargs).result()

    def signal(self, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self._pidfd, number)

    def ended(self, timeout: float = ANSWER_S) -> None:
        """Waits until the process has ended."""
        if not select.select([self._pidfd], [], [], timeout)[0]:
            raise TimeoutError(f"peer {self.pid} has not ended within {timeout} s")

    def kill(self) -> None:
        """Sends SIGKILL; returns when it is dead."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.ended()

    def close(self) -> None:
        """Kills it; twice does nothing."""
        if self._sock.fileno() < 0:
            return
        self.kill()
        os.close(self._pidfd)
        self._sock.close()
