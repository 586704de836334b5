# SPDX-License-Identifier: BSD-3-Clause
"""Messages over a byte stream as MCTP packets (DSP0236): split, numbered, tagged and reassembled.

A length of 2 bytes, little endian, precedes each packet, as a stream has no packet boundaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from nupa.base.errors import LocalError, RemoteError

HEADER_BYTES = 4  # DSP0236 8.1
_LENGTH_BYTES = 2
_VERSION = 1
PACKET_BYTES = 4096  # bytes of a message in one packet
MESSAGE_BYTES = 1 + 12 + (1 << 16)  # its type, a CCI header, and the longest payload
TAGS = 8

#: Endpoint ids: those below 8 are reserved (DSP0236 8.2).
MANAGER, SWITCH = 8, 9
_FIRST_HOST, _LAST = 16, 254


def host_endpoint(vcs: int) -> int:
    """Returns the endpoint of the host of a virtual switch.  LocalError: out of range."""
    if not 0 <= vcs <= _LAST - _FIRST_HOST:
        raise LocalError(f"virtual switch {vcs}: endpoints are for 0 to {_LAST - _FIRST_HOST}")
    return _FIRST_HOST + vcs


def vcs_of(endpoint: int) -> int | None:
    """Returns the virtual switch of a host's endpoint; None: the fabric manager's."""
    return endpoint - _FIRST_HOST if endpoint >= _FIRST_HOST else None


class MessageType(IntEnum):
    """Message types (DSP0239)."""

    FM_API = 7
    CCI = 8


class FramingError(RemoteError):
    """A violation of MCTP (DSP0236) by the other end."""


class MctpMessage(NamedTuple):
    """A message; *owner*: its sender chose the tag, so it is a request; *body* begins after the
    type."""

    type: MessageType
    body: bytes
    tag: int = 0
    owner: bool = True
    source: int = MANAGER
    destination: int = SWITCH

    def answer(self, body: bytes) -> MctpMessage:
        """Makes the answer, with the tag of the message."""
        return MctpMessage(self.type, body, self.tag, False, self.destination, self.source)


def encode(message: MctpMessage, packet_bytes: int = PACKET_BYTES) -> bytes:
    """Encodes a message as packets.  ValueError: too long, or no such tag."""
    if not 0 <= message.tag < TAGS:
        raise ValueError(f"tag {message.tag}: there are {TAGS}")
    body = bytes([message.type]) + message.body
    if len(body) > MESSAGE_BYTES:
        raise ValueError(f"{len(body)} bytes: a message has {MESSAGE_BYTES} at most")
    out = bytearray()
    for number, at in enumerate(range(0, len(body), packet_bytes)):
        part = body[at : at + packet_bytes]
        first, last = at == 0, at + packet_bytes >= len(body)
        flags = first << 7 | last << 6 | (number & 3) << 4 | message.owner << 3 | message.tag
        out += (HEADER_BYTES + len(part)).to_bytes(_LENGTH_BYTES, "little")
        out += bytes([_VERSION, message.destination, message.source, flags]) + part
    return bytes(out)


class _Partial(NamedTuple):
    body: bytearray
    sequence: int


class Assembler:
    """A reassembler of messages for endpoint *here*, or any.  It cannot be used after a
    FramingError."""

    def __init__(self, here: int | None = SWITCH) -> None:
        self._here = here
        self._stream = bytearray()
        self._partial: dict[tuple[int, bool, int], _Partial] = {}

    def feed(self, data: bytes) -> Iterator[MctpMessage]:
        """Yields the messages that are complete with *data*.  FramingError: not MCTP, too long, or
        a packet is missing; DSP0236 8.4 would drop the message, but a stream loses nothing."""
        self._stream += data
        while len(self._stream) >= _LENGTH_BYTES:
            length = int.from_bytes(self._stream[:_LENGTH_BYTES], "little")
            if not HEADER_BYTES < length <= HEADER_BYTES + PACKET_BYTES:
                raise FramingError(f"a packet of {length} bytes")
            if len(self._stream) < _LENGTH_BYTES + length:
                return
            packet = bytes(self._stream[_LENGTH_BYTES : _LENGTH_BYTES + length])
            del self._stream[: _LENGTH_BYTES + length]
            message = self._packet(packet)
            if message is not None:
                yield message

    @property
    def is_amid(self) -> bool:
        """Whether a message has begun that is not complete."""
        return bool(self._stream or self._partial)

    def _packet(self, packet: bytes) -> MctpMessage | None:
        version, destination, source, flags = packet[:HEADER_BYTES]
        if version != _VERSION or self._here not in (destination, None):
            raise FramingError(f"a packet of version {version & 0xF} to endpoint {destination}")
        first, last, sequence = bool(flags & 0x80), bool(flags & 0x40), flags >> 4 & 3
        key = (source, bool(flags & 8), flags & 7)
        before = self._partial.pop(key, None)
        if first == (before is not None):
            raise FramingError(f"tag {flags & 7}: a message within a message, or without its start")
        body = bytearray() if before is None else before.body
        if before is not None and sequence != (before.sequence + 1) & 3:
            raise FramingError(f"tag {flags & 7}: packet {sequence} after {before.sequence}")
        body += packet[HEADER_BYTES:]
        if len(body) + sum(len(part.body) for part in self._partial.values()) > MESSAGE_BYTES:
            raise FramingError(f"a message of more than {MESSAGE_BYTES} bytes")
        if not last:
            self._partial[key] = _Partial(body, sequence)
            return None
        if body[0] not in list(MessageType):
            raise FramingError(f"message type {body[0]:#x}: there are 7, FM API, and 8, CCI")
        kind = MessageType(body[0])
        return MctpMessage(kind, bytes(body[1:]), flags & 7, bool(flags & 8), source, destination)
