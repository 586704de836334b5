# SPDX-License-Identifier: BSD-3-Clause
"""The wire format of protocol buffers, as far as execution traces need it.

A message is fields: a varint of number << 3 | type, then the value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}
_VARINT_BYTES_MAX = 10


class WireError(Exception):
    """The bytes are no message; the text says why, the caller knows where."""


class WireField(NamedTuple):
    number: int
    type: int
    value: int  #: of VARINT, FIXED64 and FIXED32: the bits, without a sign
    data: bytes  #: of BYTES

    def signed(self) -> int:
        """Returns an int32 or int64: two's complement of 64 bits."""
        return self.value - (1 << 64) if self.value >> 63 else self.value

    def zigzag(self) -> int:
        return self.value >> 1 ^ -(self.value & 1)

    def double(self) -> float:
        return self._real(FIXED64, "<d")

    def float32(self) -> float:
        return self._real(FIXED32, "<f")

    def _real(self, kind: int, layout: str) -> float:
        """Returns the value of a field of that type.  WireError: it is another, or not finite."""
        if self.type != kind:
            raise WireError(f"field {self.number} has type {self.type}: a number of type {kind}")
        found: float = struct.unpack(layout, self.value.to_bytes(_WIDTHS[kind], "little"))[0]
        if not isfinite(found):
            raise WireError(f"field {self.number} is {found}: a finite number is needed")
        return found

    def text(self) -> str:
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise WireError(f"field {self.number} is no UTF-8") from error

    def numbers(self) -> Iterator[int]:
        """Yields the varints of a repeated field, packed or not."""
        if self.type == VARINT:
            yield self.value
            return
        if self.type != BYTES:
            raise WireError(f"field {self.number} has type {self.type}: a list of integers")
        offset = 0
        while offset < len(self.data):
            value, offset = varint(self.data, offset)
            yield value


def varint(data: bytes, offset: int) -> tuple[int, int]:
    """Returns a varint of at most 64 bits, and the offset behind it."""
    value = 0
    for count in range(_VARINT_BYTES_MAX):
        if offset + count >= len(data):
            raise WireError("a number is cut off")
        byte = data[offset + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if value >> 64:
                break
            return value, offset + count + 1
    raise WireError("a number has more than 64 bits")


def fields(data: bytes) -> Iterator[WireField]:
    """Yields the fields of a message.  WireError: it is none."""
    offset = 0
    while offset < len(data):
        key, offset = varint(data, offset)
        number, kind = key >> 3, key & 7
        if not number:
            raise WireError("a field has the number 0")
        if kind == VARINT:
            value, offset = varint(data, offset)
            yield WireField(number, kind, value, b"")
            continue
        if kind == BYTES:
            length, offset = varint(data, offset)
        elif kind in _WIDTHS:
            length = _WIDTHS[kind]
        else:
            raise WireError(f"field {number} has type {kind}: 0, 1, 2 and 5 exist")
        if length > len(data) - offset:
            raise WireError(f"field {number} has {length} bytes: {len(data) - offset} are left")
        piece = data[offset : offset + length]
        offset += length
        if kind == BYTES:
            yield WireField(number, kind, 0, piece)
        else:
            yield WireField(number, kind, int.from_bytes(piece, "little"), b"")


# --- writing ---------------------------------------------------------------------------


def put_varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def put_number(number: int, value: int) -> bytes:
    return put_varint(number << 3 | VARINT) + put_varint(value)


def put_bytes(number: int, data: bytes) -> bytes:
    return put_varint(number << 3 | BYTES) + put_varint(len(data)) + data


def put_double(number: int, value: float) -> bytes:
    return put_varint(number << 3 | FIXED64) + struct.pack("<d", value)


def put_numbers(number: int, values: list[int]) -> bytes:
    """Packs a repeated field; nothing where it is empty."""
    return put_bytes(number, b"".join(map(put_varint, values))) if values else b""
