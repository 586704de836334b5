# SPDX-License-Identifier: BSD-3-Clause
"""`nupa perf allreduce` and other collectives: nccl-tests' measurements and columns.

A CollectiveJob says what to measure.  `measure` starts a process for each rank
(nupa.measure.collective_rank), awaits them and returns what rank 0 found.  Definitions are
nccl-tests': the time of one call is the mean of all ranks; algbw is size over time; busbw is what
a link carries, if the algorithm is a ring; #wrong counts elements of all ranks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from nupa.base.errors import LocalError
from nupa.collectives.communicator import ALGORITHMS, OVERS, Algorithm, Over
from nupa.collectives.elements import numpy
from nupa.collectives.rank import RANKS_MAX
from nupa.fabric import Fabric
from nupa.measure.perf import ITERATIONS_MAX, SIZE_MAX_BYTES, PerfError, PerfUsageError
from nupa.memory import reduction
from nupa.programs.pair import Program, ProgramOutcome, await_end

Collective = Literal["allreduce", "reducescatter", "allgather", "broadcast", "barrier"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
REDUCING = ("allreduce", "reducescatter")
#: nccl-tests' names; others are ours.
TYPE_NAMES = {
    "f16": "half",
    "bf16": "bfloat16",
    "f32": "float",
    "f64": "double",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
}
REDOP_NAMES = {"add": "sum"}

_SWEEP_MIN_BYTES = 8
_SWEEP_MAX_BYTES = 4 << 20
_SIZE_BYTES = 1 << 20
_ITERATIONS = 100
_BYTES = 256 << 20  # of all iterations of one size, about
_ITERATIONS_MIN = 5
_DEADLINE_S = 120.0
_GRACE_S = 5.0
_TICK_S = 0.1


@dataclass(frozen=True)
class CollectiveJob:
    """A request.  runs: (size in bytes, iterations), one after the other."""

    operation: Collective
    ranks: int
    runs: tuple[tuple[int, int], ...]
    type_: str = "f32"
    redop: str = "add"
    root: int = 0
    algorithm: Algorithm | None = None
    over: Over = "verbs"
    deadline_s: float = 30.0


@dataclass(frozen=True)
class CollectiveReport:
    """What was measured.  results: one object for each size, units in their names."""

    job: CollectiveJob
    fabric: str
    hosts: tuple[str, ...]
    results: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        job = self.job
        return {
            "operation": job.operation,
            "ranks": job.ranks,
            "type": job.type_,
            "redop": job.redop if job.operation in REDUCING else None,
            "root": job.root if job.operation == "broadcast" else None,
            "over": job.over,
            "fabric": self.fabric,
            "hosts": list(self.hosts),
            "results": list(self.results),
        }


def make_job(
    operation: Collective,
    *,
    ranks: int | None = None,
    size: int | Literal["all"] | None = None,
    iterations: int | None = None,
    type_: str | None = None,
    redop: str | None = None,
    root: int | None = None,
    algorithm: str | None = None,
    over: str | None = None,
) -> CollectiveJob:
    """Returns a job, with defaults for what is None.  PerfUsageError: it cannot be measured."""
    ranks = 2 if ranks is None else ranks
    type_, redop = type_ or "f32", redop or "add"
    if not 1 <= ranks <= RANKS_MAX:
        raise PerfUsageError(f"--ranks {ranks}: choose 1 to {RANKS_MAX}")
    if root is not None and not 0 <= root < ranks:
        raise PerfUsageError(f"--root {root}: ranks are 0 to {ranks - 1}")
    if iterations is not None and not 1 <= iterations <= ITERATIONS_MAX:
        raise PerfUsageError(f"--iterations {iterations}: choose 1 to {ITERATIONS_MAX}")
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise PerfUsageError(f"--algorithm {algorithm}: choose {', '.join(ALGORITHMS)}")
    if over is not None and over not in OVERS:
        raise PerfUsageError(f"--over {over}: choose {' or '.join(OVERS)}")
    try:
        reduction.numbers(type_, redop)
    except LocalError as error:
        raise PerfUsageError(str(error)) from None
    sizes = [0] if operation == "barrier" else _sizes(size)
    runs = tuple((each, iterations or _iterations(each)) for each in sizes)
    return CollectiveJob(
        operation, ranks, runs, type_, redop, root or 0, algorithm or None, over or "verbs"
    )


def _sizes(size: int | Literal["all"] | None) -> list[int]:
    if size == "all":
        first, last = _SWEEP_MIN_BYTES.bit_length() - 1, _SWEEP_MAX_BYTES.bit_length()
        return [1 << power for power in range(first, last)]
    if size is None:
        return [_SIZE_BYTES]
    if not 0 <= size <= SIZE_MAX_BYTES:
        raise PerfUsageError(f"--size {size}: choose 0 to {SIZE_MAX_BYTES} bytes")
    return [size]


def _iterations(size_bytes: int) -> int:
    return max(_ITERATIONS_MIN, min(_ITERATIONS, _BYTES // max(1, size_bytes)))


def counts(job: CollectiveJob, size_bytes: int) -> tuple[int, int]:
    """Returns the elements that a rank gives, and those that it gets.

    *size_bytes* is what the larger of the two has, rounded down to whole elements of all ranks.
    """
    elements = size_bytes // reduction.bytes_of(job.type_)
    each = elements // job.ranks
    if job.operation == "reducescatter":
        return each * job.ranks, each
    if job.operation == "allgather":
        return each, each * job.ranks
    return elements, elements


def bus_factor(operation: Collective, ranks: int) -> float:
    """Returns busbw over algbw (nccl-tests, PERFORMANCE.md)."""
    if operation == "allreduce":
        return 2 * (ranks - 1) / ranks
    if operation in ("reducescatter", "allgather"):
        return (ranks - 1) / ranks
    return 1.0


def row(
    job: CollectiveJob, size_bytes: int, iterations: int, found: dict[str, Any]
) -> dict[str, Any]:
    """Returns the result of one size, from times in microseconds and counts of wrong elements.

    `measure` adds the prediction.
    """
    given, got = counts(job, size_bytes)
    moved = max(given, got) * reduction.bytes_of(job.type_)
    result: dict[str, Any] = {
        "size_bytes": moved,
        "count": min(given, got),
        "iterations": iterations,
        "algorithm": found["algorithm"],
    }
    for place in ("out_of_place", "in_place"):
        time_us = found[place]["time_us"]
        rate = moved / time_us / 1e3 if time_us else 0.0
        result[place] = {
            "time_us": time_us,
            "algbw_gb_per_s": rate,
            "busbw_gb_per_s": rate * bus_factor(job.operation, job.ranks),
            "wrong": found[place]["wrong"],
        }
    return result


def predicted_us(job: CollectiveJob, size_bytes: int, algorithm: str) -> float | None:
    """Returns what the performance model predicts for the messages, on this machine.

    None: their mover was not measured (`nupa model calibrate`), or switches execute the algorithm.
    """
    # Imported here: the ranks do without the model.
    from nupa.measure import collective_model
    from nupa.model.errors import ModelError

    try:
        return collective_model.predicted_us(
            job.operation,
            algorithm,
            job.ranks,
            size_bytes,
            each=reduction.bytes_of(job.type_),
            root=job.root,
            over=job.over,
        )
    except ModelError:
        return None


def choose_hosts(fabric: Fabric, ranks: int, asked: Sequence[str] | None = None) -> tuple[str, ...]:
    """Returns the host of each rank: those asked for in turn, else all in turn."""
    names = [fabric.host(name).name for name in asked or [host.name for host in fabric.hosts]]
    return tuple(names[rank % len(names)] for rank in range(ranks))


def measure(
    job: CollectiveJob,
    *,
    fabric: str,
    hosts: Sequence[str],
    deadline_s: float = _DEADLINE_S,
    tick: Callable[[float], None] | None = None,
) -> CollectiveReport:
    """Runs a process for each rank.  PerfError: one fails; LocalError: no NumPy.

    *tick* is called about ten times a second with 0.
    """
    numpy()
    name = f"perf {os.getpid()}"
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(Program(_command(job, fabric, host, name, rank)))
            for rank, host in enumerate(hosts)
        ]
        outcomes = _await(ranks, deadline_s, tick)
    bad = [(rank, outcome) for rank, outcome in enumerate(outcomes) if not outcome.ok]
    if bad:
        # A rank that was ended is the cause; what the others say is its consequence.
        bad.sort(key=lambda each: (bool(each[1].killed), each[1].returncode >= 0))
        rank, outcome = bad[0]
        raise PerfError(f"{job.operation} failed: rank {rank} on {hosts[rank]}: {outcome.reason}")
    results = json.loads(outcomes[0].stdout)
    for each in results:
        each["predicted_us"] = predicted_us(job, each["size_bytes"], each["algorithm"])
    return CollectiveReport(job, fabric, tuple(hosts), tuple(results))


def _command(job: CollectiveJob, fabric: str, host: str, name: str, rank: int) -> list[str]:
    argv = [sys.executable, "-P", "-m", "nupa.measure.collective_rank", "--rank", str(rank)]
    argv += ["--name", name, "--fabric", fabric, "--host", host]
    return [*argv, "--job", json.dumps(asdict(job))]


def _await(
    ranks: Sequence[Program], deadline_s: float, tick: Callable[[float], None] | None
) -> list[ProgramOutcome]:
    """Waits for all; the others have a little time when one has failed, and are killed then."""
    ticks_left = int(deadline_s / _TICK_S)
    while running := [program for program in ranks if program.running]:
        if any(program.failed for program in ranks):
            ticks_left = min(ticks_left, int(_GRACE_S / _TICK_S))
        if ticks_left <= 0:
            for program in running:
                program.kill("was killed: not done in time")
        if not await_end(running, _TICK_S):
            ticks_left -= 1
        if tick is not None:
            tick(0.0)
    return [program.outcome() for program in ranks]


def from_json(text: str) -> CollectiveJob:
    """Reverses json.dumps(asdict(job))."""
    values = json.loads(text)
    return CollectiveJob(**{**values, "runs": tuple(map(tuple, values["runs"]))})


_HEAD = (
    f"#{'':60}{'out-of-place':^32}{'in-place':^32}",
    f"#{'size':>11}{'count':>13}{'type':>10}{'redop':>8}{'root':>6}{'algorithm':>12}"
    + 2 * f"{'time':>9}{'algbw':>8}{'busbw':>8}{'#wrong':>7}",
    f"#{'(B)':>11}{'(elements)':>13}{'':36}" + 2 * f"{'(us)':>9}{'(GB/s)':>8}{'(GB/s)':>8}{'':7}",
)


def render(report: CollectiveReport) -> str:
    """Returns nccl-tests' table, with the algorithm, and the prediction where there is one."""
    job = report.job
    redop = REDOP_NAMES.get(job.redop, job.redop) if job.operation in REDUCING else "none"
    root = job.root if job.operation == "broadcast" else -1
    predicted = any(each["predicted_us"] is not None for each in report.results)
    extra = [f"{'model':>9}", f"{'time':>9}", f"{'(us)':>9}"] if predicted else ["", "", ""]
    lines = [
        f"# {job.operation} of {job.ranks} ranks over {job.over}, fabric {report.fabric}",
        *(head + more for head, more in zip(_HEAD, extra, strict=True)),
    ]
    for each in report.results:
        line = f"{each['size_bytes']:>12}{each['count']:>13}{TYPE_NAMES[job.type_]:>10}"
        line += f"{redop:>8}{root:>6}{each['algorithm']:>12}"
        for place in (each["out_of_place"], each["in_place"]):
            line += f" {_time(place['time_us'])}{place['algbw_gb_per_s']:>8.2f}"
            line += f"{place['busbw_gb_per_s']:>8.2f}{place['wrong']:>7}"
        if predicted:
            line += f" {_time(each['predicted_us'])}"
        lines.append(line)
    places = [each[place] for each in report.results for place in ("out_of_place", "in_place")]
    wrong = sum(place["wrong"] for place in places)
    mean = sum(place["busbw_gb_per_s"] for place in places) / len(places)
    lines.append(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    lines.append(f"# Avg bus bandwidth    : {mean:.4g}")
    if predicted:
        lines.append("# Model: the messages alone, as calibrated; ranks' own Python is beside it")
    return "\n".join(lines)


def _time(time_us: float | None) -> str:
    """Returns eight characters, with as many decimals as there is room for, up to two."""
    if time_us is None:
        return f"{'-':>8}"
    return f"{time_us:>8.{max(0, min(2, 7 - len(str(int(time_us)))))}f}"
