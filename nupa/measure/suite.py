# SPDX-License-Identifier: BSD-3-Clause
"""The steps of `nupa demo`, their options and their time limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from nupa.base.progress import Progress
from nupa.base.quantity import say_bytes
from nupa.measure import elsewhere, perf, raw, transfer, versus
from nupa.measure.control import FileOperation, TransferError
from nupa.measure.perf import PerfError
from nupa.measure.results import Results
from nupa.measure.versus import NetworkError
from nupa.programs import fio, perftest
from nupa.programs.fio import FioError
from nupa.programs.pair import PairResult, ProgramError, ProgramPair, free_port
from nupa.programs.perftest import Kind, Operation, PerftestError

Part = Literal["files", "sizes", "fio"]

_FAILURES = (ProgramError, PerftestError, PerfError, TransferError, FioError, NetworkError)
_RUN_MAX_S = 15.0  # a longer run has hung
_MIB = 1 << 20
_ATOMIC_SIZE = 8  # bytes; there is no other


@dataclass(frozen=True)
class DemoPlan:
    """The steps of a demo.

    perftest takes half a second for each size, because it calibrates the CPU's clock at both ends.
    So sizes are few, and -a (23 sizes) is not used.
    """

    latency: tuple[Operation, ...]
    bandwidth: tuple[Operation, ...]
    sizes: tuple[int, ...]  # bytes
    latency_iterations: int  # at most, and so many bytes at most:
    latency_bytes: int
    bandwidth_iterations: int
    bandwidth_bytes: int
    tcp_seconds: float
    file_bytes: int
    fio_blocks: tuple[int, ...]  # bytes
    fio_depths: tuple[int, ...]  # blocks outstanding
    fio_seconds: float
    budget_s: float  # steps that would start later are left out
    parts: tuple[Part, ...] = get_args(Part)

    def only(self, part: Part) -> DemoPlan:
        """Returns the plan of this part alone; for fio, with all blocks and depths."""
        plan = replace(self, parts=(part,))
        if part != "fio" or self is QUICK:
            return plan
        return replace(plan, fio_blocks=_FIO_BLOCKS, fio_depths=_FIO_DEPTHS)

    @property
    def steps(self) -> int:
        """How many times `Progress.step` is called."""
        return (
            ("files" in self.parts) * len(transfer.OPERATIONS)
            + ("sizes" in self.parts) * (1 + len(self.latency) + len(self.bandwidth))
            + ("fio" in self.parts)
        )

    @property
    def programs(self) -> list[str]:
        return [perftest.program(operation, "lat") for operation in self.latency] + [
            perftest.program(operation, "bw") for operation in self.bandwidth
        ]

    def iterations(self, kind: Kind, size: int) -> int:
        """Returns many for small messages, few for large ones, at least 32."""
        if kind == "lat":
            most, most_bytes = self.latency_iterations, self.latency_bytes
        else:
            most, most_bytes = self.bandwidth_iterations, self.bandwidth_bytes
        return max(32, min(most, most_bytes // size))


_FIO_BLOCKS = (4096, 1 << 14, 1 << 16, 1 << 18, _MIB)
_FIO_DEPTHS = (1, 8, 32)
# The rdma engine sleeps for 0.5 s after it connected.
_FIO_RAMP_S = 0.6

FULL = DemoPlan(
    latency=("send", "write", "read", "atomic"),
    bandwidth=("send", "write", "read"),
    sizes=(8, 64, 4096, 1 << 16, _MIB, 8 * _MIB),
    latency_iterations=5000,
    latency_bytes=256 * _MIB,
    bandwidth_iterations=100_000,
    bandwidth_bytes=1024 * _MIB,
    tcp_seconds=2.0,
    file_bytes=64 * _MIB,
    fio_blocks=(4096, 1 << 16, _MIB),
    fio_depths=(1, 32),
    fio_seconds=0.5,
    budget_s=56.0,
)
QUICK = DemoPlan(
    latency=("send",),
    bandwidth=("write",),
    sizes=(8, 4096, _MIB),
    latency_iterations=1000,
    latency_bytes=64 * _MIB,
    bandwidth_iterations=10_000,
    bandwidth_bytes=256 * _MIB,
    tcp_seconds=0.5,
    file_bytes=8 * _MIB,
    fio_blocks=(4096, _MIB),
    fio_depths=(32,),
    fio_seconds=0.4,
    budget_s=25.0,
)


class Suite:
    """Runs a plan between two hosts of a fabric; a step that fails does not stop the next.

    *movers* returns the movers in use now.  A channel begins with a mover that every process has,
    and takes a better one with the first region.  So the last answer in a step counts.
    """

    def __init__(
        self,
        plan: DemoPlan,
        progress: Progress,
        *,
        fabric: str,
        hosts: tuple[str, str] = ("host0", "host1"),
        mover: str | None = None,
        cpus: tuple[int, int] | None = None,
        directory: Path,
        movers: Callable[[], set[str]] = set,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._fabric = fabric
        self._mover = mover
        self._cpus = cpus
        self._directory = directory
        self._movers = movers
        self._clock = clock
        self._start_s = clock()
        self._seen: set[str] = set()  # in this step
        self._seen_before: set[str] = set()
        self.results = Results(hosts=hosts, mover=mover or "")

    def run(self) -> Results:
        # TCP is first: the files of a later step keep the kernel busy for a while.
        if "sizes" in self._plan.parts:
            self._step("TCP on loopback", self._tcp)
        if "fio" in self._plan.parts:
            self._step("RDMA and TCP by fio", self._fio)
        if "files" in self._plan.parts:
            for carrier in transfer.OPERATIONS:
                label = f"file of {self._plan.file_bytes // _MIB} MiB by {carrier.upper()}"
                self._step(label, partial(self._transfer, carrier))
        if "sizes" in self._plan.parts:
            self._all_sizes()
        self.results.elsewhere = elsewhere.predict(
            self.results.latency, own_loops=self.results.programs != "perftest"
        )
        self.results.elapsed_s = self._clock() - self._start_s
        return self.results

    def _all_sizes(self) -> None:
        missing = perftest.missing(self._plan.programs)
        if missing:
            self.results.programs = "nupa perf"
            self.results.notes.append(
                f"{perftest.INSTALL_HINT}; without it ({', '.join(missing)} not found) "
                "sizes are measured by `nupa perf`"
            )
        for operation in self._plan.latency:
            self._sizes(operation, "lat", own=bool(missing))
        for operation in self._plan.bandwidth:
            self._sizes(operation, "bw", own=bool(missing))

    def _step(self, label: str, action: Callable[[], None]) -> None:
        def in_time() -> None:
            if self._has_time(label):
                action()

        self.results.attempt(self._progress, label, in_time, _FAILURES)
        self._seen_before |= self._seen
        self._seen = set()
        if not self._mover:
            self.results.mover = ", ".join(sorted(self._seen_before))

    def _has_time(self, what: str) -> bool:
        """Returns False, and adds a note, once the budget is used up."""
        if self._clock() - self._start_s < self._plan.budget_s:
            return True
        self.results.notes.append(
            f"{what} is left out: the {self._plan.budget_s:g} s for all steps are over"
        )
        return False

    def _pair(self, server: list[str], client: list[str], port: int) -> PairResult:
        pair = ProgramPair(
            server,
            client,
            fabric=self._fabric,
            mover=self._mover,
            hosts=self.results.hosts,
            cpus=self._cpus,
            port=port,
            deadline_s=_RUN_MAX_S,
            tick=self._tick,
        )
        return pair.run().check()

    def _tick(self, seconds: float) -> None:
        """Notes the movers while programs run; channels disappear with their processes."""
        self._progress.tick(seconds)
        self._seen = self._movers() or self._seen

    def _sizes(self, operation: Operation, kind: Kind, *, own: bool) -> None:
        """Measures one operation at each size, by perftest's program or, *own*, by `nupa perf`."""
        name = f"nupa perf {operation} {kind}" if own else perftest.program(operation, kind)
        measure = self._perf if own else self._perftest
        rows: dict[Operation, list[Any]]
        rows = self.results.latency if kind == "lat" else self.results.bandwidth

        def action() -> None:
            for size in (_ATOMIC_SIZE,) if operation == "atomic" else self._plan.sizes:
                label = f"{name}, {say_bytes(size, ' ')}"
                self._progress.detail(label)
                if not self._has_time(label):
                    return
                rows.setdefault(operation, []).extend(measure(operation, kind, size))

        self._step(name, action)

    def _perftest(self, operation: Operation, kind: Kind, size: int) -> Sequence[Any]:
        # The atomic programs refuse -s.
        options = [] if operation == "atomic" else ["-s", str(size)]
        options += ["-n", str(self._plan.iterations(kind, size))]
        port = free_port()
        name = perftest.program(operation, kind)
        text = self._pair(*perftest.commands(name, port, options), port).client.stdout
        return perftest.parse_latency(text) if kind == "lat" else perftest.parse_bandwidth(text)

    def _perf(self, operation: Operation, kind: Kind, size: int) -> Sequence[Any]:
        count = self._plan.iterations(kind, size)
        report = perf.measure(
            perf.make_job(operation, kind, size=size, iterations=count),
            fabric=self._fabric,
            hosts=self.results.hosts,
            mover=self._mover,
            cpus=self._cpus,
            deadline_s=_RUN_MAX_S,
            tick=self._tick,
        )
        return perf.latencies(report) if kind == "lat" else perf.bandwidths(report)

    def _tcp(self) -> None:
        if self._cpus is None:
            self.results.notes.append("one CPU: TCP is not measured, it needs two to compare")
            return
        self.results.tcp = raw.tcp(
            self._plan.sizes, cpus=self._cpus, seconds=self._plan.tcp_seconds
        )

    def _transfer(self, operation: FileOperation) -> None:
        port = free_port()
        job = transfer.TransferJob(operation, self._plan.file_bytes, self._directory, port)
        job.make_file()
        try:
            pair = self._pair(job.command("server"), job.command("client"), port)
        finally:
            job.remove_files()
        self.results.transfers.append(job.result(pair))

    def _fio(self) -> None:
        """Measures each block at each depth by both in turn, under the same load."""
        if fio.missing():
            self._no_fio(fio.INSTALL_HINT)
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(versus.network(self._fabric))
            except NetworkError as error:
                self._no_fio(str(error))
                return
            hosts = versus.host_pair(self._fabric, self.results.hosts, self._mover)
            for block_bytes in self._plan.fio_blocks:
                for depth in self._plan.fio_depths:
                    label = f"fio, {depth} x {say_bytes(block_bytes, ' ')}"
                    self._progress.detail(label)
                    if not self._has_time(label):
                        return
                    self.results.contests.append(self._comparison(hosts, block_bytes, depth))

    def _no_fio(self, reason: str) -> None:
        self.results.notes.append(f"RDMA is not compared with TCP by fio: {reason}")

    def _comparison(
        self, hosts: versus.HostPair, block_bytes: int, depth: int
    ) -> versus.RateComparison:
        def rate(carrier: fio.Carrier) -> fio.Rate:
            job = fio.Job(
                carrier, block_bytes, depth, hosts.address, _FIO_RAMP_S, self._plan.fio_seconds
            )
            # Only RDMA has a mover.
            tick = self._tick if carrier == "rdma" else self._progress.tick
            return versus.run(job, hosts, deadline_s=_RUN_MAX_S, tick=tick)

        return versus.RateComparison(block_bytes, depth, rdma=rate("rdma"), tcp=rate("tcp"))
