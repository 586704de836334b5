# SPDX-License-Identifier: BSD-3-Clause
"""A command in a guest, as if it ran here: input, both outputs, signals, exit status."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time
from collections import defaultdict
from typing import NamedTuple

from nupa.base.errors import RemoteError
from nupa.vm.agent import frames
from nupa.vm.agent.agent import AgentConnection
from nupa.vm.agent.frames import Ended, Frame, RunRequest
from nupa.vm.agent.terminal import Terminal

_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_OF_A_TERMINAL = (signal.SIGWINCH, signal.SIGCONT)
# A signal queued behind input that the command does not read may never arrive.
_SIGNAL_S = 2.0
# How often a background process checks whether it may read the terminal.
_BACKGROUND_TICK_S = 0.5
_CHUNK_BYTES = 16384
_WAITING_BYTES_MAX = 1 << 18


class Files(NamedTuple):
    """The local files that stand for the command's standard files."""

    stdin: int = 0
    stdout: int = 1
    stderr: int = 2


class Signals:
    """Collects the signals of this process, for `read`; main thread only."""

    def __init__(self, terminal: bool = False) -> None:
        self._numbers = _FORWARDED + (_OF_A_TERMINAL if terminal else ())

    def __enter__(self) -> Signals:
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        theirs.setblocking(False)
        self._theirs = theirs
        self._fd_before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self._before = {
            number: signal.signal(number, _noted)
            for number in self._numbers
            # Our parent chose to ignore this one (nohup(1)).
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        self._ours.close()
        self._theirs.close()

    def fileno(self) -> int:
        return self._ours.fileno()

    def read(self) -> bytes:
        """Returns the numbers of the signals that arrived."""
        try:
            found = self._ours.recv(256)
        except BlockingIOError:
            return b""
        return bytes(number for number in found if number in self._before)


def _noted(_number: int, _frame: object) -> None:
    """Does nothing: the wake-up file has the number."""


class _Outlet:
    """A local file, and the output that waits to be written to it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = bytearray()
        self.broken = False

    def put(self, data: bytes) -> None:
        if not self.broken:
            self.waiting += data

    def write(self) -> None:
        """Writes a piece that a pipe with any room takes without blocking (pipe(7))."""
        try:
            done = os.write(self.fd, self.waiting[: select.PIPE_BUF])
        except BlockingIOError:
            return
        except OSError:  # no reader, or the disk is full
            self.broken = True
            done = len(self.waiting)
        del self.waiting[:done]


class Relay:
    """One command in a guest, over *link*."""

    def __init__(
        self,
        link: AgentConnection,
        files: Files,
        signals: Signals | None = None,
        terminal: Terminal | None = None,
    ) -> None:
        self._link = link
        self._stdin: int | None = files.stdin
        self._outlets = {frames.STDOUT: _Outlet(files.stdout), frames.STDERR: _Outlet(files.stderr)}
        self._signals = signals
        self._terminal = terminal
        self._to_guest = bytearray()
        self._gone = False
        self._ended: Ended | None = None
        self._signalled: tuple[int, float] | None = (
            None  # the signal that waits to be sent, and until when
        )

    def run(self, command: RunRequest, timeout_s: float | None = None) -> Ended:
        """Runs *command* to its end.

        LocalError: it is too long; RemoteError: the guest has gone, or the command did not end in
        time (ETIMEDOUT): closing the link ends it.
        """
        self._to_guest += frames.run(command)
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not (self._done() and not self._has_waiting()):
            self._turn(until)
            if until is not None and time.monotonic() >= until:
                raise RemoteError(
                    f"{self._link.host}: the command did not end in {timeout_s:g} s",
                    errno.ETIMEDOUT,
                )
        if self._ended is None:
            raise RemoteError(
                f"{self._link.host} has gone while the command ran: `nupa vm ls` shows its state",
                errno.ECONNRESET,
            )
        return self._ended

    def _done(self) -> bool:
        return self._gone or self._ended is not None

    def _has_waiting(self) -> bool:
        return any(outlet.waiting for outlet in self._outlets.values())

    def _turn(self, until: float | None) -> None:
        """Waits until a file or signal is ready, and handles it."""
        link, room = self._link.socket.fileno(), True
        wanted: defaultdict[int, int] = defaultdict(int)
        for outlet in self._outlets.values():
            if outlet.waiting:
                wanted[outlet.fd] |= select.POLLOUT
                room = room and len(outlet.waiting) < _WAITING_BYTES_MAX
        if not self._done():
            wanted[link] |= (select.POLLIN if room else 0) | (
                select.POLLOUT if self._to_guest else 0
            )
            if self._stdin is not None and self._may_read_stdin():
                wanted[self._stdin] |= select.POLLIN
        if self._signals is not None:
            wanted[self._signals.fileno()] |= select.POLLIN
        poll = select.poll()
        for fd, events in wanted.items():
            poll.register(fd, events)
        ready = dict(poll.poll(self._timeout_ms(until)))
        for outlet in self._outlets.values():
            if outlet.fd in ready and outlet.waiting:
                outlet.write()
        if self._outlets[frames.STDOUT].broken and not self._done():
            # A local command would have received SIGPIPE, too.
            self._ended = Ended(signal.SIGPIPE)
        if self._signals is not None and self._signals.fileno() in ready:
            self._forward(self._signals.read())
        if not self._done():
            self._exchange(ready, link)
        self._give_up_on_signal()

    def _exchange(self, ready: dict[int, int], link: int) -> None:
        if self._stdin is not None and ready.get(self._stdin, 0) & ~select.POLLOUT:
            self._read_stdin(self._stdin)
        if self._to_guest and not self._gone:
            self._send()
        if ready.get(link, 0) & ~select.POLLOUT and not self._done():
            found = self._link.read()
            if found is None:
                self._gone = True
            for each in found or ():
                self._take(each)

    def _timeout_ms(self, until: float | None) -> float | None:
        ends = [end for end in (until, self._signalled and self._signalled[1]) if end is not None]
        waits = [max(0.0, end - time.monotonic()) for end in ends]
        if self._stdin is not None and not self._done() and self._is_background():
            waits.append(_BACKGROUND_TICK_S)
        return min(waits) * 1000 + 1 if waits else None

    def _take(self, found: Frame) -> None:
        if found.kind in self._outlets:
            self._outlets[found.kind].put(found.payload)
        elif found.kind == frames.EXIT:
            self._ended = frames.parse_exit(found.payload)
        else:
            raise RemoteError(
                f"{self._link.host}: its agent sent HELLO while a command ran", errno.EPROTO
            )

    def _may_read_stdin(self) -> bool:
        """Returns False while input waits to be sent, behind a signal, and in the background.

        There, reading the terminal would stop this process (SIGTTIN).
        """
        return (
            self._stdin is not None
            and self._signalled is None
            and len(self._to_guest) < _CHUNK_BYTES
            and not self._is_background()
        )

    def _is_background(self) -> bool:
        try:
            return os.tcgetpgrp(self._stdin or 0) != os.getpgrp()
        except OSError:  # not a terminal
            return False

    def _read_stdin(self, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:  # closed, a folder, or a terminal that hung up: the end of the input
            data = b""
        if self._terminal is not None and data and self._terminal.is_leaving(data):
            self._ended = Ended(signal.SIGHUP)
            return
        self._to_guest += frames.frame(frames.STDIN, data)
        if not data:
            self._stdin = None

    def _forward(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _OF_A_TERMINAL and self._terminal is not None:
                if number == signal.SIGCONT:
                    self._terminal.enter()
                self._to_guest += frames.resize(self._terminal.window())
            elif self._done():
                self._drop()
            else:
                self._to_guest += frames.signal(number)
                self._signalled = self._signalled or (number, time.monotonic() + _SIGNAL_S)

    def _send(self) -> None:
        try:
            done = self._link.socket.send(self._to_guest)
        except BlockingIOError:
            return
        except ConnectionError:
            self._gone = True
            return
        del self._to_guest[:done]
        if not self._to_guest:
            self._signalled = None

    def _give_up_on_signal(self) -> None:
        """Ends the command by closing the link, if its signal could not be sent in time."""
        if self._signalled and time.monotonic() >= self._signalled[1] and not self._done():
            self._ended = Ended(self._signalled[0])
            self._drop()

    def _drop(self) -> None:
        """Discards output that has no reader, so that it does not delay the end."""
        for outlet in self._outlets.values():
            outlet.waiting.clear()
