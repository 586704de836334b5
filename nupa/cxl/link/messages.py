# SPDX-License-Identifier: BSD-3-Clause
"""CXL.mem messages as objects: what hosts ask, what devices answer.  CXL 3.1 3.3.5 to 3.3.10.

Knows the fields of each, and the rows that C takes them from and leaves them in; never flits
(nupa/cxl/link/flit.py), nor what memory a message is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from operator import attrgetter
from struct import Struct, error
from typing import Any, ClassVar

from nupa._engine import ffi
from nupa.cxl.link import mem_tables as tables
from nupa.cxl.link.mem_tables import Channel

LINE_BYTES = 64
ROW_BYTES = ffi.sizeof("struct nupa_cxl_message")
MEM_RD, MEM_WR, MEM_WR_PTL = 1, 1, 2
CMP, MEM_DATA, MEM_DATA_NXM = 0, 0, 1


class _Message:
    """What all have: *fields*, by the order of the constructor."""

    __slots__ = ()
    fields: ClassVar[tuple[str, ...]]
    channel: ClassVar[Channel]
    #: Of a `struct nupa_cxl_message` these fields.
    row: ClassVar[Struct]
    opcodes: ClassVar[dict[int, str]]
    opcode: int

    @property
    def name(self) -> str:
        """As "MemRd"."""
        return self.opcodes.get(self.opcode, f"opcode {self.opcode}")

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Message):
            return NotImplemented
        return type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        fields = (f"{name}={_shown(name, getattr(self, name))}" for name in self.fields)
        return f"{type(self).__name__}({', '.join(fields)})"

    def __str__(self) -> str:
        """Its channel, opcode, and the fields that are not 0."""
        what = [f"{tables.CHANNELS[self.channel]} {self.name}"]
        for name in self.fields:
            value = getattr(self, name)
            if name == "meta_field" and value == tables.META_NO_OP:
                continue
            if name not in ("opcode", "data") and (value or name == "tag"):
                what.append(f"{name} {_shown(name, value)}")
        return ", ".join(what)


def _shown(name: str, value: Any) -> str:
    if name in ("address", "byte_enables"):
        return f"{value:#x}"
    return repr(value)


class M2SReq(_Message):
    """3.3.5: a request without data: *address* is of a line."""

    fields: ClassVar[tuple[str, ...]] = (
        "address",
        "tag",
        "opcode",
        "snp_type",
        "meta_field",
        "meta_value",
        "tc",
        "ld_id",
    )
    __slots__ = fields
    channel = Channel.M2S_REQ
    row = Struct("<Q72xHxBBBBBB7x")
    opcodes = tables.REQ_OPCODES

    def __init__(
        self,
        address: int,
        tag: int = 0,
        opcode: int = MEM_RD,
        snp_type: int = 0,
        meta_field: int = tables.META_NO_OP,
        meta_value: int = 0,
        tc: int = 0,
        ld_id: int = 0,
    ) -> None:
        self.address = address
        self.tag = tag
        self.opcode = opcode
        self.snp_type = snp_type
        self.meta_field = meta_field
        self.meta_value = meta_value
        self.tc = tc
        self.ld_id = ld_id


class M2SRwD(_Message):
    """3.3.6: a request with a line of *data*; bit n of *byte_enables* is byte n's (MemWrPtl)."""

    fields: ClassVar[tuple[str, ...]] = (
        "address",
        "data",
        "byte_enables",
        "tag",
        "opcode",
        "snp_type",
        "meta_field",
        "meta_value",
        "tc",
        "ld_id",
        "poison",
    )
    __slots__ = fields
    channel = Channel.M2S_RWD
    row = Struct("<Q64sQHxBBBBBBB6x")
    opcodes = tables.RWD_OPCODES

    def __init__(
        self,
        address: int,
        data: bytes,
        byte_enables: int = 0,
        tag: int = 0,
        opcode: int = MEM_WR,
        snp_type: int = 0,
        meta_field: int = tables.META_NO_OP,
        meta_value: int = 0,
        tc: int = 0,
        ld_id: int = 0,
        poison: int = 0,
    ) -> None:
        self.address = address
        self.data = data
        self.byte_enables = byte_enables
        self.tag = tag
        self.opcode = opcode
        self.snp_type = snp_type
        self.meta_field = meta_field
        self.meta_value = meta_value
        self.tc = tc
        self.ld_id = ld_id
        self.poison = poison


