# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of a trace, from and to bytes: field numbers are of the schema's version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nupa.model.errors import ModelError
from nupa.model.formats import wire
from nupa.model.formats.wire import WireError, fields, put_bytes, put_number

VERSION = "0.0.4"

# Field numbers of Node and of AttributeProto.
_ID, _NAME, _TYPE, _CTRL_DEPS, _DATA_DEPS, _START, _DURATION = range(1, 8)
_ATTR = 10
_ATTR_NAME, _DOUBLE, _FLOAT, _STRING = 1, 3, 5, 29
_INTEGERS = (7, 9, 11, 13, 19, 21, 23, 25, 27)
_ZIGZAGS = (15, 17)
_INT64, _BOOL = 9, 27

METADATA, MEM_LOAD, MEM_STORE, COMP, SEND, RECV, COLL = range(1, 8)


@dataclass
class TraceNode:
    """A node of a trace.  *attributes* are numbers and texts by name; lists are left out."""

    id: int = 0
    name: str = ""
    type: int = 0
    deps: list[int] = field(default_factory=list)
    duration_us: int = 0
    attributes: dict[str, float | int | str] = field(default_factory=dict)

    def number(self, name: str) -> int:
        value = self.attributes.get(name, 0)
        return int(value) if isinstance(value, (int, float)) else 0

    @property
    def duration_ns(self) -> int:
        return self.number("duration_ns") or self.duration_us * 1000


def nodes(data: bytes, source: str) -> Iterator[TraceNode]:
    """Yields the nodes of one file.  ModelError names *source* and the offset."""
    offset = 0
    first = True
    while offset < len(data):
        begin = offset
        try:
            length, offset = wire.varint(data, offset)
            if length > len(data) - offset:
                raise WireError(f"a message of {length} bytes: {len(data) - offset} are left")
            message = data[offset : offset + length]
            offset += length
            if first:
                first = False
                continue  # GlobalMetadata
            yield _node(message)
        except WireError as error:
            raise ModelError(f"{source}: offset {begin}: {error}") from error
    if first:
        raise ModelError(f"{source}: offset 0: an empty file: a trace begins with its metadata")


def _node(message: bytes) -> TraceNode:
    node = TraceNode()
    for each in fields(message):
        if each.number == _ID:
            node.id = each.value
        elif each.number == _NAME:
            node.name = each.text()
        elif each.number == _TYPE:
            node.type = each.value
        elif each.number in (_CTRL_DEPS, _DATA_DEPS):
            node.deps.extend(each.numbers())
        elif each.number == _DURATION:
            node.duration_us = each.value
        elif each.number == _ATTR:
            name, value = _attribute(each.data)
            if value is not None:
                node.attributes[name] = value
    return node


def _attribute(message: bytes) -> tuple[str, float | int | str | None]:
    name = ""
    value: float | int | str | None = 0
    for each in fields(message):
        if each.number == _ATTR_NAME:
            name = each.text()
        elif each.number == _DOUBLE:
            value = each.double()
        elif each.number == _FLOAT:
            value = each.float32()
        elif each.number == _STRING:
            value = each.text()
        elif each.number in _ZIGZAGS:
            value = each.zigzag()
        elif each.number in _INTEGERS:
            value = each.signed()
        elif each.number > _DOUBLE:
            value = None  # a list, or bytes
    return name, value


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
    message += _put_attribute("is_cpu_op", put_number(_BOOL, kind == COMP))
    for key, value in attributes.items():
        if isinstance(value, str):
            message += _put_attribute(key, put_bytes(_STRING, value.encode()))
        else:
            message += _put_attribute(key, put_number(_INT64, value))
    return message


def _put_attribute(name: str, value: bytes) -> bytes:
    return put_bytes(_ATTR, put_bytes(_ATTR_NAME, name.encode()) + value)
