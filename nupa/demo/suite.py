# SPDX-License-Identifier: BSD-3-Clause
"""The steps of a demo: what is run, with which options, within which time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nupa.demo import perftest, raw, transfer
from nupa.demo.control import FileOperation, TransferError
from nupa.demo.perftest import Kind, Operation, PerftestError
from nupa.demo.programs import PairResult, ProgramError, free_port, run_pair
from nupa.demo.progress import Progress
from nupa.demo.results import Results

_STEP_MAX_S = 20.0
_STEP_MIN_S = 1.0  # less is not worth a start
_MIB = 1 << 20


@dataclass(frozen=True)
class Plan:
    """What a demo runs.  perftest's -a is all powers of two from 2 B to 8 MiB."""

    latency: tuple[Operation, ...]
    bandwidth: tuple[Operation, ...]
    latency_iterations: int  # at each size
    bandwidth_iterations: int
    tcp_sizes: tuple[int, ...]
    tcp_seconds: float
    file_bytes: int
    budget_s: float

    @property
    def programs(self) -> list[str]:
        return [perftest.program(operation, "lat") for operation in self.latency] + [
            perftest.program(operation, "bw") for operation in self.bandwidth
        ]


FULL = Plan(
    latency=("send", "write", "read", "atomic"),
    bandwidth=("send", "write", "read"),
    latency_iterations=500,
    bandwidth_iterations=1000,
    tcp_sizes=tuple(2**i for i in range(1, 24)),
    tcp_seconds=3.0,
    file_bytes=64 * _MIB,
    budget_s=55.0,
)
QUICK = Plan(
    latency=("send",),
    bandwidth=("write",),
    latency_iterations=100,
    bandwidth_iterations=100,
    tcp_sizes=tuple(2**i for i in range(1, 24, 2)),
    tcp_seconds=1.0,
    file_bytes=8 * _MIB,
    budget_s=30.0,
)


class Suite:
    """Runs a plan between two hosts of a fabric; a step that fails does not stop the next.

    *movers* says which are in use now; it is asked until the first answer.
    """

    def __init__(
        self,
        plan: Plan,
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
        self.results = Results(hosts=hosts, mover=mover or "")

    @staticmethod
    def steps(plan: Plan) -> int:
        """How many times `Progress.step` is called."""
        return 1 + len(plan.latency) + len(plan.bandwidth) + len(transfer.OPERATIONS)

    def run(self) -> Results:
        missing = perftest.missing(self._plan.programs)
        if missing:
            self.results.notes.append(
                f"{perftest.INSTALL_HINT}; without it there is no table by size "
                f"({', '.join(missing)} not found)"
            )
        for carrier in transfer.OPERATIONS:
            label = f"file of {self._plan.file_bytes // _MIB} MiB by {carrier.upper()}"
            self._step(label, partial(self._transfer, carrier))
        self._step("TCP on loopback", self._tcp)
        if not missing:
            for operation in self._plan.latency:
                self._perftest(operation, "lat")
            for operation in self._plan.bandwidth:
                self._perftest(operation, "bw")
        self.results.elapsed_s = self._clock() - self._start_s
        return self.results

    def _step(self, label: str, action: Callable[[float], None]) -> None:
        """Runs one step with its deadline in seconds."""
        self._progress.step(label)
        left_s = self._plan.budget_s - (self._clock() - self._start_s)
        if left_s < _STEP_MIN_S:
            self.results.failures.append(
                f"{label}: not run, the {self._plan.budget_s:g} s for all steps are over"
            )
            return
        try:
            action(min(left_s, _STEP_MAX_S))
        except (ProgramError, PerftestError, TransferError) as error:
            self.results.failures.append(f"{label}: {error}")

    def _pair(
        self, server: list[str], client: list[str], port: int, deadline_s: float
    ) -> PairResult:
        return run_pair(
            server,
            client,
            fabric=self._fabric,
            mover=self._mover,
            hosts=self.results.hosts,
            cpus=self._cpus,
            port=port,
            deadline_s=deadline_s,
            tick=self._tick,
        ).check()

    def _tick(self, seconds: float) -> None:
        """While programs run: what they use shows in the fabric only as long as they do."""
        self._progress.tick(seconds)
        if not self.results.mover:
            self.results.mover = ", ".join(sorted(self._movers()))

    def _perftest(self, operation: Operation, kind: Kind) -> None:
        name = perftest.program(operation, kind)

        def action(deadline_s: float) -> None:
            latency = kind == "lat"
            plan = self._plan
            iterations = plan.latency_iterations if latency else plan.bandwidth_iterations
            # An atomic operation has one size, 8 B.
            sizes = [] if operation == "atomic" else ["-a"]
            port = free_port()
            server, client = perftest.commands(name, port, [*sizes, "-n", str(iterations)])
            output = self._pair(server, client, port, deadline_s).client.stdout
            if latency:
                self.results.latency[operation] = perftest.parse_latency(output)
            else:
                self.results.bandwidth[operation] = perftest.parse_bandwidth(output)

        self._step(name, action)

    def _tcp(self, deadline_s: float) -> None:
        if self._cpus is None:
            self.results.notes.append("one CPU: TCP is not measured, it needs two to compare")
            return
        seconds = min(self._plan.tcp_seconds, deadline_s)
        self.results.tcp = raw.tcp(self._plan.tcp_sizes, cpus=self._cpus, seconds=seconds)

    def _transfer(self, operation: FileOperation, deadline_s: float) -> None:
        port = free_port()
        job = transfer.Job(operation, self._plan.file_bytes, self._directory, port)
        job.make_file()
        pair = self._pair(job.command("server"), job.command("client"), port, deadline_s)
        self.results.transfers.append(job.result(pair))
