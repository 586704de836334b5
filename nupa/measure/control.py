# SPDX-License-Identifier: BSD-3-Clause
"""The messages between the two ends of a file transfer, over TCP."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from typing import IO, Literal

FileOperation = Literal["write", "read", "send"]


class TransferError(Exception):
    """The other end disconnected, or a work request failed; the message says which and how."""


@dataclass(frozen=True)
class TargetAddress:
    """The QP and the buffer of one end."""

    gid: str
    qpn: int
    psn: int
    addr: int
    rkey: int


class Control:
    """The TCP connection between the ends: one JSON value a line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines: IO[str] = connection.makefile("r")

    def put(self, value: object) -> None:
        self._connection.sendall((json.dumps(value) + "\n").encode())

    def get(self) -> object:
        line = self._lines.readline()
        if not line.endswith("\n"):
            raise TransferError("the other end closed the connection before the transfer was done")
        value: object = json.loads(line)
        return value

    def swap(self, address: TargetAddress) -> TargetAddress:
        self.put(asdict(address))
        values = self.get()
        if not isinstance(values, dict):
            raise TransferError(f"an address was expected, the other end sent {values!r}")
        return TargetAddress(**values)

    def meet(self, word: str) -> None:
        """Returns when both ends have reached *word*."""
        self.put(word)
        if (found := self.get()) != word:
            raise TransferError(f"'{word}' was expected, the other end sent {found!r}")
