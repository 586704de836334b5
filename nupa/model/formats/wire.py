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
#: How the numbers of a schema's type are written.
_KINDS = {
    "double": FIXED64,
    "float": FIXED32,
    "int32": VARINT,
    "int64": VARINT,
    "uint32": VARINT,
    "uint64": VARINT,
    "sint32": VARINT,
    "sint64": VARINT,
    "fixed32": FIXED32,
    "fixed64": FIXED64,
    "sfixed32": FIXED32,
    "sfixed64": FIXED64,
    "bool": VARINT,
}
Scalar = float | int | bool | str | bytes
_VARINT_BYTES_MAX = 10


class WireError(Exception):
    """The bytes are no message; the text says why, the caller knows where."""


class WireField(NamedTuple):
    number: int
    type: int
    value: int  #: of VARINT, FIXED64 and FIXED32: the bits, without a sign
    data: bytes  #: of BYTES

    def scalar(self, kind: str) -> Scalar:
        """Returns the value of a field of the schema's type *kind*, such as `sint32`.

        WireError: the field has the type of another; a real number is not finite.
        """
        if kind == "string":
            return self.text()
        if kind == "bytes":
            return self.octets()
        return self._number(kind, self._of(_KINDS[kind]).value)

    def values(self, kind: str) -> Iterator[Scalar]:
        """Yields the values of a repeated field, packed or not.  WireError: as of scalar."""
        if kind in ("string", "bytes") or self.type != BYTES:
            yield self.scalar(kind)
            return
        wire, offset = _KINDS[kind], 0
        while offset < len(self.data):
            if wire == VARINT:
                value, offset = varint(self.data, offset)
            else:
                piece = self.data[offset : offset + _WIDTHS[wire]]
                if len(piece) < _WIDTHS[wire]:
                    raise WireError(f"field {self.number}: a number of its list is cut off")
                value = int.from_bytes(piece, "little")
                offset += len(piece)
            yield self._number(kind, value)

    def unsigned(self) -> int:
        return self._of(VARINT).value

    def octets(self) -> bytes:
        return self._of(BYTES).data

    def text(self) -> str:
        try:
            return self.octets().decode()
        except UnicodeDecodeError as error:
            raise WireError(f"field {self.number} is no UTF-8") from error

    def _of(self, wire: int) -> WireField:
        if self.type != wire:
            raise WireError(f"field {self.number} has type {self.type}: type {wire} is needed")
        return self

    def _number(self, kind: str, value: int) -> float | int | bool:
        """Returns what the bits *value* are as of *kind*; of too many bits the lower ones."""
        if kind == "bool":
            return bool(value)
        if kind in ("double", "float"):
            width, layout = (8, "<d") if kind == "double" else (4, "<f")
            found: float = struct.unpack(layout, value.to_bytes(width, "little"))[0]
            if not isfinite(found):
                raise WireError(f"field {self.number} is {found}: a finite number is needed")
            return found
        bits = int(kind[-2:])
        value &= (1 << bits) - 1
        if kind.startswith("sint"):
            return value >> 1 ^ -(value & 1)
        if kind.startswith(("int", "sfixed")) and value >> bits - 1:
            return value - (1 << bits)
        return value


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
