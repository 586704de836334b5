# SPDX-License-Identifier: BSD-3-Clause
"""Programs that are recorded here and replayed on `here`: how long one of their steps takes.

A step is a message, or an all-reduce.  Its measured time is the program's own figure, unrecorded:
the median of a program of latency, the mean of a program of bandwidth.  The predicted time is the
same of the replay: from one step's first post to the next one's.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from nupa.measure import transfer, versus
from nupa.measure.control import FileOperation
from nupa.model.engine.replay import network_for
from nupa.model.engine.timeline import Timeline
from nupa.model.formats.read import read
from nupa.model.work.schedule import Schedule
from nupa.programs import fio, perftest
from nupa.programs.pair import ProgramError, ProgramPair, free_port, nupa_run, run
from nupa.programs.perftest import Kind, Operation

RECORD = "NUPA_RECORD"
_HOSTS = ("host0", "host1")
_FIO_RAMP_S = 0.6
_FIO_S = 0.4
_MPI_COUNT = 400
_MPI_WARM_COUNT = 8_000  # UCX's 4,095 receives have all been used before the half of them
_SOURCE = Path(__file__).with_name("allreduce.c")


@dataclass(frozen=True)
class Place:
    """A fabric, two CPUs, and the mover of the programs; None: the best."""

    fabric: str
    cpus: tuple[int, int]
    mover: str | None


@dataclass(frozen=True)
class RecordedProgram:
    """A program.  *run* returns its own figure, in ns; *steps* is how many steps it has; 0: many.

    *typical*: the figure is a median.  *bytes*: of the messages that steps begin with; 0: those of
    which there are most.
    """

    group: Literal["perftest", "nupa demo", "MPI all-reduce", "fio"]
    name: str
    run: Callable[[Place], float]
    typical: bool
    bytes: int
    steps: int = 0


def measured_ns(program: RecordedProgram, place: Place) -> float:
    """Returns the program's own figure.  ProgramError: it failed."""
    return program.run(place)


def predicted_ns(program: RecordedProgram, place: Place) -> float:
    """Runs it once more, recorded, and returns the figure of its replay on `here`."""
    with tempfile.TemporaryDirectory(prefix="nupa-replay-") as folder:
        with _recorded(folder):
            program.run(place)
        schedule = read(folder)
    timeline = Timeline(schedule, network_for(schedule, "here"))
    timeline.run()
    return _step_ns(program, schedule, timeline)


