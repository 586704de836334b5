# SPDX-License-Identifier: BSD-3-Clause
"""The words of a guest's agent (csrc/vm), as bytes: no I/O.

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


class Window(NamedTuple):
    rows: int
    columns: int


class Command(NamedTuple):
    """What runs: window None without a terminal."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    window: Window | None = None


class Ended(NamedTuple):
    """How a command ended: its wait status (waitpid(2)), or why it could not be started."""

    status: int
    errno: int = 0
    why: str = ""


def frame(kind: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(payload)) + payload


def run(command: Command) -> bytes:
    """A RUN frame.  LocalError: it does not fit (E2BIG), or a word holds a NUL (EINVAL)."""
    words = [command.cwd, str(len(command.argv)), *command.argv]
    words += [f"{key}={value}" for key, value in command.env.items()]
    if any("\0" in word for word in words):
        raise LocalError("a word of the command or its environment holds a NUL", errno.EINVAL)
    window = command.window or Window(0, 0)
    flags = 0 if command.window is None else _TTY
    payload = _RUN.pack(flags, window.rows & 0xFFFF, window.columns & 0xFFFF)
    payload += b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise LocalError(
            f"the command and its environment have {len(payload)} bytes, and a guest takes "
            f"{PAYLOAD_BYTES_MAX}: put words into a file",
            errno.E2BIG,
        )
    return frame(RUN, payload)


def resize(window: Window) -> bytes:
    return frame(RESIZE, _SIZE.pack(window.rows & 0xFFFF, window.columns & 0xFFFF))


def signal(number: int) -> bytes:
    return frame(SIGNAL, struct.pack("<I", number))


class Reader:
    """What a guest sends, in frames; a guest may send anything."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now.  RemoteError: a kind or length that there is not."""
        self._data += data
        while len(self._data) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._data)
            if not HELLO <= kind <= EXIT or length > PAYLOAD_BYTES_MAX:
                raise RemoteError(
                    f"its agent sent a frame of kind {kind} with {length} bytes; kinds are "
                    f"{HELLO} to {EXIT}, and {PAYLOAD_BYTES_MAX} bytes the most",
                    errno.EPROTO,
                )
            end = _HEAD.size + length
            if len(self._data) < end:
                return
            payload = bytes(self._data[_HEAD.size : end])
            del self._data[:end]
            yield Frame(kind, payload)


def parse_hello(payload: bytes) -> dict[str, str]:
    """Its lines.  RemoteError: no text, or another protocol."""
    try:
        pairs = [line.partition("=") for line in payload.decode().splitlines()]
    except UnicodeDecodeError:
        raise RemoteError("its agent says HELLO with what is no text", errno.EPROTO) from None
    found = {key: value for key, _, value in pairs}
    protocol = found.get("protocol", "none")
    if protocol != PROTOCOL:
        raise RemoteError(
            f"its agent speaks protocol {protocol}, and this is {PROTOCOL}: take the machine down "
            f"and up again, with one version of NUPA",
            errno.EPROTO,
        )
    return found


def parse_exit(payload: bytes) -> Ended:
    """RemoteError: too short."""
    if len(payload) < _STATUS.size:
        raise RemoteError(f"its agent sent an end of {len(payload)} bytes", errno.EPROTO)
    (status,) = _STATUS.unpack_from(payload)
    why = payload[_STATUS.size :].decode(errors="replace")
    return Ended(status) if status >= 0 else Ended(0, -status, why)
