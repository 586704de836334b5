# SPDX-License-Identifier: BSD-3-Clause
"""The steps of `nupa vm demo`: unmodified programs between two guests, over NUPA and without it.

Without it means soft-RoCE (rdma_rxe) and TCP of the guests' kernel, both over virtio-net.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from nupa.base.progress import Progress
from nupa.base.quantity import say_bytes
from nupa.fabric import Fabric
from nupa.measure.guest_report import SIDES, GuestProgram, GuestReport, Score, Side
from nupa.programs import iperf3, perftest
from nupa.programs.iperf3 import Iperf3Error
from nupa.programs.pair import ProgramError, free_port
from nupa.programs.perftest import Kind, Operation, PerftestError
from nupa.vm.files.state import MachineState
from nupa.vm.pair import ROOTS_PATH, Pair

_FAILURES = (ProgramError, PerftestError, Iperf3Error)
_RUN_MAX_S = 90.0  # a longer run has hung

SOFT_ROCE = "soft-RoCE"
VIRTIO = "TCP, virtio-net"

_SET_SOFT_ROCE = """\
modprobe rdma_rxe && modprobe ib_uverbs || exit
[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev eth0
"""
_NO_SOFT_ROCE = (
    "soft-RoCE is not measured: it needs the program rdma and libibverbs' provider rxe: "
    "`apt-get install iproute2 ibverbs-providers` (Debian, Ubuntu) or "
    "`dnf install iproute libibverbs` (Fedora, RHEL)"
)


@dataclass(frozen=True)
class Workload:
    """The amount of work; of several runs of one program the best counts."""

    rounds: int
    latency_iterations: int
    bandwidth_iterations: int
    tcp_seconds: int


FULL = Workload(rounds=3, latency_iterations=1000, bandwidth_iterations=1000, tcp_seconds=3)
QUICK = Workload(rounds=1, latency_iterations=300, bandwidth_iterations=200, tcp_seconds=1)

_WHAT = {"send": "SEND", "write": "WRITE", "read": "READ"}
# Operation, kind, bytes, the target of docs/vm.md.
_PERFTEST: tuple[tuple[Operation, Kind, int, float | None], ...] = (
    ("send", "lat", 64, 50.0),
    ("write", "lat", 64, None),
    ("read", "lat", 64, None),
    ("write", "bw", 1 << 16, 5.0),
)
_TCP = GuestProgram("iperf3", "TCP, one stream", "MB/s", False, VIRTIO, target=1.0)


def _comparison(operation: Operation, kind: Kind, size: int, target: float | None) -> GuestProgram:
    what = f"{_WHAT[operation]} {say_bytes(size, ' ')}" + (", latency" if kind == "lat" else "")
    unit, program = ("µs" if kind == "lat" else "MB/s"), perftest.program(operation, kind)
    return GuestProgram(program, what, unit, kind == "lat", SOFT_ROCE, size, target)


def missing() -> str:
    """Says what to install on this machine, whose programs the guests run; empty: nothing."""
    programs = [perftest.program(operation, kind) for operation, kind, _, _ in _PERFTEST]
    if perftest.missing(programs):
        return perftest.INSTALL_HINT
    return "" if shutil.which("iperf3") else iperf3.INSTALL_HINT


class Demo:
    """Runs a plan between the first two guests; a failed step does not stop the next."""

    #: How many times `Progress.step` is called.
    STEPS = 2 + len(_PERFTEST) + 1

    def __init__(
        self,
        plan: Workload,
        progress: Progress,
        up: MachineState,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._clock = clock
        self._start_s = clock()
        self._hosts = (up.guests[0].name, up.guests[1].name)
        self._pair = Pair(up.name, self._hosts, _RUN_MAX_S, progress.tick)
        with Fabric.open(up.name) as fabric:
            self._fabric_address = fabric.host(self._hosts[0]).ipv4
        self.report = GuestReport(up.kind, up.qemu_version, up.kernel, up.memory_bytes)

    def run(self) -> GuestReport:
        soft_roce = self._step("soft-RoCE in the guests", self._soft_roce)
        for operation, kind, size, target in _PERFTEST:
            self._perftest(_comparison(operation, kind, size, target), kind, soft_roce)
        self._tcp(self._step("nupa_net0 in the guests", self._pair.net_up))
        self.report.elapsed_s = self._clock() - self._start_s
        return self.report

    def _step(self, label: str, action: Callable[[], None]) -> bool:
        return self.report.attempt(self._progress, label, action, _FAILURES)

    def _soft_roce(self) -> None:
        if shutil.which("rdma", path=f"{os.environ.get('PATH', os.defpath)}:{ROOTS_PATH}") is None:
            raise ProgramError(_NO_SOFT_ROCE)
        for host in self._hosts:
            self._pair.run(host, ["sh", "-c", _SET_SOFT_ROCE])

    def _perftest(self, comparison: GuestProgram, kind: Kind, soft_roce: bool) -> None:
        if kind == "lat":
            count = self._plan.latency_iterations
        else:
            count = self._plan.bandwidth_iterations
        options = ["-s", str(comparison.size_bytes), "-n", str(count)]

        def measure(side: Side) -> float:
            port = free_port()
            # Both sides exchange addresses by TCP on eth0.
            commands = perftest.commands(comparison.program, port, options, server=self._hosts[0])
            text = self._pair.measure(*commands, port, nupa=side == "nupa")
            if kind == "lat":
                return perftest.parse_latency(text)[0].typical_us
            return perftest.parse_bandwidth(text)[0].mean_bytes_per_s / 1e6

        self._compare(comparison, measure, nupa=True, other=soft_roce)

    def _tcp(self, network: bool) -> None:
        options = ["-t", str(self._plan.tcp_seconds)]

        def measure(side: Side) -> float:
            address = self._fabric_address if side == "nupa" else self._hosts[0]
            port = free_port()
            text = self._pair.measure(*iperf3.commands(address, port, options), port, nupa=False)
            return iperf3.parse_bits_per_s(text) / 8e6

        self._compare(_TCP, measure, nupa=network, other=True)

    def _compare(
        self, comparison: GuestProgram, measure: Callable[[Side], float], *, nupa: bool, other: bool
    ) -> None:
        """Runs all rounds of a comparison, both sides by turns, so that other load affects both."""
        score = Score(comparison)
        self.report.scores.append(score)
        present = {"nupa": nupa, "other": other}

        def action() -> None:
            for number in range(self._plan.rounds):
                for side in SIDES:
                    if not present[side]:
                        continue
                    over = "NUPA" if side == "nupa" else comparison.against
                    self._progress.detail(
                        f"{comparison.program} over {over}, {number + 1} of {self._plan.rounds}"
                    )
                    score.runs[side].append(measure(side))

        self._step(f"{comparison.program}, {comparison.what}", action)