def _step_ns(program: RecordedProgram, schedule: Schedule, timeline: Timeline) -> float:
    """Returns the time of one step.  ProgramError: the recording has too few."""
    kinds = [
        (step.rank, step.operation, step.bytes)
        if step.rank != step.peer and program.bytes in (0, step.bytes)
        else None
        for step in schedule.steps
    ]
    most = Counter(kind for kind in kinds if kind).most_common(1)
    if not most or most[0][1] < 4:
        raise ProgramError(f"{program.name}: too few messages were recorded: {most}")
    begins = [timeline.start[i] for i, kind in enumerate(kinds) if kind == most[0][0]]
    each = max(round(len(begins) / program.steps), 1) if program.steps else 1
    begins = begins[::each]
    # What begins and ends the program is no step of its own.
    begins = begins[len(begins) // 4 : len(begins) - len(begins) // 8]
    if program.typical:
        return median(b - a for a, b in pairwise(begins))
    return (begins[-1] - begins[0]) / (len(begins) - 1)


@contextmanager
def _recorded(folder: str) -> Iterator[None]:
    os.environ[RECORD] = folder
    try:
        yield
    finally:
        del os.environ[RECORD]


# --- perftest ----------------------------------------------------------------------------


def perftest_program(
    operation: Operation, kind: Kind, size_bytes: int, count: int, group: str = "perftest"
) -> RecordedProgram:
    """Returns ib_OPERATION_KIND with messages of one size."""
    name = perftest.program(operation, kind)
    size = () if operation == "atomic" else ("-s", str(size_bytes))

    def figure_ns(place: Place) -> float:
        port = free_port()
        server, client = perftest.commands(name, port, (*size, "-n", str(count)))
        pair = ProgramPair(
            server,
            client,
            fabric=place.fabric,
            mover=place.mover,
            hosts=_HOSTS,
            cpus=place.cpus,
            port=port,
        )
        text = pair.run().check().client.stdout
        if kind == "lat":
            trips = 2 if operation in ("write", "send") else 1
            return perftest.parse_latency(text)[0].typical_us * trips * 1e3
        return 1e9 / perftest.parse_bandwidth(text)[0].messages_per_s

    what = f"{name} -s {size_bytes}" if size else name
    return RecordedProgram(
        "nupa demo" if group == "nupa demo" else "perftest",
        what,
        figure_ns,
        kind == "lat",
        size_bytes,
    )


# --- nupa demo: its own programs ---------------------------------------------------------


def transfer_program(operation: FileOperation, size_bytes: int) -> RecordedProgram:
    """Returns the demo's transfer of a file; a step is a chunk of 1 MiB."""
    chunks = size_bytes >> 20

    def figure_ns(place: Place) -> float:
        with tempfile.TemporaryDirectory(prefix="nupa-file-") as folder:
            job = transfer.TransferJob(operation, size_bytes, Path(folder), free_port())
            job.make_file()
            pair = ProgramPair(
                job.command("server"),
                job.command("client"),
                fabric=place.fabric,
                mover=place.mover,
                hosts=_HOSTS,
                cpus=place.cpus,
                port=job.port,
            )
            return job.result(pair.run().check()).seconds * 1e9 / chunks

    what = f"file by {operation.upper()}"
    return RecordedProgram("nupa demo", what, figure_ns, False, 1 << 20)


# --- MPI ---------------------------------------------------------------------------------


@cache
def _mpi_program(folder: str) -> str:
    path = str(Path(folder) / "allreduce")
    run(["mpicc", "-O2", "-o", path, str(_SOURCE)]).check()
    return path


def allreduce_program(size_bytes: int, folder: str, count: int = _MPI_COUNT) -> RecordedProgram:
    """Returns *count* all-reduces of two ranks by Open MPI over UCX.

    *folder* is for what is compiled.
    """

    def figure_ns(place: Place) -> float:
        command = ["mpirun", "-n", "2", "--map-by", "core", "--bind-to", "core"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        chosen = {"pml": "ucx", "osc": "ucx", "btl": "^openib"}
        for name, value in (*chosen.items(), ("btl_base_warn_component_unused", "0")):
            command += ["--mca", name, value]
        command += ["-x", "UCX_TLS=rc_v,self", "-x", "UCX_NET_DEVICES=nupa_rdma0:1"]
        rank = [_mpi_program(folder), str(size_bytes), str(count)]
        rank = nupa_run(rank, fabric=place.fabric, mover=place.mover)
        return float(run([*command, *rank], deadline_s=60.0).check().stdout)

    name = f"MPI_Allreduce {size_bytes}, {count} times"
    return RecordedProgram("MPI all-reduce", name, figure_ns, True, 0, count)


# --- fio ---------------------------------------------------------------------------------


def fio_program(block_bytes: int, depth: int) -> RecordedProgram:
    """Returns fio's rdma engine writing blocks, as `nupa demo` runs it."""

    def figure_ns(place: Place) -> float:
        hosts = versus.host_pair(place.fabric, _HOSTS, place.mover)
        job = fio.Job("rdma", block_bytes, depth, hosts.address, _FIO_RAMP_S, _FIO_S)
        try:
            return 1e9 / versus.run(job, hosts).operations_per_s
        except fio.FioError as error:
            raise ProgramError(str(error)) from error

    name = f"fio, {depth} blocks of {block_bytes}"
    return RecordedProgram("fio", name, figure_ns, False, block_bytes)


def programs(folder: str) -> Sequence[RecordedProgram]:
    """Returns all programs; *folder* is for what is compiled."""
    kib, mib = 1 << 10, 1 << 20
    return (
        perftest_program("write", "lat", 8, 20_000),
        perftest_program("write", "lat", 4 * kib, 10_000),
        perftest_program("write", "lat", 64 * kib, 2_000),
        perftest_program("send", "lat", 8, 20_000),
        perftest_program("send", "lat", 4 * kib, 10_000),
        perftest_program("send", "lat", 64 * kib, 2_000),
        perftest_program("read", "lat", 8, 20_000),
        perftest_program("read", "lat", 64 * kib, 2_000),
        perftest_program("write", "bw", 64 * kib, 5_000),
        perftest_program("send", "bw", 64 * kib, 5_000),
        perftest_program("send", "lat", 8, 1_000, "nupa demo"),
        perftest_program("send", "lat", 4 * kib, 1_000, "nupa demo"),
        perftest_program("write", "bw", 4 * kib, 10_000, "nupa demo"),
        perftest_program("write", "bw", mib, 256, "nupa demo"),
        transfer_program("write", 64 * mib),
        transfer_program("read", 64 * mib),
        *(allreduce_program(size, folder) for size in (8, 4 * kib, 64 * kib)),
        *(allreduce_program(size, folder, _MPI_WARM_COUNT) for size in (8, 4 * kib)),
        allreduce_program(64 * kib, folder, _MPI_WARM_COUNT // 4),
        *(fio_program(size, 32) for size in (4 * kib, 64 * kib, mib)),
    )


def mean_error(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns the mean of |predicted / measured - 1|."""
    return fmean(abs(predicted / measured - 1) for measured, predicted in pairs)


def to_json(rows: Sequence[tuple[RecordedProgram, str, float, float]]) -> str:
    """Returns the rows for scripts: times in ns."""
    return json.dumps(
        [
            {
                "group": program.group,
                "name": program.name,
                "mover": mover,
                "measured_ns": measured,
                "predicted_ns": predicted,
            }
            for program, mover, measured, predicted in rows
        ],
        indent=2,
    )
