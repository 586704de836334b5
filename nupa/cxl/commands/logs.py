# SPDX-License-Identifier: BSD-3-Clause
"""Timestamp and logs, 03xx and 04xx (CXL 3.1 8.2.9.4, 8.2.9.5): clock, command effects, vendor
debug."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from nupa.cxl.function.cci import Code, Command, Effect, exactly, require

#: 8.2.9.5.2
COMMAND_EFFECTS = UUID("0da9c0b5-bf41-4b78-8f79-96b1623b3f17")
VENDOR_DEBUG = UUID("5e1819d9-11a9-400c-811f-d60719403d86")
_GET = struct.Struct("<16sII")
_CLEARABLE = 1 << 0
_SUBLIST_HEAD = struct.Struct("<BxHB3x")
_LENGTH_MAX = (1 << 64) - 1


class Timestamp:
    """A clock in nanoseconds since the Unix epoch, once it is set (8.2.9.4); 0 until then."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._ahead_ns: int | None = None

    def now_ns(self) -> int:
        return 0 if self._ahead_ns is None else self._clock_ns() + self._ahead_ns & _LENGTH_MAX

    def reset(self) -> None:
        """Forgets the time, as a conventional reset does."""
        self._ahead_ns = None

    def commands(self) -> Iterator[Command]:
        yield Command(0x0300, "get timestamp", exactly(0), self._get)
        yield Command(0x0301, "set timestamp", exactly(8), self._set, Effect.POLICY)

    def _get(self, _payload: bytes) -> bytes:
        return self.now_ns().to_bytes(8, "little")

    def _set(self, payload: bytes) -> bytes:
        self._ahead_ns = int.from_bytes(payload, "little") - self._clock_ns()
        return b""


class DeviceLogs:
    """The logs of a device.  `describe` fills the Command Effects Log.  `debug` is the vendor's
    log: the owner of the device fills it, and software may clear it."""

    def __init__(self, payload_bytes: int) -> None:
        self._payload_bytes = payload_bytes
        self._effects = b""
        self.debug = bytearray()

    def describe(self, commands: Iterable[Command]) -> None:
        """Makes an entry of the Command Effects Log for each command (8.2.9.5.2.1)."""
        self._effects = b"".join(struct.pack("<HH", row.opcode, row.effects) for row in commands)

    def commands(self) -> Iterator[Command]:
        yield Command(0x0400, "get supported logs", exactly(0), self._supported)
        yield Command(0x0401, "get log", exactly(_GET.size), self._get)
        yield Command(0x0402, "get log capabilities", exactly(16), self._capabilities)
        yield Command(0x0403, "clear log", exactly(16), self._clear, Effect.LOG)
        yield Command(0x0405, "get supported logs sub-list", exactly(2), self._sublist)

    def _logs(self) -> dict[UUID, bytes | bytearray]:
        return {COMMAND_EFFECTS: self._effects, VENDOR_DEBUG: self.debug}

    def _entries(self) -> list[bytes]:
        return [name.bytes + struct.pack("<I", len(log)) for name, log in self._logs().items()]

    def _find(self, name: bytes) -> UUID:
        uuid = UUID(bytes=name)
        require(uuid in self._logs(), Code.INVALID_LOG, str(uuid))
        return uuid

    def _supported(self, _payload: bytes) -> bytes:
        entries = self._entries()
        return struct.pack("<H6x", len(entries)) + b"".join(entries)

    def _sublist(self, payload: bytes) -> bytes:
        most, first = payload
        entries = self._entries()
        require(first < len(entries), why=f"there are {len(entries)} logs")
        most = min(most, (self._payload_bytes - _SUBLIST_HEAD.size) // len(entries[0]))
        listed = entries[first : first + most]
        return _SUBLIST_HEAD.pack(len(listed), len(entries), first) + b"".join(listed)

    def _get(self, payload: bytes) -> bytes:
        name, offset, length = _GET.unpack(payload)
        log = self._logs()[self._find(name)]
        inside = offset + length <= len(log) and length <= self._payload_bytes
        require(inside, why=f"{length} bytes at {offset} of {len(log)}")
        return bytes(log[offset : offset + length])

    def _capabilities(self, payload: bytes) -> bytes:
        uuid = self._find(payload)
        return struct.pack("<I", _CLEARABLE if uuid == VENDOR_DEBUG else 0)

    def _clear(self, payload: bytes) -> bytes:
        uuid = self._find(payload)
        require(uuid == VENDOR_DEBUG, Code.INVALID_LOG, "this log cannot be cleared")
        self.debug.clear()
        return b""
