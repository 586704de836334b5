# SPDX-License-Identifier: BSD-3-Clause
"""The state of one manager: event logs, and the notifications that it has requested.

Each manager has its own logs, so that none takes another's events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from nupa.cxl.commands.event_commands import EventCommands
from nupa.cxl.fm.messages import PAYLOAD_BYTES, TUNNEL_BYTES
from nupa.cxl.function.cci import Command, Effect, exactly, table
from nupa.cxl.media.events import EventLogs, EventRecord, Log

EVENTS_MAX = 256  # of each log
DONE_BIT = 1 << 15  # 8.2.9.2.6: a background operation is completed
_POLICY_MASK = DONE_BIT | (1 << len(Log)) - 1
GET_EVENTS, CLEAR_EVENTS, GET_POLICY, SET_POLICY, NOTIFICATION = 0x100, 0x101, 0x104, 0x105, 0x106
#: Vendor specific (8.2.9: C000h and above).  It returns, in UTF-8, the reason for which the last
#: other command of this manager was refused; empty if it was not.  Responses have a code alone.
GET_REFUSAL = 0xC000
REFUSAL_BYTES_MAX = 1024

#: tell(bits): notify this manager, in any thread.
Tell = Callable[[int], None]
Refusal = Callable[[], str]


class Feed:
    """The latest events of a component, with times by *now_ns*; managers that connect later read
    them, too."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.latest: dict[Log, deque[EventRecord]] = {log: deque(maxlen=EVENTS_MAX) for log in Log}

    def add(self, log: Log, event: EventRecord) -> EventRecord:
        """Adds an event, with its time."""
        event = replace(event, timestamp_ns=self.now_ns())
        self.latest[log].append(event)
        return event


class Inbox:
    """A manager's view of *feed*: `commands` read and clear it; `policy` has the logs it is
    notified of; *refusal* returns the reason of the last refusal."""

    def __init__(
        self, feed: Feed, tell: Tell = lambda _bits: None, refusal: Refusal = lambda: ""
    ) -> None:
        limits = (EVENTS_MAX,) * len(Log)
        self.policy = 0
        self._tell = tell
        self._refusal = refusal
        self._logs = EventLogs(limits, now_ns=feed.now_ns, changed=self._changed)
        for log, events in feed.latest.items():
            for event in events:
                self._logs[log].add(event, event.timestamp_ns)
        shared = EventCommands(
            self._logs, payload_bytes=PAYLOAD_BYTES - TUNNEL_BYTES, interrupt=tell, message=0
        )
        rows = [row for row in shared.commands() if row.opcode in (GET_EVENTS, CLEAR_EVENTS)]
        what = "MCTP event interrupt policy"
        rows += [
            Command(GET_POLICY, f"get {what}", exactly(0), self._get_policy),
            Command(SET_POLICY, f"set {what}", exactly(2), self._set_policy, Effect.POLICY),
            Command(GET_REFUSAL, "get last refusal", exactly(0), self._get_refusal),
        ]
        self.commands = table(rows)

    def add(self, log: Log, event: EventRecord) -> None:
        """Adds an event that *feed* has already."""
        handle = self._logs[log].add(event, event.timestamp_ns)
        self._changed(log, handle > 0)

    def done(self) -> None:
        """Notifies of a completed background operation."""
        if self.policy & DONE_BIT:
            self._tell(DONE_BIT)

    def _changed(self, log: Log, is_new: bool) -> None:
        """Notifies when a log gets its first record (8.2.9.2.8)."""
        if is_new and len(self._logs[log]) == 1 and self.policy >> log & 1:
            self._tell(1 << log)

    def _get_refusal(self, _payload: bytes) -> bytes:
        return self._refusal().encode()[:REFUSAL_BYTES_MAX]

    def _get_policy(self, _payload: bytes) -> bytes:
        return self.policy.to_bytes(2, "little")

    def _set_policy(self, payload: bytes) -> bytes:
        self.policy = int.from_bytes(payload, "little") & _POLICY_MASK
        return self._get_policy(b"")
