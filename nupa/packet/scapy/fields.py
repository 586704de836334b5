# SPDX-License-Identifier: BSD-3-Clause
"""scapy's fields made from layouts, and the base class of layers with a layout."""

from __future__ import annotations

import struct
from typing import Any, ClassVar, TypeVar

from scapy.base_classes import Packet_metaclass
from scapy.error import Scapy_Exception
from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    FlagsField,
    IntEnumField,
    IntField,
    IP6Field,
    LongField,
    ShortEnumField,
    ShortField,
    XBitField,
    XByteField,
    XIntField,
    XLongField,
    XShortField,
)
from scapy.packet import Packet

from nupa.packet.tables.layout import Field, Layout

L = TypeVar("L", bound="LayoutLayer")

# Fields of whole bytes on byte boundaries: struct is faster than shifting bits.
_PLAIN = {8: ByteField, 16: ShortField, 32: IntField, 64: LongField}
_HEX = {8: XByteField, 16: XShortField, 32: XIntField, 64: XLongField}
_NAMED = {8: ByteEnumField, 16: ShortEnumField, 32: IntEnumField}


class ShiftedField(XBitField):
    """A number whose lowest bits are 0 and not sent."""

    __slots__ = ("shift",)

    def __init__(self, name: str, default: int | None, size: int, shift: int) -> None:
        super().__init__(name, default, size)
        self.shift = shift

    def i2m(self, _pkt: Packet | None, x: int | None) -> int:
        return (x or 0) >> self.shift

    def m2i(self, _pkt: Packet | None, x: int) -> int:
        return x << self.shift


def fields_of(layout: Layout, **defaults: int | None) -> list[Any]:
    """Makes the fields_desc of *layout*.

    *defaults* replace those of the layout; None is a field that post_build fills in.
    """
    at, fields = 0, []
    for field in layout.fields:
        default = defaults.pop(field.name, field.default)
        fields.append(_field(field, default, aligned=at % 8 == 0))
        at += field.bits
    assert not defaults, f"{layout.name} has no {defaults}"
    return fields


def _field(field: Field, default: Any, aligned: bool) -> Any:
    name, bits = field.name, field.bits
    if field.kind == "ipv6":
        return IP6Field(name, "::")
    if field.shift:
        return ShiftedField(name, default, bits, field.shift)
    if field.values and field.flags:
        names = [field.values.get(bit, f"bit{bit}") for bit in range(bits)]
        return FlagsField(name, default or 0, bits, names)
    values = dict(field.values) if field.values else None
    if aligned and bits in _PLAIN:
        if values:
            return _NAMED[bits](name, default, values)
        return (_HEX if field.hex else _PLAIN)[bits](name, default)
    if values:
        return BitEnumField(name, default, bits, values)
    return (XBitField if field.hex else BitField)(name, default, bits)


class _FromLayout(Packet_metaclass):
    """Gives a class with a layout the layout's name and fields, unless it has its own."""

    def __new__(
        cls: type[_FromLayout], name: str, bases: tuple[type, ...], members: dict[str, Any]
    ) -> type[Packet]:
        layout = members.get("layout")
        if layout is not None:
            members.setdefault("name", layout.name)
            members.setdefault("fields_desc", fields_of(layout))
        return super().__new__(cls, name, bases, members)


class LayoutLayer(Packet, metaclass=_FromLayout):
    """A layer with a layout.

    Too few bytes raise Scapy_Exception: scapy then shows them as Raw, unless the layer is the
    outermost one.
    """

    layout: ClassVar[Layout]

    def do_dissect(self, s: bytes) -> bytes:
        if len(s) < self.layout.bytes:
            raise Scapy_Exception(
                f"{self.layout.text}: {self.layout.bytes} bytes are needed, {len(s)} are there"
            )
        try:
            return super().do_dissect(s)
        except (struct.error, ValueError) as error:
            raise Scapy_Exception(f"{self.layout.text}: {error}") from error

    def put(self, header: bytes, name: str, value: int) -> bytes:
        """Returns *header* with another value of one field: for post_build."""
        low = self.layout.bytes * 8
        for field in self.layout.fields:
            low -= field.bits
            if field.name == name:
                break
        else:
            raise KeyError(name)
        size = self.layout.bytes
        mask = field.largest >> field.shift
        if not 0 <= value >> field.shift <= mask:
            raise Scapy_Exception(f"{self.layout.text}: {name} = {value} does not fit its field")
        word = int.from_bytes(header[:size], "big") & ~(mask << low)
        return (word | (value >> field.shift) << low).to_bytes(size, "big") + header[size:]


def layer_class(base: type[L], class_name: str, layout: Layout, **members: Any) -> type[L]:
    """Makes a layer that differs from *base* by its layout and *members*."""
    members |= {"layout": layout, "__module__": base.__module__}
    metaclass: Any = type(base)
    made: type[L] = metaclass(class_name, (base,), members)
    return made
