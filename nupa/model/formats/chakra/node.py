# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of a trace, from and to bytes: field numbers are of the schema's version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nupa.model.errors import ModelError
from nupa.model.formats import wire
from nupa.model.formats.wire import Scalar, WireError, fields, put_bytes, put_number

VERSION = "0.0.4"

# Field numbers of GlobalMetadata, Node, AttributeProto and its lists, as of et_def.proto.
_VERSION, _METADATA_ATTR = 1, 2
_ID, _NAME, _TYPE, _CTRL_DEPS, _DATA_DEPS, _START, _DURATION = range(1, 8)
_ATTR = 10
_ATTR_NAME, _VALUES = 1, 1
#: Types of values: the i-th is field 3 + 2 i, a list of such ones the field after it.
_KINDS = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)
_SCALARS = {3 + 2 * index: kind for index, kind in enumerate(_KINDS)}
_LISTS = {number + 1: kind for number, kind in _SCALARS.items()}
_FIELDS = {kind: number for number, kind in _SCALARS.items()}
#: What MLCommons' feeder takes from the field of that type only.
_TYPED = {"comm_src": "int32", "comm_dst": "int32", "comm_tag": "int32"}
#: Attributes that are numbers, where there are any.
_NUMBERS = frozenset(
    ("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "duration_ns", "lane")
)

METADATA, MEM_LOAD, MEM_STORE, COMP, SEND, RECV, COLL = range(1, 8)

Value = Scalar | tuple[Scalar, ...]


@dataclass
class TraceMetadata:
    """The first message of a file.  *version* is empty where the tool wrote none."""

    version: str = ""
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass
class TraceNode:
    """A node of a trace.  *attributes* are by name: numbers, texts, bytes, tuples of one kind."""

    id: int = 0
    name: str = ""
    type: int = 0
    deps: list[int] = field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)

    def number(self, name: str) -> int:
        value = self.attributes.get(name, 0)
        return int(value) if isinstance(value, (int, float)) else 0

    @property
    def duration_ns(self) -> int:
        return self.number("duration_ns") or self.duration_us * 1000


def nodes(data: bytes, source: str) -> Iterator[TraceNode]:
    """Yields the nodes of one file.  ModelError names *source* and the offset."""
    return (each for each in _messages(data, source) if isinstance(each, TraceNode))


def metadata_of(data: bytes, source: str) -> TraceMetadata:
    """Returns the first message of a file.  ModelError names *source* and the offset."""
    first = next(_messages(data, source))
    assert isinstance(first, TraceMetadata)
    return first


def _messages(data: bytes, source: str) -> Iterator[TraceMetadata | TraceNode]:
    """Yields what a file consists of: first its metadata, then its nodes."""
    if not data:
        raise ModelError(f"{source}: offset 0: an empty file: a trace begins with its metadata")
    offset = 0
    while offset < len(data):
        begin = offset
        try:
            length, offset = wire.varint(data, offset)
            if length > len(data) - offset:
                raise WireError(f"a message of {length} bytes: {len(data) - offset} are left")
            message = data[offset : offset + length]
            offset += length
            yield _node(message) if begin else _metadata(message)
        except WireError as error:
            raise ModelError(f"{source}: offset {begin}: {error}") from error


def _metadata(message: bytes) -> TraceMetadata:
    found = TraceMetadata()
    for each in fields(message):
        if each.type == wire.VARINT and each.number in (_ID, _TYPE):
            raise WireError("a node is first: a trace begins with its metadata")
        if each.number == _VERSION:
            found.version = each.text()
        elif each.number == _METADATA_ATTR:
            name, value = _attribute(each.octets())
            if value is not None:
                found.attributes[name] = value
    return found


def _node(message: bytes) -> TraceNode:
    node = TraceNode()
    for each in fields(message):
        if each.number == _ID:
            node.id = each.unsigned()
        elif each.number == _NAME:
            node.name = each.text()
        elif each.number == _TYPE:
            node.type = each.unsigned()
        elif each.number in (_CTRL_DEPS, _DATA_DEPS):
            node.deps.extend(int(number) for number in each.values("uint64"))
        elif each.number == _DURATION:
            node.duration_us = each.unsigned()
        elif each.number == _ATTR:
            name, value = _attribute(each.octets())
            if name in _NUMBERS and not isinstance(value, (int, float)):
                raise WireError(f"node {node.id}: {name} is {value!r}: a number is needed")
            if value is not None:
                node.attributes[name] = value
    return node


def _attribute(message: bytes) -> tuple[str, Value | None]:
    """Returns an attribute's name, and its value, None where there is none."""
    name = ""
    value: Value | None = None
    for each in fields(message):
        if each.number == _ATTR_NAME:
            name = each.text()
        elif each.number in _SCALARS:
            value = each.scalar(_SCALARS[each.number])
        elif each.number in _LISTS:
            value = _list(each.octets(), _LISTS[each.number])
    return name, value


def _list(message: bytes, kind: str) -> tuple[Scalar, ...]:
    return tuple(
        value for each in fields(message) if each.number == _VALUES for value in each.values(kind)
    )


def metadata() -> bytes:
    """Returns what a file begins with."""
    return framed(put_bytes(1, VERSION.encode()))


def framed(message: bytes) -> bytes:
    return wire.put_varint(len(message)) + message


def put(
    number: int,
    kind: int,
    name: str,
    deps: list[int],
    time_ns: int,
    attributes: Mapping[str, int | str],
) -> bytes:
    message = put_number(_ID, number) + put_bytes(_NAME, name.encode())
    message += put_number(_TYPE, kind) + wire.put_numbers(_DATA_DEPS, deps)
    message += put_number(_DURATION, round(time_ns / 1000))
    message += _put_attribute("is_cpu_op", put_number(_FIELDS["bool"], kind == COMP))
    for key, value in attributes.items():
        if isinstance(value, str):
            message += _put_attribute(key, put_bytes(_FIELDS["string"], value.encode()))
        else:
            number_of = _FIELDS[_TYPED.get(key, "int64")]
            message += _put_attribute(key, put_number(number_of, value))
    return message


def _put_attribute(name: str, value: bytes) -> bytes:
    return put_bytes(_ATTR, put_bytes(_ATTR_NAME, name.encode()) + value)
