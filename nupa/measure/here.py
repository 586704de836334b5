# SPDX-License-Identifier: BSD-3-Clause
"""This machine as a profile of the performance model: one for each mover, by `nupa perf`'s loops.

Each loop runs alone, for its times, and recorded, for what a post takes and what the loop itself
computes.  A replay has that computation from its recording, so a profile must not have it.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from nupa.fabric import Fabric
from nupa.measure import perf
from nupa.measure.perf import PerfJob
from nupa.model.engine.moves import BACK, POST, STREAM, TABLE
from nupa.model.recording.layout import CallFlag, CallKind
from nupa.model.recording.recording import Recording, read
from nupa.model.work.phase import RankOperation
from nupa.model.work.recorded import CallReader
from nupa.model.work.recording import schedule_of
from nupa.programs.cpus import pick_two
from nupa.programs.perftest import Kind, Operation

#: Sizes in bytes: where a copy leaves a level of a core's caches, its rate changes.
SIZES = (8, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 8 << 20)
OPERATIONS: tuple[Operation, ...] = ("write", "send", "read")
_BYTES = 32 << 20  # of one size, at most
_ITERATIONS: Mapping[Kind, int] = {"lat": 10_000, "bw": 50_000}
_RECORDED_ITERATIONS = 2_000
_STREAM_RUNS = 3
_ITERATIONS_MIN = 12
_RECORD = "NUPA_RECORD"


@dataclass(frozen=True)
class Here:
    """What was measured: figures in the units of their kinds, moves in ns by row and size."""

    name: str
    title: str
    figures: Mapping[str, float]
    moves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    operations: Sequence[str] = ()

    def to_toml(self, when: str) -> str:
        """Returns the profile's file."""
        said = f'source = "nupa model calibrate, {when}, kernel {os.uname().release}"'
        lines = [
            f'name = "{self.name}"',
            f'title = "{self.title}"',
            'kind = "fabric"',
            "",
            "[envelope]",
            f"bytes = [1, {SIZES[-1]}]",
            "ranks = [2, 2]",
        ]
        if self.operations:
            lines.append(f"operations = {json.dumps(list(self.operations))}")
        for name, value in self.figures.items():
            lines += [
                "",
                f"[figures.{name}]",
                f"value = {value:.6g}",
                f'unit = "{_UNITS.get(name, "ns")}"',
                said,
                'confidence = "measured"',
            ]
        if self.moves:
            lines += ["", f"[tables.{TABLE}]", 'unit = "ns"', said, 'confidence = "measured"']
            lines += [f"columns = {json.dumps([str(size) for size in SIZES])}"]
            lines += ["", f"[tables.{TABLE}.rows]"]
            lines += [
                f'"{row}" = [{", ".join(f"{cell:.6g}" for cell in cells)}]'
                for row, cells in self.moves.items()
            ]
        return "\n".join(lines) + "\n"


_UNITS = {"rate": "B/s", "mtu": "B", "header": "B", "message_rate": "1/s"}


def measure(fabric: Fabric, mover: str, tick: Callable[[str], None] = lambda _what: None) -> Here:
    """Returns the figures of a mover on *fabric*.  PerfError: an end failed, or has no such mover.

    It takes about ten seconds, and the machine to itself.
    """
    moves: dict[str, list[float]] = {}
    loops: dict[Operation, _Loop] = {}
    for operation in OPERATIONS:
        tick(f"{operation} lat")
        times = [
            float(row["latency_typical_us"]) * 1e3
            for row in _run(fabric, mover, operation, "lat", _ITERATIONS["lat"]).results
        ]
        tick(f"{operation} bw")
        stream = _streams(fabric, mover, operation)
        tick(f"a recorded {operation} lat")
        loop = loops[operation] = _recorded(fabric, mover, operation)
        posts = [min(post, time) for post, time in zip(loop.posts_ns, times, strict=True)]
        whole = [
            max(time - loop.computation_ns, post) for time, post in zip(times, posts, strict=True)
        ]
        back = [
            0.0 if at_once else time - post
            for at_once, time, post in zip(loop.at_once, whole, posts, strict=True)
        ]
        moves |= {
            operation: whole,
            f"{operation} {POST}": posts,
            f"{operation} {BACK}": back,
            # One at a time takes no more than its whole time.
            f"{operation} {STREAM}": [min(each) for each in zip(stream, times, strict=True)],
        }
    return Here(
        f"here-{mover}",
        f"this machine, two processes, mover {mover}",
        _figures(moves, loops["write"].polled_ns),
        moves,
    )


