# SPDX-License-Identifier: BSD-3-Clause
"""Layouts: the fields of headers and messages, as tables.

scapy's layers, the Wireshark dissector, docs/packet-tables.md and `Layout.decode` are all made from
these tables.  Fields begin at the most significant bit of the first byte; numbers are big endian.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Field(NamedTuple):
    """One field.

    *values*: names of values; with *flags*, of bits from bit 0 up.  *shift*: low bits that are not
    sent, as of an address that is a multiple of 4.
    """

    name: str
    bits: int
    text: str
    values: Mapping[int, str] | None = None
    flags: bool = False
    hex: bool = False
    shift: int = 0
    default: int = 0
    kind: str = "number"  # or "ipv6": 128 bits
    abbrev: str = ""  # its name in Wireshark's filters, if not the layout's and its own

    @property
    def largest(self) -> int:
        return ((1 << self.bits) - 1) << self.shift


class Layout:
    """Fields of a fixed total length, in whole bytes.

    >>> from nupa.packet.tables.layout import Field, Layout
    >>> version = Layout("Version", "x.version", "a version", "none", Field("major", 4, "Major"),
    ...     Field("minor", 4, "Minor"))
    >>> version.encode(major=2, minor=1).hex(), version.decode(b"\\x21")
    ('21', {'major': 2, 'minor': 1})
    """

    def __init__(self, name: str, abbrev: str, text: str, cite: str, *fields: Field) -> None:
        self.name = name
        self.abbrev = abbrev
        self.text = text
        self.cite = cite
        self.fields = fields
        bits = sum(field.bits for field in fields)
        assert bits % 8 == 0, f"{name} has {bits} bits: layouts have whole bytes"
        self.bytes = bits // 8
        self._places = []
        for field in fields:
            bits -= field.bits
            self._places.append((field.name, bits, (1 << field.bits) - 1, field.shift))

    def abbrev_of(self, field: Field) -> str:
        """Returns the name of *field* in Wireshark's filters."""
        return field.abbrev or f"{self.abbrev}.{field.name}"

    def decode(self, data: bytes | bytearray | memoryview, at: int = 0) -> dict[str, int]:
        """Decodes each field of *data* from byte *at* on.  ValueError for too few bytes."""
        part = data[at : at + self.bytes]
        if len(part) < self.bytes:
            raise ValueError(f"{self.text}: {self.bytes} bytes are needed, {len(part)} are there")
        word = int.from_bytes(part, "big")
        return {
            name: (word >> low & mask) << shift if shift else word >> low & mask
            for name, low, mask, shift in self._places
        }

    def encode(self, **values: int) -> bytes:
        """Encodes the fields; those that are not named have their default.

        ValueError if a value does not fit, TypeError if the layout has no such field.
        """
        word = 0
        for field in self.fields:
            value = values.pop(field.name, field.default)
            if not 0 <= value <= field.largest or value & ((1 << field.shift) - 1):
                raise ValueError(
                    f"{self.text}: {field.name} = {value:#x} does not fit; it is at most "
                    f"{field.largest:#x}, a multiple of {1 << field.shift}"
                )
            word = word << field.bits | value >> field.shift
        if values:
            raise TypeError(f"{self.text} has no field {min(values)!r}")
        return word.to_bytes(self.bytes, "big")


def reserved(name: str, bits: int) -> Field:
    """Makes a field of bits that are sent as 0 and ignored when received."""
    return Field(name, bits, "Reserved", hex=True)
