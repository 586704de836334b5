# SPDX-License-Identifier: BSD-3-Clause
"""Event commands, 01xx (CXL 3.1 8.2.9.2): get and clear records, interrupt policy."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from nupa.cxl.function.cci import Code, Command, Effect, at_least, exactly, require
from nupa.cxl.media.events import RECORD_BYTES, EventLogs, Log

_ANSWER = struct.Struct("<BxHQQH10x")
_CLEAR = struct.Struct("<BBB3x")
_OVERFLOW, _MORE = 1 << 0, 1 << 1
_CLEAR_ALL = 1 << 0
_LOGS_BEFORE_DYNAMIC_CAPACITY = 4
#: 8.2.9.2.4: a setting's mode in bits 1:0, its message in bits 7:4.
_MODE, _MESSAGE_SHIFT, _MODE_MSI = 0b11, 4, 1


class EventCommands:
    """Commands of event logs.  *interrupt* is called with a message when a log whose policy asks
    for it gets its first record."""

    def __init__(
        self, logs: EventLogs, *, payload_bytes: int, interrupt: Callable[[int], None], message: int
    ) -> None:
        self._logs = logs
        self._most = (payload_bytes - _ANSWER.size) // RECORD_BYTES
        self._interrupt = interrupt
        self._message = message
        self.modes = [0] * len(Log)

    def commands(self) -> Iterator[Command]:
        changes = Effect.POLICY
        lengths = range(_LOGS_BEFORE_DYNAMIC_CAPACITY, len(Log) + 1)
        yield Command(0x0100, "get event records", exactly(1), self._get)
        clear = at_least(_CLEAR.size, 2)
        yield Command(0x0101, "clear event records", clear, self._clear, Effect.LOG)
        yield Command(0x0102, "get event interrupt policy", exactly(0), self._get_policy)
        yield Command(0x0103, "set event interrupt policy", lengths, self._set_policy, changes)

    def notify(self, log: Log) -> None:
        """Sends an interrupt for the first record in *log*."""
        if self.modes[log] == _MODE_MSI:
            self._interrupt(self._message)

    def _get(self, payload: bytes) -> bytes:
        log = _log(payload[0])
        answer = self._logs[log].get(self._most)
        flags = answer.overflow * _OVERFLOW | answer.more * _MORE
        head = _ANSWER.pack(
            flags,
            answer.overflow_count,
            answer.first_overflow_ns,
            answer.last_overflow_ns,
            len(answer.records),
        )
        return head + b"".join(event.packed(log) for event in answer.records)

    def _clear(self, payload: bytes) -> bytes:
        number, flags, count = _CLEAR.unpack_from(payload)
        log = _log(number)
        require(not flags & ~_CLEAR_ALL, why=f"flags {flags:#x}")
        if flags & _CLEAR_ALL:
            self._logs.clear(log, None)
            return b""
        handles = payload[_CLEAR.size :]
        require(len(handles) == 2 * count, Code.INVALID_PAYLOAD_LENGTH, f"{count} handles")
        self._logs.clear(log, struct.unpack(f"<{count}H", handles))
        return b""

    def _get_policy(self, _payload: bytes) -> bytes:
        message = self._message << _MESSAGE_SHIFT
        return bytes(mode | (message if mode == _MODE_MSI else 0) for mode in self.modes)

    def _set_policy(self, payload: bytes) -> bytes:
        modes = [setting & _MODE for setting in payload]
        require(max(modes) <= _MODE_MSI, why="firmware is not told of events")
        self.modes[: len(modes)] = modes
        return b""


def _log(number: int) -> Log:
    require(number < len(Log), why=f"log {number}")
    return Log(number)
