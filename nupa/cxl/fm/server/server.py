# SPDX-License-Identifier: BSD-3-Clause
"""The endpoint of a fabric manager on a unix socket, for several managers of one owner."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import stat
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from nupa.base.closing import Closing
from nupa.base.errors import LocalError
from nupa.base.ownership import is_own
from nupa.cxl.fm.mctp import Assembler, FramingError, encode
from nupa.cxl.fm.server.manager import Manager, Session
from nupa.fabric import registry

_READ_BYTES = 1 << 16
_MOST_WAITING_BYTES = 1 << 20  # limit of unread answers; a manager above it is not heard
MOST_MANAGERS = 64
_MOST_AT_ONCE = 32  # requests of one manager before others have their turn
_STALL_S = 10.0
_UCRED = struct.Struct("3i")  # unix(7), SO_PEERCRED: pid, uid, gid


def path_of(name: str) -> Path:
    """Returns the socket's path for a named fabric, beside its segment.  LocalError: not a name of
    a fabric."""
    segment = Path(registry.path_of(name))
    return segment.with_name(f".{segment.name}.fm")


class _Peer:
    """A connected manager; *ready* is called in any thread when it is to be notified.

    `since` is when a message began that is not complete."""

    def __init__(self, sock: socket.socket, manager: Manager, ready: Callable[[], None]) -> None:
        self.sock = sock
        self.session = Session(manager, ready)
        self.assembler = Assembler()
        self.waiting = bytearray()
        self.since: float | None = None


class Server(Closing):
    """A server that listens at *path* once it is made, and answers in `run`, or in its own thread
    after `start`.  It accepts only processes of user *owner*, by default this one's.  It
    disconnects a manager that leaves a message incomplete for *stall_s*.

    LocalError: another server listens there (EADDRINUSE), or no socket can be made at the path."""

    def __init__(
        self,
        manager: Manager,
        path: Path,
        *,
        owner: int | None = None,
        stall_s: float = _STALL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.manager = manager
        self._stall_s = stall_s
        self._clock = clock
        self._stopping = False
        self._notified: deque[_Peer] = deque()
        self._busy: set[_Peer] = set()
        self.path = path
        self._owner = os.geteuid() if owner is None else owner
        self._selector = selectors.DefaultSelector()
        self._thread: Thread | None = None
        self._peers: set[_Peer] = set()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._listener = self._listen()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with registry.control_lock():
                _remove_stale(self.path)
                listener.bind(str(self.path))
                self.path.chmod(0o600)
                listener.listen(MOST_MANAGERS)
                self._inode = self.path.lstat().st_ino
        except LocalError:
            listener.close()
            self._close_selector()
            raise
        except OSError as error:
            listener.close()
            self._close_selector()
            raise LocalError(
                f"no fabric manager can listen at {self.path}: {error.strerror or error}",
                error.errno or 0,
            ) from error
        listener.setblocking(False)
        return listener

    def start(self) -> Server:
        """Answers in a thread, until `close`."""
        self._thread = Thread(target=self.run, name="nupa-fm", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends `run`; from any thread, and from a signal handler."""
        self._stopping = True
        self._rouse()

    def _rouse(self) -> None:
        with suppress(BlockingIOError):  # bytes in the pipe wake it already
            self._wake.send(b"\0")

    def _notify(self, peer: _Peer) -> None:
        """Schedules a notification; in any thread."""
        self._notified.append(peer)
        self._rouse()

    def run(self) -> None:
        """Answers until `stop`."""
        while not self._stopping:
            calling = False
            for key, events in self._selector.select(self._timeout_s()):
                if key.fileobj is self._woken:
                    self._woken.recv(_READ_BYTES)
                elif key.fileobj is self._listener:
                    calling = True
                elif key.data in self._peers:
                    self._serve(key.data, events)
            if calling:  # last: managers that disconnected have made room
                self._accept()
            while self._notified:
                self._go_on(self._notified.popleft())
            for peer in tuple(self._busy):
                self._go_on(peer)
            self._drop_stalled()

    def _timeout_s(self) -> float | None:
        """Returns the time until the next stall limit; None: no peer has stalled."""
        if self._busy:
            return 0
        began = [peer.since for peer in self._peers if peer.since is not None]
        return max(0.0, min(began) + self._stall_s - self._clock()) if began else None

    def _drop_stalled(self) -> None:
        limit = self._clock() - self._stall_s
        for peer in tuple(self._peers):
            if peer.since is not None and peer.since <= limit:
                self._drop(peer)

    def close(self) -> None:
        """Disconnects all managers, and removes the socket."""
        if self._listener.fileno() < 0:
            return
        if self._thread is not None:
            self.stop()
            self._thread.join()
        for peer in tuple(self._peers):
            self._drop(peer)
        with registry.control_lock():
            if self._is_ours():
                self.path.unlink()
        self._listener.close()
        self._close_selector()

    def _is_ours(self) -> bool:
        """Tells whether the path is still this server's socket: it goes with its fabric, and
        another may be there."""
        try:
            return self.path.lstat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _close_selector(self) -> None:
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the caller has disconnected, or no descriptor is left
            return
        sock.setblocking(False)
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, _ = _UCRED.unpack(credentials)
        if uid != self._owner or len(self._peers) >= MOST_MANAGERS:
            sock.close()
            return
        peer = _Peer(sock, self.manager, lambda: self._notify(peer))
        self._peers.add(peer)
        self._selector.register(sock, selectors.EVENT_READ, peer)

    def _serve(self, peer: _Peer, events: int) -> None:
        data = b""
        if events & selectors.EVENT_READ:
            try:
                data = peer.sock.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                self._drop(peer)
                return
            if not data:
                self._drop(peer)
                return
        self._go_on(peer, data)

    def _go_on(self, peer: _Peer, data: bytes = b"") -> None:
        """Answers what has come, as long as the peer reads the answers; other peers have their
        turns."""
        if peer not in self._peers:
            return
        try:
            if data or self._hears(peer):
                self._answer(peer, data)
            note = peer.session.notification() if self._hears(peer) else None
            if note is not None:
                peer.waiting += encode(note)
            if peer.waiting:
                del peer.waiting[: peer.sock.send(peer.waiting)]
        except BlockingIOError:
            pass  # its buffer is full; the selector waits for room
        except (OSError, FramingError):
            self._drop(peer)
            return
        wanted = selectors.EVENT_WRITE if peer.waiting else 0
        if self._hears(peer):
            wanted |= selectors.EVENT_READ
        self._selector.modify(peer.sock, wanted, peer)

    def _hears(self, peer: _Peer) -> bool:
        return len(peer.waiting) < _MOST_WAITING_BYTES

    def _answer(self, peer: _Peer, data: bytes) -> None:
        """Answers the messages that are complete with *data*.  FramingError: see `Assembler`."""
        self._busy.discard(peer)
        number = 0
        for number, message in enumerate(peer.assembler.feed(data), 1):
            answer = peer.session.answer(message)
            if answer is not None:
                peer.waiting += encode(answer)
            if number == _MOST_AT_ONCE or not self._hears(peer):
                peer.since = None
                if self._hears(peer):
                    self._busy.add(peer)
                return
        if not peer.assembler.is_amid:
            peer.since = None
        elif number or peer.since is None:
            peer.since = self._clock()

    def _drop(self, peer: _Peer) -> None:
        self._peers.discard(peer)
        self._busy.discard(peer)
        peer.session.close()
        self._selector.unregister(peer.sock)
        peer.sock.close()


def _remove_stale(path: Path) -> None:
    """Removes a socket without a listener.  OSError EADDRINUSE: a process listens, or the path is
    not a socket of this user."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or not is_own(found.st_uid):
        raise OSError(
            errno.EADDRINUSE, f"the path is not a socket of yours (owner: user {found.st_uid})"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:  # its backlog is full
            pass
    raise OSError(errno.EADDRINUSE, "a fabric manager listens there")
