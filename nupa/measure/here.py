# SPDX-License-Identifier: BSD-3-Clause
"""This machine as a profile of the performance model: one for each mover, by `nupa perf`'s loops.

Each loop runs twice: once alone, for its times, and once recorded, for what a post takes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from nupa.fabric import Fabric
from nupa.measure import perf
from nupa.model.recording.layout import CallFlag, CallKind
from nupa.model.recording.recording import read
from nupa.programs import perftest
from nupa.programs.cpus import pick_two
from nupa.programs.perftest import Operation

SMALL_BYTES = 8
FIRST_BYTES = 65536  # to there a copy stays in a core's caches
LARGE_BYTES = 1 << 20
STREAM_BYTES = 8 << 20
_ITERATIONS = {SMALL_BYTES: 20_000, FIRST_BYTES: 4_000, LARGE_BYTES: 400, STREAM_BYTES: 60}
_RECORD = "NUPA_RECORD"


@dataclass(frozen=True)
class Here:
    """Figures of one mover, in the units of their kinds: ns, B/s, 1/s, ns/B."""

    mover: str
    figures: dict[str, float]

    def to_toml(self, when: str) -> str:
        """Returns the profile's file."""
        lines = [
            f'name = "here-{self.mover}"',
            f'title = "this machine, two processes, mover {self.mover}"',
            'kind = "fabric"',
            "",
            "[envelope]",
            f"bytes = [1, {STREAM_BYTES}]",
            "ranks = [2, 2]",
        ]
        for name, value in self.figures.items():
            lines += [
                "",
                f"[figures.{name}]",
                f"value = {value:.6g}",
                f'unit = "{_UNITS.get(name, "ns")}"',
                f'source = "nupa model calibrate, {when}, kernel {os.uname().release}"',
                'confidence = "measured"',
            ]
        return "\n".join(lines) + "\n"


_UNITS = {
    "rate": "B/s",
    "mtu": "B",
    "packet_copy": "ns/B",
    "message_rate": "1/s",
    "copied": "1",
}


def measure(fabric: Fabric, mover: str, tick: Callable[[str], None] = lambda _what: None) -> Here:
    """Returns the figures of a mover on *fabric*.  PerfError: an end failed, or has no such mover.

    It takes about five seconds, and the machine to itself.
    """

    def latency_ns(operation: Operation, size_bytes: int) -> float:
        tick(f"{operation} lat {size_bytes} B")
        report = _run(fabric, mover, operation, "lat", size_bytes)
        return float(report.results[0]["latency_typical_us"]) * 1e3

    write = {size: latency_ns("write", size) for size in _ITERATIONS}
    send_ns = latency_ns("send", SMALL_BYTES)
    read_ns = latency_ns("read", SMALL_BYTES)
    tick("write bw, send bw")
    messages_per_s = 1e6 * max(
        float(stream.results[0]["message_rate_m_per_s"])
        for stream in (
            _run(fabric, mover, operation, "bw", SMALL_BYTES) for operation in ("write", "send")
        )
    )
    tick("a recorded write lat")
    post_ns, polled_ns, copied = _posts(fabric, mover)
    rate = (STREAM_BYTES - LARGE_BYTES) / (write[STREAM_BYTES] - write[LARGE_BYTES]) * 1e9
    rate = max(rate, 1.0)
    # Of the first bytes: what they take beside the rate.  Where they are faster, the rate is
    # theirs, and long copies are slower than predicted.
    per_byte = (write[FIRST_BYTES] - write[SMALL_BYTES]) / (FIRST_BYTES - SMALL_BYTES)
    first = per_byte - 1e9 / rate
    if first < 0:
        rate, first = 1e9 / per_byte, 0.0
    seen_ns = max(write[SMALL_BYTES] - post_ns, 0.0)
    figures = {
        "rate": rate,
        "mtu": float(FIRST_BYTES),
        "packet_copy": first,
        "post": post_ns,
        "completion": seen_ns,
        "polled": polled_ns,
        "receive": max(send_ns - write[SMALL_BYTES], 0.0),
        "respond": max(read_ns - post_ns - (0.0 if copied else seen_ns), 0.0),
        "message_rate": messages_per_s,
    }
    if copied:
        figures["copied"] = 1.0
    return Here(mover, figures)


def _run(
    fabric: Fabric, mover: str, operation: Operation, kind: perftest.Kind, size_bytes: int
) -> perf.Measured:
    job = perf.make_job(
        operation,
        kind,
        size=size_bytes,
        iterations=_ITERATIONS[size_bytes] * (5 if kind == "bw" else 1),
    )
    return perf.measure(job, fabric=fabric.name, mover=mover, cpus=pick_two())


def _posts(fabric: Fabric, mover: str) -> tuple[float, float, bool]:
    """Returns what a small post takes, how long after a landed write the next one begins, and
    whether a post is complete when it returns.
    """
    with tempfile.TemporaryDirectory(prefix="nupa-here-") as folder:
        with _environment(_RECORD, folder):
            _run(fabric, mover, "write", "lat", SMALL_BYTES)
        calls = [call for process in read(folder).processes for call in process.calls]
    posts = [call for call in calls if call.kind == CallKind.POST and call.bytes == SMALL_BYTES]
    made = [call for call in calls if call.kind == CallKind.COMPLETION]
    in_post = sum(bool(call.flags & CallFlag.MADE_IN_POST) for call in made)
    # The reading of the counter that ends the call is in its time; costs of a call have two.
    own_ns = median(call.cost_ns for call in posts) / 3
    posts.sort(key=lambda call: call.at_ns)
    gaps = [b.at_ns - a.at_ns - a.took_ns for a, b in pairwise(posts) if a.qpn != b.qpn]
    post_ns = median(call.took_ns for call in posts) - own_ns
    return post_ns, max(median(gaps), 0.0), in_post * 2 > len(made)


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
    path = folder / f"here-{found.mover}.toml"
    path.write_text(found.to_toml(time.strftime("%Y-%m-%d")), encoding="utf-8")
    return path
