# SPDX-License-Identifier: BSD-3-Clause
"""The server of ivshmem devices that ring each other (QEMU, docs/specs/ivshmem-spec.rst).

Each client gets a number, the file of the memory, and for each client, itself too, an eventfd:
writing 1 to it rings that client.  QEMU makes of it an interrupt of its guest.  After that clients
need the server only to hear who comes and goes.

    python -m nupa.vm.machine.doorbell SOCKET LISTENER MEMORY

LISTENER and MEMORY are numbers of open files.  It ends when its socket is removed.
"""

from __future__ import annotations

import errno
import os
import resource
import selectors
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROTOCOL_VERSION = 0
#: Numbers of clients are below this; the specification has 65536.
NUMBERS = 1024
#: Clients at once: attachments to a fabric, and guests.
CLIENTS_MAX = 256
_FILES_EACH = 2  # a socket and an eventfd
_OWN_FILES = 32
# What a client may leave unread: a message of each other, twice.
_SEND_BYTES = 1 << 20
_BACKLOG = 64
_LOOK_S = 2.0

_MESSAGE = struct.Struct("<q")
_MEMORY = -1
_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid


class _Client(NamedTuple):
    number: int
    socket: socket.socket
    bell: int  #: an eventfd

    def tell(self, number: int, *files: int) -> bool:
        """Sends one message; False: it is gone, or does not read."""
        try:
            socket.send_fds(self.socket, [_MESSAGE.pack(number)], files)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()
        os.close(self.bell)


class Server:
    """Serves *listener*, a listening Unix socket, to this user's processes; *memory* is the file
    that they share.  Both are the caller's to close."""

    def __init__(
        self, listener: socket.socket, memory: int, clients_max: int = CLIENTS_MAX
    ) -> None:
        self._listener = listener
        self._memory = memory
        self._clients_max = clients_max
        self._clients: dict[int, _Client] = {}
        self._next = 0
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def serve(self, timeout_s: float) -> None:
        """Does what is there to do, after at most *timeout_s* of nothing."""
        for key, _ in self._selector.select(timeout_s):
            client = key.data
            if client is None:
                self._accept()
            elif client.number in self._clients and not _is_silent(client.socket):
                self._drop([client])

    def close(self) -> None:
        """Lets go of all clients, and tells nobody."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            # They went again, or there are no files for them: who is there goes on.
            print(f"doorbell: cannot accept a client: {error.strerror}", file=sys.stderr)
            return
        refusal = self._refusal(connection)
        if refusal:
            print(f"doorbell: refused a client: {refusal}", file=sys.stderr)
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        self._join(_Client(self._number(), connection, os.eventfd(0, os.EFD_NONBLOCK)))

    def _refusal(self, connection: socket.socket) -> str | None:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, user, _ = _CREDENTIALS.unpack(data)
        if user != os.geteuid():
            return f"process {pid} is of user {user}, the memory is of user {os.geteuid()}"
        if len(self._clients) >= self._clients_max:
            return f"{self._clients_max} are there, as many as there may be"
        return None

    def _number(self) -> int:
        """A free one, and not soon again that of a client that went."""
        while self._next in self._clients:
            self._next = (self._next + 1) % NUMBERS
        number, self._next = self._next, (self._next + 1) % NUMBERS
        return number

    def _join(self, client: _Client) -> None:
        others = list(self._clients.values())
        # In the order of the specification, "The ivshmem Client-Server Protocol".
        welcome = [(PROTOCOL_VERSION,), (client.number,), (_MEMORY, self._memory)]
        welcome += [(other.number, other.bell) for other in others]
        if not all(client.tell(*message) for message in welcome):
            client.close()
            return
        self._clients[client.number] = client
        self._selector.register(client.socket, selectors.EVENT_READ, client)
        self._tell(others, client.number, client.bell)
        # Last: who has this may be rung, so the others know of it.
        self._tell([client], client.number, client.bell)

    def _tell(self, clients: Iterable[_Client], number: int, *files: int) -> None:
        self._drop([client for client in clients if not client.tell(number, *files)])

    def _drop(self, gone: list[_Client]) -> None:
        """Who is told of it may be found gone, too."""
        for client in gone:
            if self._clients.pop(client.number, None) is None:
                continue
            self._selector.unregister(client.socket)
            client.close()
            self._tell(list(self._clients.values()), client.number)


def _is_silent(connection: socket.socket) -> bool:
    """Whether the client is still there.  It has nothing to say: who says something goes."""
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def listen(path: str) -> socket.socket:
    """A socket at *path* for Server.  OSError: it cannot be."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        Path(path).chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _affordable_clients() -> int:
    """As many as there are files for, after the limit was raised."""
    wanted = _FILES_EACH * CLIENTS_MAX + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limit = wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)
    return (limit - _OWN_FILES) // _FILES_EACH


def _is_there(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError as error:
        return error.errno != errno.ENOENT


def main(arguments: list[str]) -> None:
    path, listener, memory = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    with socket.socket(fileno=listener) as listening:
        server = Server(listening, memory, _affordable_clients())
        # A machine that is taken down by whatever means takes its folder along.
        while _is_there(path):
            server.serve(_LOOK_S)
        server.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(sys.argv[1:])
