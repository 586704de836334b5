# SPDX-License-Identifier: BSD-3-Clause
"""Recordings made by hand: a counter of one tick a nanosecond, and no cost of the recorder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nupa.model.recording.layout import (
    BODY_OFFSET,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    RECORD,
    VERSION,
    CallKind,
)

START = 1_000_000


def header(**changed: object) -> bytes:
    """Returns a header and an empty tail."""
    fields: dict[str, object] = {
        "magic": MAGIC,
        "version": VERSION,
        "header_bytes": HEADER_BYTES,
        "record_bytes": RECORD.size,
        "pid": 100,
        "host": 0,
        "slot": 1,
        "generation": 7,
        "start_ticks": START,
        "start_ns": START,
        "ticks_per_s": 1_000_000_000,
        "post_ticks": 0,
        "completion_ticks": 0,
        "rank": 0,
        "at_once_ticks": 0,
        "host_name": b"host0",
        "program": b"app",
        "body_records": 0,  # counts only where the tail has records
        "as_before_ticks": 0,
        "reading_ticks": 0,
        **changed,
    }
    return HEADER.pack(*fields.values()).ljust(BODY_OFFSET, b"\0")


@dataclass
class Made:
    """A file in the making: times are ns from the start of the recording."""

    host: int
    qpn: int
    peer: int
    rank: int = 0
    qp_type: int = 2
    data: bytes = b""
    thread: int = 1
    changed: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data = header(
            host=self.host,
            pid=100 + self.host,
            rank=self.rank,
            host_name=f"host{self.host}".encode(),
            **self.changed,
        )
        self.put(CallKind.QP, 0, peer=self.peer, opcode=self.qp_type)

    def put(
        self,
        kind: int,
        at: int,
        took: int = 0,
        *,
        peer: int = 0,
        size: int = 0,
        opcode: int = 0,
        status: int = 0,
        flags: int = 0,
        mover: int = 3,
        polls: int = 0,
        qpn: int | None = None,
    ) -> Made:
        number = self.qpn if qpn is None else qpn
        fields = (number, peer, size, self.thread, opcode, status, flags, mover, polls, kind)
        self.data += RECORD.pack(START + at, took, *fields)
        return self

    def post(
        self, at: int, took: int, size: int, opcode: int = 0, flags: int = 1, **more: int
    ) -> Made:
        return self.put(CallKind.POST, at, took, size=size, opcode=opcode, flags=flags, **more)

    def done(self, at: int, since: int = 0, opcode: int = 1, flags: int = 0, **more: int) -> Made:
        return self.put(CallKind.COMPLETION, at, since, opcode=opcode, flags=flags, **more)

    def write(self, folder: Path) -> Path:
        path = folder / f"host{self.host}-{100 + self.host}-0.nrec"
        path.write_bytes(self.data)
        return path
