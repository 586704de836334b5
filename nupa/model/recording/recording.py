# SPDX-License-Identifier: BSD-3-Clause
"""A recording: the files of all processes, on one clock, as calls in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nupa.model.errors import ModelError
from nupa.model.recording.file import AttachmentFile, read_file
from nupa.model.recording.layout import (
    MAGIC,
    MOVERS,
    SUFFIX,
    TOOK_MAX,
    CallFlag,
    CallKind,
    CallRecord,
)

FILES_MAX = 4096
SAME_MACHINE_NS = 1_000_000  # clocks of one machine agree better than this
CLOCK_SPAN_NS = 1_000_000  # CLOCK records that far apart say how fast the counter is


class Call(NamedTuple):
    """One record in ns since the recording began.

    A POST begins at *at_ns* and returns *took_ns* later.  A COMPLETION was taken at *at_ns*, and
    made *took_ns* before.  *cost_ns* is what the recorder itself added after *at_ns*, or after a
    POST's return.
    """

    kind: CallKind
    at_ns: float
    took_ns: float
    qpn: int
    peer: int
    bytes: int
    thread: int
    opcode: int
    status: int
    flags: int
    mover: str
    cost_ns: float
    polls: int = 0  #: COMPLETION: those in vain since the WAIT before it


@dataclass
class RecordedProcess:
    """One attachment.  *calls* are in the order of the file, which is each thread's order."""

    name: str
    host: int
    host_name: str
    program: str
    slot: int
    rank: int  #: as a launcher of MPI programs says; -1: none does
    path: str
    reading_ns: float  #: one reading of the counter, which *took_ns* of a POST has
    start_ns: float
    whole: bool
    cut: bool
    calls: list[Call] = field(default_factory=list)


@dataclass(frozen=True)
class Recording:
    """All processes, in the order in which they attached; those that posted nothing, too."""

    name: str
    processes: tuple[RecordedProcess, ...]
    warnings: tuple[str, ...]


class _Clock(NamedTuple):
    ticks: int
    ns: float
    ns_per_tick: float

    def at(self, ticks: int) -> float:
        return self.ns + (ticks - self.ticks) * self.ns_per_tick


class _Costs(NamedTuple):
    """The time that the recorder adds after a call, in ns."""

    post: float
    as_before: float
    completion: float
    at_once: float


def read(path: str) -> Recording:
    """Reads the folder that `nupa run --record` filled, or one file of it.

    ModelError names the file and the offset, or says that there is none.
    """
    place = Path(path)
    paths = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
    if not paths:
        raise ModelError(
            f"{path} holds no recording: did a process of the program open an RDMA device under "
            "`nupa run --record`?"
        )
    if len(paths) > FILES_MAX:
        raise ModelError(f"{path}: {len(paths)} files: at most {FILES_MAX} are read")
    begun = [each for each in paths if not _is_empty(each)]
    if not begun:
        raise ModelError(f"{path}: its {len(paths)} processes ended before they recorded anything")
    files = [read_file(each) for each in begun]
    files.sort(key=lambda file: (file.header.start_ns, file.path))
    clocks = _clocks(files)
    begin = min(clock.at(f.header.start_ticks) for f, clock in zip(files, clocks, strict=True))
    processes = [
        _process(file, clock._replace(ns=clock.ns - begin))
        for file, clock in zip(files, clocks, strict=True)
    ]
    warnings = [*_warnings(files)]
    if len(begun) < len(paths):
        warnings.append(f"{len(paths) - len(begun)} processes ended before they recorded anything")
    return Recording(place.name, tuple(processes), tuple(warnings))


def _is_empty(path: Path) -> bool:
    """Whether its process was killed before it wrote the header, which is last."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == bytes(len(MAGIC))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error


def _warnings(files: Sequence[AttachmentFile]) -> Iterator[str]:
    for file in files:
        if file.cut:
            yield f"{file.path}: the disk was full: the rest of the run is missing"
        elif not file.whole:
            yield f"{file.path}: the process was killed, or still runs: read up to its last call"


def _points(file: AttachmentFile) -> Iterator[tuple[int, int]]:
    """Yields pairs of ticks and ns."""
    yield file.header.start_ticks, file.header.start_ns
    for record in file.records:
        if record.kind == CallKind.CLOCK:
            yield record.ticks, record.qpn | record.peer << 32


def _clocks(files: Sequence[AttachmentFile]) -> list[_Clock]:
    """Returns each file's clock.  On one machine, all have the same counter, and so one clock."""
    own = []
    spans = []
    for file in files:
        points = list(_points(file))
        first, last = points[0], points[-1]
        rate = 1e9 / file.header.ticks_per_s
        if last[1] - first[1] >= CLOCK_SPAN_NS and last[0] > first[0]:
            rate = (last[1] - first[1]) / (last[0] - first[0])
        own.append(_Clock(first[0], float(first[1]), rate))
        spans.append(last[1] - first[1])
    best = own[max(range(len(files)), key=spans.__getitem__)]
    return [
        best if abs(best.at(clock.ticks) - clock.ns) < SAME_MACHINE_NS else clock for clock in own
    ]


def _process(file: AttachmentFile, clock: _Clock) -> RecordedProcess:
    header = file.header
    # Half of a reading lies before its time, half of it behind.  A post has one at either end: what
    # lies in *took_ns* goes with it.
    reading = header.reading_ticks
    ticks = (
        header.post_ticks - reading,
        header.as_before_ticks - reading,
        header.completion_ticks - reading / 2,
        header.at_once_ticks,
    )
    costs = _Costs(*(max(each, 0) * clock.ns_per_tick for each in ticks))
    process = RecordedProcess(
        name=f"{file.host_name}:{header.pid}",
        host=header.host,
        host_name=file.host_name,
        program=file.program,
        slot=header.slot,
        rank=header.rank - 1,
        path=file.path,
        reading_ns=reading * clock.ns_per_tick,
        start_ns=clock.at(header.start_ticks),
        whole=file.whole,
        cut=file.cut,
    )
    process.calls = [_call(record, clock, costs) for record in file.records]
    return process


def _cost(record: CallRecord, clock: _Clock, costs: _Costs) -> float:
    if record.kind == CallKind.CLOCK:
        return min(TOOK_MAX, record.took_ticks) * clock.ns_per_tick
    if record.flags & CallFlag.SAME_CALL:
        return 0.0
    if record.kind == CallKind.POST:
        return costs.as_before if record.flags & CallFlag.AS_BEFORE else costs.post
    if record.flags & CallFlag.AT_ONCE:
        return costs.at_once
    return costs.completion if record.kind in (CallKind.COMPLETION, CallKind.WAIT) else 0.0


def _call(record: CallRecord, clock: _Clock, costs: _Costs) -> Call:
    kind = CallKind(record.kind)
    return Call(
        kind,
        clock.at(record.ticks),
        min(TOOK_MAX, record.took_ticks) * clock.ns_per_tick,
        record.qpn,
        record.peer,
        record.bytes,
        record.thread,
        record.opcode,
        record.status,
        record.flags,
        MOVERS[record.mover] if kind == CallKind.POST else "",
        _cost(record, clock, costs),
        record.polls,
    )
