# SPDX-License-Identifier: BSD-3-Clause
"""Dynamic capacity commands of a host, 48xx (CXL 3.1 8.2.9.9.9)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from nupa.cxl.function.cci import Code, Command, Effect, at_least, exactly, require
from nupa.cxl.media.dcd import DynamicCapacity
from nupa.cxl.media.extents import DECODE_BYTES

_CONFIG_HEAD = struct.Struct("<BB6x")
_REGION = struct.Struct("<QQQQIB3x")
_CONFIG_TAIL = struct.Struct("<IIII")
_LIST = struct.Struct("<II")
_LIST_HEAD = struct.Struct("<III4x")
_EXTENT = struct.Struct("<QQ16sH6x")
_UPDATE = struct.Struct("<IB3x")
_UPDATED = struct.Struct("<QQ8x")
_MORE = 1 << 0
_SANITIZE = 1 << 0

_Extents = Sequence[tuple[int, int]]


class DcdCommands:
    """The commands of host *number* of *capacity*."""

    def __init__(self, capacity: DynamicCapacity, number: int, *, payload_bytes: int) -> None:
        self._capacity = capacity
        self._number = number
        self._host = capacity.host(number)
        self._payload_bytes = payload_bytes
        #: Extents of an incomplete list, by opcode.
        self._partial: dict[int, list[tuple[int, int]]] = {}

    def commands(self) -> Iterator[Command]:
        changes = Effect.CONFIG | Effect.DATA
        lists = at_least(_UPDATE.size, _UPDATED.size)
        yield Command(0x4800, "get dynamic capacity configuration", exactly(2), self._config)
        yield Command(0x4801, "get dynamic capacity extent list", exactly(_LIST.size), self._list)
        yield Command(0x4802, "add dynamic capacity response", lists, self._accept, changes)
        yield Command(0x4803, "release dynamic capacity", lists, self._release, changes)

    def reset(self) -> None:
        """Forgets lists that are not complete."""
        self._partial.clear()

    def _config(self, payload: bytes) -> bytes:
        most, first = payload
        capacity = self._capacity
        regions = capacity.regions
        require(first < len(regions), why=f"region {first}")
        room = self._payload_bytes - _CONFIG_HEAD.size - _CONFIG_TAIL.size
        listed = regions[first : first + min(most, room // _REGION.size)]
        parts = [
            _REGION.pack(
                region.dpa,
                -(-region.size // DECODE_BYTES),
                region.size,
                region.block_bytes,
                region.dsmad_handle,
                region.sanitize * _SANITIZE,
            )
            for region in listed
        ]
        tail = _CONFIG_TAIL.pack(
            capacity.extents_max, capacity.extents_left, capacity.tags_max, capacity.tags_left
        )
        return _CONFIG_HEAD.pack(len(regions), len(listed)) + b"".join(parts) + tail

    def _list(self, payload: bytes) -> bytes:
        most, first = _LIST.unpack(payload)
        extents = self._host.accepted
        require(first <= len(extents), why=f"extent {first} of {len(extents)}")
        room = (self._payload_bytes - _LIST_HEAD.size) // _EXTENT.size
        listed = extents[first : first + min(most, room)]
        head = _LIST_HEAD.pack(len(listed), len(extents), self._host.generation & 0xFFFFFFFF)
        return head + b"".join(
            _EXTENT.pack(dpa, size, tag.bytes, sequence) for dpa, size, tag, sequence in listed
        )

    def _accept(self, payload: bytes) -> bytes:
        return self._update(0x4802, payload, self._capacity.accept)

    def _release(self, payload: bytes) -> bytes:
        return self._update(0x4803, payload, self._capacity.release)

    def _update(self, opcode: int, payload: bytes, do: Callable[[int, _Extents], None]) -> bytes:
        """Collects a list until a command says that no more follows; forgets all of it if it is
        refused."""
        count, flags = _UPDATE.unpack_from(payload)
        extents = [(dpa, size) for dpa, size in _UPDATED.iter_unpack(payload[_UPDATE.size :])]
        require(count == len(extents), Code.INVALID_PAYLOAD_LENGTH, f"{count} extents")
        require(not flags & ~_MORE, why=f"flags {flags:#x}")
        whole = self._partial.pop(opcode, []) + extents
        require(len(whole) <= self._capacity.extents_max, Code.RESOURCES_EXHAUSTED)
        if flags & _MORE:
            self._partial[opcode] = whole
        else:
            do(self._number, whole)
        return b""
