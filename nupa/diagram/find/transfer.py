# SPDX-License-Identifier: BSD-3-Clause
"""A transfer, as one pass over a capture finds it: one line of the list."""

from __future__ import annotations

from enum import IntFlag
from functools import lru_cache
from typing import Any

from nupa.base.printable import printable
from nupa.base.quantity import say_bytes
from nupa.core.levels import LEVELS
from nupa.packet.tables.record import Flag, Kind

UNKNOWN = -1
_COUNTED = 1 + max(LEVELS.values())  # 0 counts records of unknown levels


class Mark(IntFlag):
    """Marks of a transfer.  The lower bits are those of record.Flag."""

    RETRY = Flag.RETRY
    CORRUPT = Flag.CORRUPT
    POISON = Flag.POISON
    DROPPED = Flag.DROPPED
    DUPLICATE = Flag.DUPLICATE
    DELAYED = Flag.DELAYED
    INJECTED = Flag.INJECTED
    REPLAYED = Flag.REPLAYED
    NAK = 1 << 16
    RNR = 1 << 17
    ERROR = 1 << 18  # a completion other than SUCCESS


MARKS: dict[str, Mark] = {str(mark.name).lower(): mark for mark in Mark}
OF_RECORDS = sum(Flag(mark.value) for mark in Mark if mark < Mark.NAK)


def mark_names(marks: int) -> list[str]:
    return [name for name, mark in MARKS.items() if marks & mark]


class Transfer:
    """A work request and all records that it caused; of the netdev, a conversation.

    *id*: that of its records; 0 if the capture has none, and packets are grouped by QPs and PSNs.
    *number*: its place in the list, from 1.  *counts*: records of each level, by its number.
    *marks*: as Mark.  Unknown QP numbers are UNKNOWN, unknown addresses and hosts empty.
    """

    __slots__ = (
        "acknowledged_by",
        "counts",
        "crossing",
        "crossing_bytes",
        "crossing_interface",
        "end_ns",
        "id",
        "interface",
        "is_answered",
        "last_psn",
        "marks",
        "number",
        "op",
        "payload_bytes",
        "place",
        "service",
        "source",
        "source_host",
        "source_qpn",
        "start_ns",
        "target",
        "target_host",
        "target_qpn",
        "wqe_bytes",
    )

    def __init__(self, identifier: int, place: int, start_ns: int) -> None:
        self.id = identifier
        self.number = 0
        self.place = place  # 1 + the number of transfers found before
        self.start_ns = self.end_ns = start_ns
        self.counts = [0] * _COUNTED
        self.marks = 0
        self.op = ""
        self.service = ""
        self.wqe_bytes = UNKNOWN
        self.payload_bytes = 0
        self.source_qpn = self.target_qpn = UNKNOWN
        self.source = self.target = ""  # addresses as text
        self.source_host = self.target_host = ""
        self.interface = UNKNOWN  # of its first request
        self.last_psn = UNKNOWN  # of the requests at that interface
        self.crossing = 0  # kind and code of the first TLP or CXL.mem message
        self.crossing_interface = UNKNOWN
        self.crossing_bytes = 0
        self.is_answered = False
        self.acknowledged_by = 0  # packet that acknowledged it together with later ones

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def records(self) -> int:
        return sum(self.counts)

    @property
    def length(self) -> int:
        """Bytes of data."""
        if self.wqe_bytes != UNKNOWN:
            return self.wqe_bytes
        return self.payload_bytes or self.crossing_bytes

    @property
    def what(self) -> str:
        """`RDMA WRITE 64 KiB`; the service stands before it unless it is RC."""
        parts = [self.service if self.service not in ("", "RC") else "", self.op or "?"]
        if self.op and (self.length or (self.service and self.last_psn != UNKNOWN)):
            parts.append(say_bytes(self.length, " "))
        return " ".join(part for part in parts if part)

    @property
    def flag_names(self) -> list[str]:
        return mark_names(self.marks)

    @property
    def source_text(self) -> str:
        return end_text(self.source_host, self.source, self.source_qpn)

    @property
    def target_text(self) -> str:
        known = end_text(self.target_host, self.target, self.target_qpn)
        return "pool" if known == "?" and self.crossing >> 8 == Kind.CXL_MEM else known

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "transfer": f"{self.id:#x}" if self.id else None,
            "what": self.what,
            "operation": self.op or None,
            "service": self.service or None,
            "bytes": self.length,
            "source": _end(self.source_host, self.source, self.source_qpn),
            "target": _end(self.target_host, self.target, self.target_qpn),
            "start_ns": self.start_ns,
            "duration_ns": self.duration_ns,
            "records": {name: self.counts[level] for name, level in LEVELS.items()},
            "flags": self.flag_names,
        }


def qpn_text(qpn: int) -> str:
    return f"{qpn:#08x}"


@lru_cache(maxsize=4096)
def host_of(port: str) -> str:
    """Returns the host or switch in a port's name: `host0` of `host0/1`; empty if there is none."""
    return printable(port.rpartition("/")[0])


def end_text(host: str, address: str, number: int) -> str:
    """Prints an end of a transfer: its host by name or address, and its QP."""
    parts = [host or address, qpn_text(number) if number != UNKNOWN else ""]
    return " ".join(part for part in parts if part) or "?"


def _end(host: str, address: str, number: int) -> dict[str, Any]:
    return {
        "host": host or None,
        "address": address or None,
        "qpn": None if number == UNKNOWN else number,
    }
