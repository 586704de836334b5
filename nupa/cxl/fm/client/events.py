# SPDX-License-Identifier: BSD-3-Clause
"""Events of the switch and of its devices, from the manager's end (CXL 3.1 8.2.9.2)."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

from nupa.cxl.fm import messages
from nupa.cxl.fm.client.requests import Requests
from nupa.cxl.fm.event_records import text_of
from nupa.cxl.fm.messages import FmOpcode
from nupa.cxl.fm.server.session import CLEAR_EVENTS, GET_EVENTS, GET_POLICY, SET_POLICY
from nupa.cxl.function.cci import CommandError
from nupa.cxl.media.events import RECORD_BYTES, EventRecord, Log

_HEAD = struct.Struct("<BxHQQH10x")
_RECORD = struct.Struct("<16sB3sHHQ16s80s")
_MORE = 1 << 1
_MLD = 5
_CLEARED_AT_ONCE = 255
ALL_LOGS = (1 << len(Log)) - 1


class FmEvent(NamedTuple):
    """An event of the device at *port*, None for the switch itself.

    *lost* is the number of events for which the log had no room."""

    port: int | None
    log: Log
    event: EventRecord
    lost: int

    @property
    def text(self) -> str:
        """The event in words."""
        return text_of(self.event)


class EventClient(Requests):
    """Event commands.  Each manager has its own logs, so none takes an event from another."""

    def events(self, *, clear: bool = False) -> list[FmEvent]:
        """Returns events of the switch and of its devices, by time; *clear* them from the logs."""
        found = [
            event
            for port in (None, *self._mlds())
            for log in Log
            for event in self._read(port, log, clear)
        ]
        return sorted(found, key=lambda each: each.event.timestamp_ns)

    def follow(self, timeout_s: float | None = None) -> Iterator[FmEvent]:
        """Yields events as they come, beginning with those that are not cleared; ends after
        *timeout_s* without any."""
        while True:
            self.notify()
            end = None if timeout_s is None else time.monotonic() + timeout_s
            while not (found := self.events(clear=True)):
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return
                self._transport.wait(left)
            yield from found

    def notify(self, bits: int = ALL_LOGS) -> None:
        """Requests notifications of the first record in each of these logs, of the switch and of
        its devices.  Bit 15 is for background operations that complete."""
        for port in (None, *self._mlds()):
            self._event_command(port, SET_POLICY, bits.to_bytes(2, "little"))

    def notified(self) -> int:
        """Returns the bits that the switch notifies of (8.2.9.2.6)."""
        return int.from_bytes(self._event_command(None, GET_POLICY, b""), "little")

    def wait_for_notification(self, timeout_s: float | None = None) -> int:
        """Waits for a notification, and returns its bits; 0: none came in time."""
        return self._transport.wait(timeout_s)

    def _mlds(self) -> list[int]:
        ports = messages.SWITCH.unpack(self.request(FmOpcode.IDENTIFY_SWITCH)).ports
        answer = self.request(FmOpcode.PORT_STATE, bytes([ports, *range(ports)]))
        rows = messages.PORT.unpack_all(answer, 4, answer[0])
        return [row.port for row in rows if row.device == _MLD and row.speed]

    def _event_command(self, port: int | None, opcode: int, payload: bytes) -> bytes:
        if port is None:
            return self.request(opcode, payload, cci=True)
        return self.tunnel(port, opcode, payload)

    def _read(self, port: int | None, log: Log, clear: bool) -> list[FmEvent]:
        found: list[FmEvent] = []
        ask = partial(self._event_command, port)
        try:
            while True:
                answer = ask(GET_EVENTS, bytes([log]))
                flags, lost, _, _, count = _HEAD.unpack_from(answer)
                records = [
                    _event(answer[_HEAD.size + i * RECORD_BYTES :][:RECORD_BYTES])
                    for i in range(count)
                ]
                found += [FmEvent(port, log, event, lost) for event in records]
                if clear:
                    for at in range(0, count, _CLEARED_AT_ONCE):
                        handles = [each.handle for each in records[at : at + _CLEARED_AT_ONCE]]
                        head = struct.pack("<BBB3x", log, 0, len(handles))
                        ask(CLEAR_EVENTS, head + struct.pack(f"<{len(handles)}H", *handles))
                if not (clear and flags & _MORE):
                    return found
        except CommandError:
            if port is None:
                raise
            return found  # the device and its log have gone meanwhile


def _event(record: bytes) -> EventRecord:
    kind, _, flags, handle, related, timestamp_ns, rest, data = _RECORD.unpack(record)
    return EventRecord(
        UUID(bytes=kind),
        data,
        int.from_bytes(flags, "little") & ~3,
        related,
        rest[0],
        handle,
        timestamp_ns,
    )