def _figures(moves: Mapping[str, Sequence[float]], polled_ns: float) -> dict[str, float]:
    """Returns the figures of a small message, and the rate of the largest.

    Engines that know no table use them.
    """
    write, post = moves["write"], moves[f"write {POST}"]
    spent_ns = max(write[-1] - write[0], 1.0)
    return {
        "rate": (SIZES[-1] - SIZES[0]) / spent_ns * 1e9,
        "mtu": float(SIZES[-1]),
        "post": post[0],
        "completion": write[0] - post[0],
        "polled": polled_ns,
        "receive": max(moves["send"][0] - write[0], 0.0),
        "respond": moves["read"][0] - moves[f"read {POST}"][0],
        "message_rate": 1e9 / min(moves[f"{each} {STREAM}"][0] for each in ("write", "send")),
    }


def _streams(fabric: Fabric, mover: str, operation: Operation) -> list[float]:
    """Returns the time of each of many messages in ns, by size.

    It is a mean, and the least of some runs: another program that ran meanwhile is in it.
    """
    runs = [
        [
            1e3 / float(row["message_rate_m_per_s"])
            for row in _run(fabric, mover, operation, "bw", _ITERATIONS["bw"]).results
        ]
        for _ in range(_STREAM_RUNS)
    ]
    return [min(times) for times in zip(*runs, strict=True)]


def _run(
    fabric: Fabric, mover: str, operation: Operation, kind: Kind, iterations: int
) -> perf.Measured:
    runs = tuple((size, max(_ITERATIONS_MIN, min(iterations, _BYTES // size))) for size in SIZES)
    return perf.measure(
        PerfJob(operation, kind, runs), fabric=fabric.name, mover=mover, cpus=pick_two()
    )


@dataclass(frozen=True)
class _Loop:
    """What a recorded loop shows: by size, and of its smallest messages."""

    posts_ns: Sequence[float]
    at_once: Sequence[bool]  #: the post's return finds it completed
    computation_ns: float  #: the program's own, for each message
    polled_ns: float  #: from a landed write to the post of a program that awaits it, at most


def _recorded(fabric: Fabric, mover: str, operation: Operation) -> _Loop:
    with tempfile.TemporaryDirectory(prefix="nupa-here-") as folder:
        with _environment(_RECORD, folder):
            _run(fabric, mover, operation, "lat", _RECORDED_ITERATIONS)
        recording = read(folder)
    posts: dict[int, list[float]] = {size: [] for size in SIZES}
    ended: dict[int, list[bool]] = {size: [] for size in SIZES}
    for process in recording.processes:
        for call in process.calls:
            if call.bytes not in posts or call.flags & CallFlag.AS_BEFORE:
                continue
            if call.kind == CallKind.POST:
                posts[call.bytes].append(call.took_ns - process.reading_ns)
            elif call.kind == CallKind.COMPLETION:
                ended[call.bytes].append(bool(call.flags & CallFlag.MADE_IN_POST))
    polled_ns = _polled(recording)
    return _Loop(
        [max(median(posts[size]), 0.0) for size in SIZES],
        [sum(ended[size]) * 2 > len(ended[size]) for size in SIZES],
        _computation(schedule_of(recording, polled_ns).steps),
        polled_ns,
    )


def _polled(recording: Recording) -> float:
    """Returns how long after a landed small write its target posts: of nine in ten, at most.

    What is longer counts as computation of a replayed program.
    """
    reader = CallReader(recording)
    reader.collect()
    small = [message for message in reader.messages if message.call.bytes == SIZES[0]]
    small.sort(key=lambda message: message.call.at_ns)
    gaps = [b.call.at_ns - a.landed_ns for a, b in pairwise(small) if a.rank == b.peer]
    return max(quantiles(gaps, n=10)[-1], 0.0) if len(gaps) > 1 else 0.0


def _computation(steps: Iterable[RankOperation]) -> float:
    """Returns the median computation between two small messages of a rank."""
    before: dict[int, float] = {}
    found = []
    for step in steps:
        if step.peer == step.rank:
            before[step.rank] = before.get(step.rank, 0.0) + step.compute_ns
            continue
        if step.bytes == SIZES[0]:
            found.append(before.get(step.rank, 0.0))
        before[step.rank] = 0.0
    return median(found)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def write(found: Here, folder: Path) -> Path:
    """Writes the profile into a folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.name}.toml"
    path.write_text(found.to_toml(time.strftime("%Y-%m-%d")), encoding="utf-8")
    return path
