# SPDX-License-Identifier: BSD-3-Clause
"""Event logs of a device: records, handles, overflow and notification (CXL 3.1 8.2.9.2)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from nupa.cxl.function.cci import Code, require

RECORD_BYTES = 128
DATA_BYTES = 80
_HEADER = struct.Struct("<16sB3sHHQ16s")
_HANDLE_MAX = 0xFFFF
_COUNT_MAX = 0xFFFF
_FLAGS_MAX = (1 << 24) - 1

#: 8.2.9.2.1.1 to .3, 8.2.9.2.1.6
GENERAL_MEDIA = UUID("fbcd0a77-c260-417f-85a9-088b1621eba6")
DRAM = UUID("601dcbb3-9c06-4eab-b8af-4e9bfb5c9624")
MEMORY_MODULE = UUID("fe927475-dd59-4339-a586-79bab113b774")
DYNAMIC_CAPACITY = UUID("ca95afa7-f183-4018-8c2f-95268e101a2a")


class Log(IntEnum):
    """Event logs by number (8.2.9.2.2); the first four are severities, too."""

    INFORMATIONAL = 0
    WARNING = 1
    FAILURE = 2
    FATAL = 3
    DYNAMIC_CAPACITY = 4


class MediaEventType(IntEnum):
    """Memory event types of a general media event."""

    ECC = 0
    INVALID_ADDRESS = 1
    DATA_PATH = 2


class DramEventType(IntEnum):
    """Memory event types of a DRAM event, which differ."""

    ECC = 0
    SCRUB_ECC = 1
    INVALID_ADDRESS = 2
    DATA_PATH = 3


class Transaction(IntEnum):
    UNKNOWN = 0
    HOST_READ = 1
    HOST_WRITE = 2
    HOST_SCAN = 3
    HOST_INJECT = 4
    SCRUB = 5
    MANAGEMENT = 6


class Descriptor(IntEnum):
    """Bits of a memory event descriptor."""

    UNCORRECTABLE = 1 << 0
    THRESHOLD = 1 << 1
    POISON_OVERFLOW = 1 << 2


@dataclass(frozen=True, slots=True)
class EventRecord:
    """The common record (8.2.9.2.1).  *flags* are those above the severity, which the log gives;
    *handle* and *timestamp_ns* are set when it is logged."""

    kind: UUID
    data: bytes
    flags: int = 0
    related: int = 0
    maintenance: int = 0
    handle: int = 0
    timestamp_ns: int = 0

    def __post_init__(self) -> None:
        if len(self.data) > DATA_BYTES or not 0 <= self.flags <= _FLAGS_MAX or self.flags & 3:
            raise ValueError(f"an event with {len(self.data)} bytes and flags {self.flags:#x}")

    def packed(self, log: Log) -> bytes:
        severity = log if log <= Log.FATAL else Log.INFORMATIONAL
        return _HEADER.pack(
            self.kind.bytes,
            RECORD_BYTES,
            (self.flags | severity).to_bytes(3, "little"),
            self.handle,
            self.related,
            self.timestamp_ns,
            bytes([self.maintenance]),
        ) + self.data.ljust(DATA_BYTES, b"\0")


def _media(
    dpa: int,
    descriptor: int,
    media: MediaEventType | DramEventType,
    transaction: Transaction,
    validity: int,
    channel: int,
    rank: int,
) -> bytes:
    return struct.pack("<QBBBHBB", dpa, descriptor, media, transaction, validity, channel, rank)


def general_media(
    dpa: int,
    *,
    descriptor: int = Descriptor.UNCORRECTABLE,
    media: MediaEventType = MediaEventType.ECC,
    transaction: Transaction = Transaction.UNKNOWN,
    channel: int | None = None,
    rank: int | None = None,
    device: int | None = None,
) -> EventRecord:
    """Makes a general media event (8.2.9.2.1.1); None: not valid."""
    validity = sum((x is not None) << bit for bit, x in enumerate((channel, rank, device)))
    head = _media(dpa, descriptor, media, transaction, validity, channel or 0, rank or 0)
    return EventRecord(GENERAL_MEDIA, head + (device or 0).to_bytes(3, "little"))


def dram(
    dpa: int,
    *,
    descriptor: int = Descriptor.UNCORRECTABLE,
    media: DramEventType = DramEventType.ECC,
    transaction: Transaction = Transaction.UNKNOWN,
    channel: int | None = None,
    rank: int | None = None,
    nibbles: int | None = None,
    bank_group: int | None = None,
    bank: int | None = None,
    row: int | None = None,
    column: int | None = None,
) -> EventRecord:
    """Makes a DRAM event (8.2.9.2.1.2); None: not valid."""
    given = (channel, rank, nibbles, bank_group, bank, row, column)
    validity = sum((x is not None) << bit for bit, x in enumerate(given))
    head = _media(dpa, descriptor, media, transaction, validity, channel or 0, rank or 0)
    place = (nibbles or 0).to_bytes(3, "little") + bytes([bank_group or 0, bank or 0])
    place += (row or 0).to_bytes(3, "little") + (column or 0).to_bytes(2, "little")
    return EventRecord(DRAM, head + place)


def memory_module(event_type: int, health: bytes) -> EventRecord:
    """Makes a memory module event (8.2.9.2.1.3); *health* is the answer of Get Health Info, 18
    bytes."""
    return EventRecord(MEMORY_MODULE, bytes([event_type]) + health)


class DcEventType(IntEnum):
    """Types of a dynamic capacity event."""

    ADD = 0
    RELEASE = 1
    FORCED_RELEASE = 2
    REGION_UPDATED = 3
    #: These two are for the fabric manager, the others for hosts.
    ANSWERED = 4
    RELEASED = 5


def dynamic_capacity(
    change: DcEventType,
    host: int,
    region: int,
    dpa: int = 0,
    size: int = 0,
    tag: UUID = UUID(int=0),  # noqa: B008
    sequence: int = 0,
    *,
    more: bool = False,
) -> EventRecord:
    """Makes a dynamic capacity event (8.2.9.2.1.6); *more*: the next record belongs to this one."""
    head = struct.pack("<BxHBB2x", change, host, region, more)
    return EventRecord(
        DYNAMIC_CAPACITY, head + struct.pack("<QQ16sH6x", dpa, size, tag.bytes, sequence)
    )


class EventRecords(NamedTuple):
    """The answer of Get Event Records."""

    overflow: bool
    more: bool
    overflow_count: int
    first_overflow_ns: int
    last_overflow_ns: int
    records: list[EventRecord]


class EventLog:
    """A log with room for *limit* records; further records are counted as overflow (8.2.9.2.2)."""

    def __init__(self, limit: int) -> None:
        if not 1 <= limit < _HANDLE_MAX:
            raise ValueError(f"a log of {limit} records: choose 1 to {_HANDLE_MAX - 1}")
        self.limit = limit
        self.overflow_count = 0
        self._overflow_ns = (0, 0)
        self._records: dict[int, EventRecord] = {}
        self._handle = 0

    def __len__(self) -> int:
        return len(self._records)

    def add(self, event: EventRecord, now_ns: int) -> int:
        """Adds a record; returns its handle, which is not 0, or 0 if the log is full."""
        if len(self._records) >= self.limit:
            first = self._overflow_ns[0] if self.overflow_count else now_ns
            self._overflow_ns = (first, now_ns)
            self.overflow_count = min(self.overflow_count + 1, _COUNT_MAX)
            return 0
        while True:
            self._handle = self._handle % _HANDLE_MAX + 1
            if self._handle not in self._records:
                break
        self._records[self._handle] = replace(event, handle=self._handle, timestamp_ns=now_ns)
        return self._handle

    def get(self, most: int) -> EventRecords:
        """Returns the *most* oldest records."""
        records = list(islice(self._records.values(), most))
        return EventRecords(
            self.overflow_count > 0,
            len(records) < len(self._records),
            self.overflow_count,
            *self._overflow_ns,
            records,
        )

    def clear(self, handles: Sequence[int]) -> None:
        """Clears the oldest records, in their order.  CommandError: *handles* are not these."""
        require(handles, why="no handles")
        oldest = list(islice(self._records, len(handles)))
        require(oldest == list(handles), Code.INVALID_HANDLE, f"{list(handles)}, not {oldest}")
        for handle in handles:
            del self._records[handle]
        self._forget_overflow()

    def clear_all(self) -> None:
        """Clears all records.  CommandError: the log has not overflown (8.2.9.2.3)."""
        require(self.overflow_count, why="the log has not overflown")
        self._records.clear()
        self._forget_overflow()

    def _forget_overflow(self) -> None:
        self.overflow_count, self._overflow_ns = 0, (0, 0)


class EventLogs:
    """The logs of a device.  *now_ns* gives timestamps; *changed* is called with the log after each
    change, and whether a record was added."""

    def __init__(
        self,
        limits: Sequence[int],
        *,
        now_ns: Callable[[], int],
        changed: Callable[[Log, bool], None],
    ) -> None:
        self._logs = {log: EventLog(limit) for log, limit in zip(Log, limits, strict=True)}
        self._now_ns = now_ns
        self._changed = changed

    def __getitem__(self, log: Log) -> EventLog:
        return self._logs[log]

    def add(self, log: Log, event: EventRecord) -> int:
        """Adds a record: `EventLog.add`."""
        handle = self._logs[log].add(event, self._now_ns())
        self._changed(log, handle > 0)
        return handle

    def clear(self, log: Log, handles: Sequence[int] | None) -> None:
        """Clears *handles* of the log, or all of it: `EventLog.clear`, `EventLog.clear_all`."""
        if handles is None:
            self._logs[log].clear_all()
        else:
            self._logs[log].clear(handles)
        self._changed(log, False)
