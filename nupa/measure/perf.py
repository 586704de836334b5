# SPDX-License-Identifier: BSD-3-Clause
"""`nupa perf`: latency and bandwidth of one operation between two hosts, by loops in C.

A PerfJob says what to measure.  `measure` starts the two ends (nupa.measure.perf_end), awaits them
and returns what they measured.  Definitions are perftest's.  Latency is half a round trip for WRITE
and SEND, the whole operation for READ and ATOMIC.  Bandwidth has *depth* operations outstanding.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from nupa.base.errors import LocalError, NupaError
from nupa.base.quantity import say_bytes
from nupa.fabric import Fabric
from nupa.measure.text import UNICODE, ReportGlyphs, format_number, table
from nupa.programs.pair import PairResult, ProgramPair
from nupa.programs.perftest import Bandwidth, Kind, Latency, Operation

QpType = Literal["RC", "UC", "UD"]
Role = Literal["active", "passive"]

OPERATIONS: tuple[Operation, ...] = ("write", "read", "send", "atomic")
KINDS: tuple[Kind, ...] = ("lat", "bw")
#: Where each type of QP has the operation: IBTA table 38.
QP_TYPES: dict[Operation, tuple[QpType, ...]] = {
    "write": ("RC", "UC"),
    "read": ("RC",),
    "send": ("RC", "UC", "UD"),
    "atomic": ("RC",),
}

SIZE_MAX_BYTES = 64 << 20
DATAGRAM_MAX_BYTES = 4096  # the MTU
ATOMIC_BYTES = 8
ITERATIONS_MAX = 10_000_000
DEPTH_MAX = 16_384  # work requests
DEPTH = 128  # work requests, as perftest's --tx-depth
_SWEEP_MAX_BYTES = 8 << 20
_DEFAULT_BYTES: dict[Kind, int] = {"lat": 8, "bw": 65536}
# Many of small messages, few of large ones: at most so many, and so many bytes.
_ITERATIONS: dict[Kind, int] = {"lat": 20_000, "bw": 200_000}
_BYTES: dict[Kind, int] = {"lat": 256 << 20, "bw": 1 << 30}
_ITERATIONS_MIN = 32

STALL_S = 5.0  #: an end gives up after so long without progress
LIMIT_S = 120.0  #: for one size
_START_S = 30.0  # for both ends to start, connect and end
_GRACE_S = 2.0  # for one end, once the other has failed


class PerfUsageError(LocalError):
    """The request cannot be measured; the message says what can."""


class PerfError(NupaError):
    """An end failed; the message names it and quotes it."""


@dataclass(frozen=True)
class PerfJob:
    """A request.  runs: (size in bytes, iterations), one after the other."""

    operation: Operation
    kind: Kind
    runs: tuple[tuple[int, int], ...]
    qp_type: QpType = "RC"
    depth: int = DEPTH
    stall_s: float = STALL_S
    limit_s: float = LIMIT_S

    @property
    def trips(self) -> int:
        """The divisor of the time between two operations."""
        return 2 if self.operation in ("write", "send") else 1


@dataclass(frozen=True)
class Measured:
    """The outcome of a job.  results: one object for each size, units in their names."""

    job: PerfJob
    fabric: str
    hosts: tuple[str, str]  #: the active end, the passive end
    cpus: tuple[int, int] | None
    mover: str
    results: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "operation": self.job.operation,
            "kind": self.job.kind,
            "qp_type": self.job.qp_type,
            "depth": depth_of(self.job),
            "fabric": self.fabric,
            "hosts": list(self.hosts),
            "cpus": None if self.cpus is None else list(self.cpus),
            "mover": self.mover,
            "results": list(self.results),
        }


def depth_of(job: PerfJob) -> int:
    """Operations outstanding: one where latency is measured."""
    return job.depth if job.kind == "bw" else 1


def default_iterations(kind: Kind, size_bytes: int) -> int:
    return max(_ITERATIONS_MIN, min(_ITERATIONS[kind], _BYTES[kind] // size_bytes))


def make_job(
    operation: Operation,
    kind: Kind,
    *,
    size: int | Literal["all"] | None = None,
    iterations: int | None = None,
    qp_type: QpType = "RC",
    depth: int | None = None,
) -> PerfJob:
    """Returns a job, with defaults for what is None.  PerfUsageError: it cannot be measured."""
    if qp_type not in QP_TYPES[operation]:
        raise PerfUsageError(
            f"a {qp_type} queue pair has no {operation}: use --qp-type "
            + " or ".join(QP_TYPES[operation])
        )
    if depth is not None and kind == "lat":
        raise PerfUsageError("--depth is for bw: latency is of one operation at a time")
    if iterations is not None:
        _within("--iterations", iterations, ITERATIONS_MAX, "")
    if depth is not None:
        _within("--depth", depth, DEPTH_MAX, " work requests")
    sizes = _sizes(operation, kind, size, qp_type)
    runs = tuple((size, iterations or default_iterations(kind, size)) for size in sizes)
    return PerfJob(operation, kind, runs, qp_type, depth or DEPTH)


def _sizes(
    operation: Operation, kind: Kind, size: int | Literal["all"] | None, qp_type: QpType
) -> list[int]:
    if operation == "atomic":
        if size not in (None, "all", ATOMIC_BYTES):
            raise PerfUsageError(f"--size {size}: an atomic has {ATOMIC_BYTES} bytes")
        return [ATOMIC_BYTES]
    most = DATAGRAM_MAX_BYTES if qp_type == "UD" else SIZE_MAX_BYTES
    if size is None:
        return [min(_DEFAULT_BYTES[kind], most)]
    if size == "all":
        last = min(_SWEEP_MAX_BYTES, most).bit_length()
        return [1 << power for power in range(last)]
    _within("--size", size, most, " bytes" + (", the MTU of a datagram" if qp_type == "UD" else ""))
    return [size]


def _within(name: str, value: int, most: int, unit: str) -> None:
    if not 1 <= value <= most:
        raise PerfUsageError(f"{name} {value}: choose 1 to {most}{unit}")


def choose_hosts(fabric: Fabric, asked: tuple[str, str] | None) -> tuple[str, str]:
    """Returns the names of two hosts.  LocalError: a host is missing, or there is only one."""
    if asked is not None:
        return fabric.host(asked[0]).name, fabric.host(asked[1]).name
    names = [host.name for host in fabric.hosts[:2]]
    if len(names) < 2:
        raise LocalError(
            f"the fabric {fabric.name!r} has one host, {names[0]}: two are needed, "
            f"or --hosts {names[0]},{names[0]}"
        )
    return names[0], names[1]


def measure(
    job: PerfJob,
    *,
    fabric: str,
    hosts: tuple[str, str] = ("host0", "host1"),
    mover: str | None = None,
    cpus: tuple[int, int] | None = None,
    deadline_s: float | None = None,
    tick: Callable[[float], None] | None = None,
) -> Measured:
    """Runs both ends, the active one on hosts[0] and cpus[0].  PerfError if one fails.

    *deadline_s* is for all of it; *tick* as for ProgramPair.
    """
    # The ends talk through a socket pair: when one dies, the other reads end of file.
    ours = socket.socketpair()
    with ours[0] as to_passive, ours[1] as to_active:
        pair = ProgramPair(
            _command(job, "passive", fabric, hosts[1], mover, to_passive.fileno()),
            _command(job, "active", fabric, hosts[0], mover, to_active.fileno()),
            fds=(to_passive.fileno(), to_active.fileno()),
            cpus=None if cpus is None else (cpus[1], cpus[0]),
            deadline_s=deadline_s or _START_S + job.limit_s * len(job.runs),
            grace_s=_GRACE_S,
            tick=tick,
        )
        with pair:
            pair.start_server()
            pair.start_client()
            to_passive.close()
            to_active.close()
            result = pair.wait()
    if not (result.client.ok and result.server.ok):
        raise PerfError(failure(job, result, hosts))
    said = json.loads(result.client.stdout)
    return Measured(job, fabric, hosts, cpus, said["mover"], tuple(said["results"]))


def _command(
    job: PerfJob, role: Role, fabric: str, host: str, mover: str | None, fd: int
) -> list[str]:
    argv = [sys.executable, "-P", "-m", "nupa.measure.perf_end", role, "--fd", str(fd)]
    argv += ["--fabric", fabric, "--host", host, "--job", json.dumps(asdict(job))]
    return [*argv, "--mover", mover] if mover else argv


def failure(job: PerfJob, result: PairResult, hosts: tuple[str, str]) -> str:
    """Returns one line: ends by a signal come first, then those with a reason, then the killed."""
    ends = [(hosts[0], result.client), (hosts[1], result.server)]
    ends.sort(key=lambda end: (bool(end[1].killed), end[1].returncode >= 0))
    said = "; ".join(f"{host}: {outcome.reason}" for host, outcome in ends if not outcome.ok)
    return f"{job.operation} {job.kind} failed: {said}"


def from_json(text: str) -> PerfJob:
    """Reverses json.dumps(asdict(job))."""
    values = json.loads(text)
    return PerfJob(**{**values, "runs": tuple((size, count) for size, count in values["runs"])})


def latencies(report: Measured) -> list[Latency]:
    """Converts to the form of perftest's latencies."""
    return [
        Latency(
            size_bytes=row["size_bytes"],
            iterations=row["iterations"],
            typical_us=row["latency_typical_us"],
            min_us=row["latency_min_us"],
            mean_us=row["latency_mean_us"],
            p99_us=row["latency_p99_us"],
        )
        for row in report.results
    ]


