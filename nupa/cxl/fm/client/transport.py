# SPDX-License-Identifier: BSD-3-Clause
"""Transports to a switch: a socket, or its manager in this process."""

from __future__ import annotations

import errno
import select
import socket
import time
from threading import Event
from typing import Protocol

from nupa.base.errors import LocalError, RemoteError
from nupa.base.ownership import connect_own
from nupa.cxl.fm import messages
from nupa.cxl.fm.mctp import Assembler, MctpMessage, encode
from nupa.cxl.fm.server.manager import Manager, Session
from nupa.cxl.fm.server.server import path_of
from nupa.cxl.fm.server.session import NOTIFICATION
from nupa.cxl.function.cci import Code

_READ_BYTES = 1 << 16
_TIMEOUT_S = 30.0
_HUNG_UP = (
    "the fabric manager has disconnected: it has ended, has 64 managers already, or accepts its "
    "owner only"
)


class FmTransport(Protocol):
    """A transport to one switch."""

    def exchange(self, request: MctpMessage) -> MctpMessage:
        """Returns the answer to *request*.  RemoteError: there is none."""

    def wait(self, timeout_s: float | None) -> int:
        """Returns the bits of the next notification (8.2.9.2.8); 0 if none has come in time."""

    def close(self) -> None: ...


def _bits(note: MctpMessage) -> tuple[int, MctpMessage]:
    """Returns the bits of a notification, and its acknowledgement.  RemoteError: it is not one."""
    request = messages.unpack(note.body)
    if request.response or request.opcode != NOTIFICATION or len(request.payload) != 2:
        raise RemoteError(f"the switch asks {request.opcode:#06x}", errno.EPROTO)
    return int.from_bytes(request.payload, "little"), note.answer(
        request.answer(Code.SUCCESS).pack()
    )


class LocalTransport:
    """A transport to *manager* in this process."""

    def __init__(self, manager: Manager) -> None:
        self._ready = Event()
        self._session = Session(manager, self._ready.set)

    def exchange(self, request: MctpMessage) -> MctpMessage:
        answer = self._session.answer(request)
        assert answer is not None
        return answer

    def wait(self, timeout_s: float | None) -> int:
        self._ready.wait(timeout_s)
        self._ready.clear()
        note = self._session.notification()
        if note is None:
            return 0
        bits, acknowledgement = _bits(note)
        self._session.answer(acknowledgement)
        return bits

    def close(self) -> None:
        self._session.close()


class SocketTransport:
    """A transport to the server of the fabric *name*.  LocalError: no server answers, or it is
    another user's."""

    def __init__(self, name: str) -> None:
        path = str(path_of(name))
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(_TIMEOUT_S)
        self._assembler = Assembler(None)
        self._told = 0
        try:
            connect_own(self._sock, path)
        except LocalError:
            self._sock.close()
            raise
        except OSError as error:
            self._sock.close()
            raise LocalError(
                f"no fabric manager serves {name!r}: {error.strerror}; "
                f"`nupa fm serve --fabric {name}` does",
                error.errno or 0,
            ) from error

    def exchange(self, request: MctpMessage) -> MctpMessage:
        try:
            self._sock.sendall(encode(request))
            while True:
                for answer in self._receive():
                    if not answer.owner and answer.tag == request.tag:
                        return answer
        except OSError as error:
            raise self._gone(error) from error

    def wait(self, timeout_s: float | None) -> int:
        end = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while not self._told:
                left = None if end is None else max(0.0, end - time.monotonic())
                if not select.select([self._sock], [], [], left)[0]:
                    return 0
                self._receive()
        except OSError as error:
            raise self._gone(error) from error
        told, self._told = self._told, 0
        return told

    def close(self) -> None:
        self._sock.close()

    def _receive(self) -> list[MctpMessage]:
        """Returns the answers that have come, and acknowledges notifications."""
        data = self._sock.recv(_READ_BYTES)
        if not data:
            raise RemoteError(_HUNG_UP, errno.ECONNRESET)
        answers = []
        for message in self._assembler.feed(data):
            if message.owner:
                bits, acknowledgement = _bits(message)
                self._told |= bits
                self._sock.sendall(encode(acknowledgement))
            else:
                answers.append(message)
        return answers

    def _gone(self, error: OSError) -> RemoteError:
        if isinstance(error, ConnectionError):
            return RemoteError(_HUNG_UP, error.errno or 0)
        return RemoteError(
            f"the fabric manager does not answer: {error.strerror or error}", error.errno or 0
        )
