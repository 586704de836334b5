# SPDX-License-Identifier: BSD-3-Clause
"""Reads one file of a recording, as hostile input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nupa.model.errors import ModelError
from nupa.model.recording.layout import (
    BODY_OFFSET,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MOVERS,
    OPERATIONS,
    RECORD,
    TAIL_BYTES,
    TICKS_MAX,
    VERSION,
    CallKind,
    CallRecord,
    RecordingHeader,
)

RECORDS_MAX = 50_000_000  # 1.6 GB: what a machine can read into memory
_READ_RECORDS = 1 << 15


@dataclass(frozen=True)
class AttachmentFile:
    """One attachment of one process.

    *whole*: the process left the fabric in order.  *cut*: its disk was full.  Neither: it was
    killed, or still runs, and the records are valid up to that time.
    """

    path: str
    header: RecordingHeader
    records: list[CallRecord]
    cut: bool
    whole: bool

    @property
    def host_name(self) -> str:
        return self.header.host_name.split(b"\0")[0].decode(errors="replace")

    @property
    def program(self) -> str:
        return self.header.program.split(b"\0")[0].decode(errors="replace")


def read_file(path: Path) -> AttachmentFile:
    """Reads a file up to its end.  ModelError names the file and the offset of what is wrong."""
    try:
        with path.open("rb") as file:
            header = _header(file.read(HEADER_BYTES), path)
            tail = list(_records(file.read(TAIL_BYTES), HEADER_BYTES, header, path))
            held = (path.stat().st_size - BODY_OFFSET) // RECORD.size
            # record.h R5: a process was killed when it had just moved its tail to the body.
            moved = bool(tail) and held >= header.body_records + len(tail)
            count = held if moved or not tail else header.body_records
            if count + len(tail) > RECORDS_MAX:
                raise ModelError(f"{path}: more than {RECORDS_MAX} records: record a shorter run")
            records: list[CallRecord] = []
            while len(records) < count:
                offset = BODY_OFFSET + len(records) * RECORD.size
                block = file.read(RECORD.size * min(_READ_RECORDS, count - len(records)))
                read = list(_records(block, offset, header, path))
                records += read
                if len(read) * RECORD.size < len(block) or not block:
                    raise ModelError(
                        f"{path}: offset {BODY_OFFSET + len(records) * RECORD.size}: "
                        f"record {len(records)} of {count} is missing"
                    )
            records += [] if moved else tail
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    last = CallKind(records[-1].kind) if records else CallKind.END
    records = [each for each in records if each.kind not in (CallKind.CUT, CallKind.LEFT)]
    return AttachmentFile(str(path), header, records, last == CallKind.CUT, last == CallKind.LEFT)


def _header(data: bytes, path: Path) -> RecordingHeader:
    if len(data) < HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise ModelError(
            f"{path}: offset 0: no recording: `nupa run --record FOLDER -- ...` makes one"
        )
    header = RecordingHeader._make(HEADER.unpack_from(data))
    found = (header.version, header.header_bytes, header.record_bytes)
    if found != (VERSION, HEADER_BYTES, RECORD.size):
        raise ModelError(
            f"{path}: offset 8: version {found[0]} with a header of {found[1]} and records of "
            f"{found[2]} bytes: this NUPA reads version {VERSION}, {HEADER_BYTES}, {RECORD.size}"
        )
    if not 1_000_000 <= header.ticks_per_s <= 100_000_000_000:
        raise ModelError(f"{path}: offset 56: a clock of {header.ticks_per_s} ticks a second")
    if not 0 < header.start_ticks < TICKS_MAX or header.start_ns >= TICKS_MAX:
        raise ModelError(f"{path}: offset 40: no time: {header.start_ticks} ticks")
    return header


def _records(
    block: bytes, offset: int, header: RecordingHeader, path: Path
) -> Iterator[CallRecord]:
    whole = len(block) - len(block) % RECORD.size
    for index, fields in enumerate(RECORD.iter_unpack(block[:whole])):
        record = CallRecord._make(fields)
        if record.kind == CallKind.END:
            return
        at = f"{path}: offset {offset + index * RECORD.size}"
        if record.kind > CallKind.LEFT:
            raise ModelError(
                f"{at}: a record of kind {record.kind}: 1 to {int(CallKind.LEFT)} exist"
            )
        if not header.start_ticks <= record.ticks < TICKS_MAX:
            raise ModelError(
                f"{at}: {record.ticks} ticks: the recording began at {header.start_ticks}"
            )
        if record.kind == CallKind.POST:
            if record.opcode not in OPERATIONS:
                raise ModelError(f"{at}: a request with the unknown opcode {record.opcode}")
            if record.mover >= len(MOVERS):
                raise ModelError(f"{at}: an unknown mover {record.mover}")
        yield record