class S2MNdr(_Message):
    """3.3.9: an answer without data."""

    fields: ClassVar[tuple[str, ...]] = (
        "tag",
        "opcode",
        "meta_field",
        "meta_value",
        "ld_id",
        "dev_load",
    )
    __slots__ = fields
    channel = Channel.S2M_NDR
    row = Struct("<80xHxBxBBxBxB5x")
    opcodes = tables.NDR_OPCODES

    def __init__(
        self,
        tag: int,
        opcode: int = CMP,
        meta_field: int = tables.META_NO_OP,
        meta_value: int = 0,
        ld_id: int = 0,
        dev_load: int = 0,
    ) -> None:
        self.tag = tag
        self.opcode = opcode
        self.meta_field = meta_field
        self.meta_value = meta_value
        self.ld_id = ld_id
        self.dev_load = dev_load


class S2MDrs(_Message):
    """3.3.10: an answer with a line of *data*."""

    fields: ClassVar[tuple[str, ...]] = (
        "data",
        "tag",
        "opcode",
        "meta_field",
        "meta_value",
        "ld_id",
        "poison",
        "dev_load",
    )
    __slots__ = fields
    channel = Channel.S2M_DRS
    row = Struct("<8x64s8xHxBxBBxBBB5x")
    opcodes = tables.DRS_OPCODES

    def __init__(
        self,
        data: bytes,
        tag: int,
        opcode: int = MEM_DATA,
        meta_field: int = tables.META_NO_OP,
        meta_value: int = 0,
        ld_id: int = 0,
        poison: int = 0,
        dev_load: int = 0,
    ) -> None:
        self.data = data
        self.tag = tag
        self.opcode = opcode
        self.meta_field = meta_field
        self.meta_value = meta_value
        self.ld_id = ld_id
        self.poison = poison
        self.dev_load = dev_load


Request = M2SReq | M2SRwD
Answer = S2MNdr | S2MDrs
Message = Request | Answer

#: Messages by their channel.
Kinds = dict[int, type[Message]]
_CHANNEL_AT = 82  # in a row


class _Packer:
    """Rows of one kind of messages: as `row` is, with the channel behind the tag."""

    def __init__(self, kind: type[Message]) -> None:
        names = list(kind.fields)
        names.insert(names.index("tag") + 1, "channel")
        self.values = attrgetter(*names)
        self.pack = Struct(kind.row.format.replace("Hx", "HB")).pack
        self.has_data = "data" in names


_PACKERS: dict[type[Message], _Packer] = {}


def learn(*kinds: type[Message]) -> Kinds:
    """Have `to_rows` take messages of these kinds."""
    _PACKERS.update((kind, _Packer(kind)) for kind in kinds)
    return {kind.channel: kind for kind in kinds}


KINDS = learn(M2SReq, M2SRwD, S2MNdr, S2MDrs)
_DATA = attrgetter("data")


def to_rows(messages: Sequence[Message]) -> bytes:
    """As many `struct nupa_cxl_message`.  ValueError: a field is no number of its size, or data are
    no 64 bytes; TypeError: something else is among them."""
    kinds = set(map(type, messages))
    if not kinds <= _PACKERS.keys():
        raise TypeError(f"{kinds - _PACKERS.keys()} among messages")
    if len(kinds) > 1:
        return b"".join([to_rows([message]) for message in messages])
    for kind in kinds:
        packer = _PACKERS[kind]
        if packer.has_data and set(map(len, map(_DATA, messages))) != {LINE_BYTES}:
            raise ValueError(f"{kind.__name__}: data are {LINE_BYTES} bytes")
        try:
            return b"".join(starmap(packer.pack, map(packer.values, messages)))
        except error as why:
            raise ValueError(f"{kind.__name__}: {why}") from None
    return b""


def from_rows(rows: memoryview, kinds: Kinds = KINDS) -> list[Message | None]:
    """An object for each row; None for one without a channel."""
    channels = set(rows[_CHANNEL_AT::ROW_BYTES])
    if len(channels) > 1:
        starts = range(0, len(rows), ROW_BYTES)
        return [each for at in starts for each in from_rows(rows[at : at + ROW_BYTES], kinds)]
    for channel in channels:
        kind = kinds.get(channel)
        if kind is None:
            return [None] * (len(rows) // ROW_BYTES)
        return list(starmap(kind, kind.row.iter_unpack(rows)))
    return []
