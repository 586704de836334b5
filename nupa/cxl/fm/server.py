# SPDX-License-Identifier: BSD-3-Clause
"""A fabric manager's endpoint on a unix socket, for several managers of one owner.

Knows sockets, and who is on their other end; never what a message means.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
from pathlib import Path
from threading import Thread

from nupa.cxl.fm.manager import Manager
from nupa.cxl.fm.mctp import Assembler, FramingError, encode
from nupa.fabric import registry
from nupa.fabric.closing import Closing
from nupa.fabric.errors import LocalError

_READ_BYTES = 1 << 16
_MOST_WAITING_BYTES = 1 << 20  # of answers that a manager does not read: it is not heard meanwhile
_MOST_MANAGERS = 64
_UCRED = struct.Struct("3i")  # unix(7), SO_PEERCRED: pid, uid, gid


def path_of(name: str) -> Path:
    """The socket of a named fabric, beside its segment.  LocalError: no name of a fabric."""
    segment = Path(registry.path_of(name))
    return segment.with_name(f".{segment.name}.fm")


class _Peer:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.assembler = Assembler()
        self.waiting = bytearray()


class Server(Closing):
    """Listens at *path* as soon as it is made, and answers in `run`, or in a thread of its own
    after `start`.  Only processes of user *owner* are heard; by default this one's.

    LocalError: somebody listens there (EADDRINUSE), or the path is no place for a socket."""

    def __init__(self, manager: Manager, path: Path, *, owner: int | None = None) -> None:
        self.manager = manager
        self.path = path
        self._owner = os.geteuid() if owner is None else owner
        self._selector = selectors.DefaultSelector()
        self._thread: Thread | None = None
        self._peers: set[_Peer] = set()
        self._wake, self._woken = socket.socketpair()
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
                listener.listen(_MOST_MANAGERS)
                self._inode = self.path.lstat().st_ino
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
        """Answer in a thread, until `close`."""
        self._thread = Thread(target=self.run, name="nupa-fm", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End `run`; from any thread, and from a signal's handler."""
        self._wake.send(b"\0")

    def run(self) -> None:
        """Answer until `stop`."""
        while True:
            for key, events in self._selector.select():
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data in self._peers:
                    self._serve(key.data, events)

    def close(self) -> None:
        """Hang up, and remove the socket."""
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
        """Whether the socket is there still: with its fabric it may have gone, and come again."""
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
        except OSError:  # who called has hung up, or we have no descriptor left: it will see
            return
        sock.setblocking(False)
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, _ = _UCRED.unpack(credentials)
        if uid != self._owner or len(self._peers) >= _MOST_MANAGERS:
            sock.close()
            return
        peer = _Peer(sock)
        self._peers.add(peer)
        self._selector.register(sock, selectors.EVENT_READ, peer)

    def _serve(self, peer: _Peer, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                data = peer.sock.recv(_READ_BYTES)
                if not data:
                    self._drop(peer)
                    return
                for message in peer.assembler.feed(data):
                    peer.waiting += encode(self.manager.answer(message))
            if peer.waiting:
                del peer.waiting[: peer.sock.send(peer.waiting)]
        except BlockingIOError:
            pass  # its buffer is full: the selector says when it no longer is
        except (OSError, FramingError):
            self._drop(peer)
            return
        wanted = selectors.EVENT_WRITE if peer.waiting else 0
        if len(peer.waiting) < _MOST_WAITING_BYTES:
            wanted |= selectors.EVENT_READ
        self._selector.modify(peer.sock, wanted, peer)

    def _drop(self, peer: _Peer) -> None:
        self._peers.discard(peer)
        self._selector.unregister(peer.sock)
        peer.sock.close()


def _remove_stale(path: Path) -> None:
    """A socket that nobody listens on any more.  OSError EADDRINUSE: somebody does."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise OSError(errno.EADDRINUSE, "a fabric manager listens there")
