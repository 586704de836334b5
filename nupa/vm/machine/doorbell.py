# SPDX-License-Identifier: BSD-3-Clause
"""The server of ivshmem devices that ring each other (QEMU, docs/specs/ivshmem-spec.rst).

Each client gets a number, the file of the memory, and an eventfd of each client, including itself.
Writing 1 to an eventfd rings its client; QEMU turns that into an interrupt of its guest.  Later,
the server only tells clients of those that join and leave.

    python -m nupa.vm.machine.doorbell SOCKET LISTENER MEMORY

LISTENER and MEMORY are numbers of open files.  The server ends when its socket is removed.
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
#: Clients at once: guests, and attachments to the fabric.
CLIENTS_MAX = 256
_FILES_EACH = 2  # a socket and an eventfd
_OWN_FILES = 32
# A client may leave two messages of each other client unread.
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
        """Sends one message; False: the client has gone, or does not read."""
        try:
            socket.send_fds(self.socket, [_MESSAGE.pack(number)], files)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()
        os.close(self.bell)


class DoorbellServer:
    """Serves this user's processes at *listener*, a listening Unix socket.

    *memory* is the file that they share.  The caller closes both.
    """

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
        """Handles one batch of events; returns after at most *timeout_s* without any."""
        for key, _ in self._selector.select(timeout_s):
            client = key.data
            if client is None:
                self._accept()
            elif client.number in self._clients and not _is_silent(client.socket):
                self._drop([client])

    def close(self) -> None:
        """Disconnects all clients without telling the others."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            # The client has gone, or there are no more files; the other clients stay.
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
            return f"{self._clients_max} clients are connected, the most that there can be"
        return None

    def _number(self) -> int:
        """Returns a free number, and reuses those of former clients last."""
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
        # Last, because a client that has its own eventfd is known to all others.
        self._tell([client], client.number, client.bell)

    def _tell(self, clients: Iterable[_Client], number: int, *files: int) -> None:
        self._drop([client for client in clients if not client.tell(number, *files)])

    def _drop(self, gone: list[_Client]) -> None:
        """Disconnects clients and tells the others, some of which may have gone as well."""
        for client in gone:
            if self._clients.pop(client.number, None) is None:
                continue
            self._selector.unregister(client.socket)
            client.close()
            self._tell(list(self._clients.values()), client.number)


def _is_silent(connection: socket.socket) -> bool:
    """Returns whether the client is connected and silent; one that sends data is dropped."""
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def listen(path: str) -> socket.socket:
    """Returns a listening socket at *path* for DoorbellServer.  OSError: it cannot be made."""
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
    """Raises the limit of open files; returns how many clients it allows."""
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
        server = DoorbellServer(listening, memory, _affordable_clients())
        # However a machine is taken down, its folder is removed.
        while _is_there(path):
            server.serve(_LOOK_S)
        server.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(sys.argv[1:])