def bandwidths(report: Measured) -> list[Bandwidth]:
    """Converts to the form of perftest's bandwidths."""
    return [
        Bandwidth(
            size_bytes=row["size_bytes"],
            iterations=row["iterations"],
            peak_bytes_per_s=0.0,
            mean_bytes_per_s=row["bandwidth_mb_per_s"] * 1e6,
            messages_per_s=row["message_rate_m_per_s"] * 1e6,
        )
        for row in report.results
    ]


def render(report: Measured, glyphs: ReportGlyphs = UNICODE) -> str:
    """Returns a title, a table, and a line that names hosts, CPUs and mover."""
    job = report.job
    name = f"{job.operation.upper()} over {job.qp_type}"
    if job.kind == "lat":
        what = "half a round trip" if job.trips == 2 else "there and back"
        micro = "µs" if glyphs is UNICODE else "us"
        title = f"Latency of {name}, {micro} ({what}; typical is the median)"
        headings = ["typical", "min", "mean", "p99", "p99.9", "max"]
        names = [f"latency_{h.replace('.', '_')}_us" for h in headings]
    else:
        title = f"Bandwidth of {name}, {job.depth} outstanding (1 MB = 10^6 bytes)"
        headings = ["MB/s", "M messages/s"]
        names = ["bandwidth_mb_per_s", "message_rate_m_per_s"]
    rows: list[Sequence[str]] = [
        [
            say_bytes(row["size_bytes"], " "),
            str(row["iterations"]),
            *(format_number(row[name]) for name in names),
        ]
        for row in report.results
    ]
    on = "" if report.cpus is None else " on CPUs {} and {}".format(*report.cpus)
    where = f"{report.hosts[0]} to {report.hosts[1]}{on}, mover {report.mover}"
    return "\n".join([title, table(["size", "iterations", *headings], rows), where])
