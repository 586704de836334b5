# SPDX-License-Identifier: BSD-3-Clause
"""The wire format of a guest's agent (csrc/guest/agent.h), without I/O.

A frame is u32 kind, u32 bytes of payload, payload; little-endian.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nupa.base.errors import LocalError, RemoteError

PAYLOAD_BYTES_MAX = 65536
PROTOCOL = "1"

# To the guest.
RUN, STDIN, SIGNAL, RESIZE = 1, 2, 3, 4
# From the guest.
HELLO, STDOUT, STDERR, EXIT = 16, 17, 18, 19

_HEAD = struct.Struct("<II")
_RUN = struct.Struct("<IHH")
_SIZE = struct.Struct("<HH")
_STATUS = struct.Struct("<i")
_TTY = 1


class Frame(NamedTuple):
    kind: int
    payload: bytes


class TerminalSize(NamedTuple):
    rows: int
    columns: int


class RunRequest(NamedTuple):
    """A command to run.  window: None runs it without a terminal."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    window: TerminalSize | None = None


class Ended(NamedTuple):
    """The end of a command: its wait status (waitpid(2)), or why it could not be started."""

    status: int
    errno: int = 0
    why: str = ""


def frame(kind: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(payload)) + payload


def run(command: RunRequest) -> bytes:
    """Packs a RUN frame.  LocalError: it is too long (E2BIG), or a word has a NUL (EINVAL)."""
    words = [command.cwd, str(len(command.argv)), *command.argv]
    words += [f"{key}={value}" for key, value in command.env.items()]
    if any("\0" in word for word in words):
        raise LocalError("a word of the command or its environment holds a NUL", errno.EINVAL)
    window = command.window or TerminalSize(0, 0)
    flags = 0 if command.window is None else _TTY
    payload = _RUN.pack(flags, window.rows & 0xFFFF, window.columns & 0xFFFF)
    payload += b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise LocalError(
            f"the command and its environment have {len(payload)} bytes, at most "
            f"{PAYLOAD_BYTES_MAX} can be sent to a guest: put words into a file",
            errno.E2BIG,
        )
    return frame(RUN, payload)


def resize(window: TerminalSize) -> bytes:
    return frame(RESIZE, _SIZE.pack(window.rows & 0xFFFF, window.columns & 0xFFFF))


def signal(number: int) -> bytes:
    return frame(SIGNAL, struct.pack("<I", number))


class FrameReader:
    """Splits the bytes of a guest into frames; it checks them, as a guest may send anything."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields the frames that are complete.  RemoteError: a kind or length is invalid."""
        self._data += data
        while len(self._data) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._data)
            if not HELLO <= kind <= EXIT or length > PAYLOAD_BYTES_MAX:
                raise RemoteError(
                    f"its agent sent a frame of kind {kind} with {length} bytes; kinds are "
                    f"{HELLO} to {EXIT}, and lengths are at most {PAYLOAD_BYTES_MAX} bytes",
                    errno.EPROTO,
                )
            end = _HEAD.size + length
            if len(self._data) < end:
                return
            payload = bytes(self._data[_HEAD.size : end])
            del self._data[:end]
            yield Frame(kind, payload)


def parse_hello(payload: bytes) -> dict[str, str]:
    """Returns KEY=VALUE lines as a dict.  RemoteError: not text, or another protocol."""
    try:
        pairs = [line.partition("=") for line in payload.decode().splitlines()]
    except UnicodeDecodeError:
        raise RemoteError("its agent's HELLO is not text", errno.EPROTO) from None
    found = {key: value for key, _, value in pairs}
    protocol = found.get("protocol", "none")
    if protocol != PROTOCOL:
        raise RemoteError(
            f"its agent speaks protocol {protocol}, this NUPA speaks {PROTOCOL}: take the machine "
            f"down and up again, with one version of NUPA",
            errno.EPROTO,
        )
    return found


def parse_exit(payload: bytes) -> Ended:
    """Unpacks an EXIT frame.  RemoteError: it is too short."""
    if len(payload) < _STATUS.size:
        raise RemoteError(f"its agent sent an EXIT frame of {len(payload)} bytes", errno.EPROTO)
    (status,) = _STATUS.unpack_from(payload)
    why = payload[_STATUS.size :].decode(errors="replace")
    return Ended(status) if status >= 0 else Ended(0, -status, why)
