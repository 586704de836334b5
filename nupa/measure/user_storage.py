# SPDX-License-Identifier: BSD-3-Clause
"""The steps of `nupa demo storage`: Ceph and an iSCSI disk, over RDMA and over TCP on nupa_net0.

Both sides are up at once and are measured by turns, so that other load affects both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nupa.base.errors import NupaError
from nupa.base.progress import Progress
from nupa.base.quantity import say_bytes
from nupa.fabric import Fabric
from nupa.measure.storage_report import Column, StorageReport
from nupa.measure.versus import NetworkError
from nupa.programs import ceph, tgt
from nupa.programs.ceph import CephCluster, CephError, CephHosts
from nupa.programs.disk import DiskWorkload
from nupa.programs.hosted import HostedCommand
from nupa.programs.pair import ProgramError, free_port, run
from nupa.programs.tgt import TgtError, TgtPlace, TgtTarget
from nupa.programs.unpacked import Unpacked

#: What is unpacked for both parts.
PACKAGES = (*ceph.PACKAGES, "tgt", "libiscsi-bin")
_FAILURES = (ProgramError, CephError, TgtError, NupaError, NetworkError)
_RUN_SPARE_S = 30.0  # a longer run has hung
_DISK_BYTES = 64 << 20
_ISER_BYTES_MAX = 256 << 10  # of libiscsi's buffers: a larger request fails
_WAYS = ("rdma", "tcp")


@dataclass(frozen=True)
class UserStoragePlan:
    """Block sizes with depths, each measured for *seconds* in each direction."""

    jobs: tuple[tuple[int, int], ...]
    seconds: float

    @property
    def iscsi_jobs(self) -> list[tuple[int, int]]:
        """Those that iSER can do: larger blocks become its largest."""
        return list(dict.fromkeys((min(size, _ISER_BYTES_MAX), depth) for size, depth in self.jobs))

    @property
    def steps(self) -> int:
        """How many times `Progress.step` is called."""
        return 2 + len(self.jobs) + len(self.iscsi_jobs)


_KIB, _MIB = 1 << 10, 1 << 20
FULL = UserStoragePlan(
    ((4 * _KIB, 1), (4 * _KIB, 16), (64 * _KIB, 16), (_MIB, 16), (4 * _MIB, 16)), 2.0
)
QUICK = UserStoragePlan(((4 * _KIB, 1), (64 * _KIB, 16)), 1.0)


class UserStorage:
    """Runs a plan between two hosts of *fabric*, which have nupa_net0; files are in *folder*."""

    def __init__(
        self,
        plan: UserStoragePlan,
        progress: Progress,
        fabric: Fabric,
        programs: Unpacked,
        folder: Path,
    ) -> None:
        self._plan, self._progress = plan, progress
        self._programs, self._folder = programs, folder
        first, second = fabric.hosts[:2]
        self._where = {"server": first.name, "client": second.name}

        def on(name: str, way: str) -> HostedCommand:
            address = fabric.host(name).ipv4
            return HostedCommand(fabric.name, name, address, rdma=way == "rdma")

        self._hosts = {way: (on(first.name, way), on(second.name, way)) for way in _WAYS}

    def run(self) -> list[StorageReport]:
        """Returns the reports of Ceph and of iSCSI."""
        return [self._ceph(), self._iscsi()]

    def _ceph(self) -> StorageReport:
        clusters: dict[str, CephCluster] = {}

        def start(stack: ExitStack) -> None:
            for way in _WAYS:
                folder = self._folder / f"ceph-{way}"
                folder.mkdir()
                server, client = self._hosts[way]
                hosts = CephHosts(server, client, free_port())
                clusters[way] = stack.enter_context(CephCluster(self._programs, hosts, folder))

        def measure(report: StorageReport, block_bytes: int, depth: int) -> None:
            for way in _WAYS:
                rates = clusters[way].bench(block_bytes, depth, self._plan.seconds)
                ways = ceph.both_ways(block_bytes, depth)
                report.rates.setdefault(way, {}).update(zip(ways, rates, strict=True))

        columns = (
            Column("rdma", "ms_type async+rdma, on nupa_rdma0", rdma=True),
            Column("tcp", "ms_type async+posix, on nupa_net0", rdma=False),
        )
        report = StorageReport("Ceph 16, memstore", columns, self._where)
        servers = "Ceph: a monitor and an OSD of each transport"
        return self._measured(report, servers, start, "Ceph", self._plan.jobs, measure)

    def _iscsi(self) -> StorageReport:
        places: dict[str, TgtPlace] = {}

        def start(stack: ExitStack) -> None:
            disk = self._folder / "disk"
            with disk.open("wb") as file:
                file.truncate(_DISK_BYTES)
            for way in _WAYS:
                host = self._hosts[way][0]
                places[way] = TgtPlace(host.address, free_port(), free_port())
                target = TgtTarget(
                    partial(self._command, host),
                    lambda argv: self._programs.command(*argv),
                    "iser" if host.rdma else "iscsi",
                    places[way],
                    disk,
                    self._folder / f"tgt-{way}",
                )
                stack.enter_context(target)

        def measure(report: StorageReport, block_bytes: int, depth: int) -> None:
            workload = DiskWorkload("read", block_bytes, depth)
            for way in _WAYS:
                url = places[way].url("iser" if way == "rdma" else "iscsi")
                argv = tgt.perf_command(url, workload, self._plan.seconds)
                command = self._command(self._hosts[way][1], argv)
                text = run(command, deadline_s=self._plan.seconds + _RUN_SPARE_S).check().stdout
                report.rates.setdefault(way, {})[workload] = tgt.parse_perf(text, workload)

        columns = (
            Column("rdma", "iSER on nupa_rdma0", rdma=True),
            Column("tcp", "iSCSI on nupa_net0", rdma=False),
        )
        report = StorageReport("tgt, libiscsi", columns, self._where)
        servers, jobs = "tgt: a target of each transport", self._plan.iscsi_jobs
        return self._measured(report, servers, start, "iSCSI", jobs, measure)

    def _command(self, host: HostedCommand, argv: Sequence[str]) -> list[str]:
        return host.command(self._programs.command(*argv, ours=host.rdma))

    def _step(self, report: StorageReport, label: str, action: Callable[[], None]) -> bool:
        return report.attempt(self._progress, label, action, _FAILURES)

    def _measured(
        self,
        report: StorageReport,
        servers: str,
        start: Callable[[ExitStack], None],
        what: str,
        jobs: Sequence[tuple[int, int]],
        measure: Callable[[StorageReport, int, int], None],
    ) -> StorageReport:
        """Returns *report* with the *jobs*; what *start* puts on its stack ends before."""
        start_s = time.monotonic()
        with ExitStack() as stack:
            if self._step(report, servers, partial(start, stack)):
                for block_bytes, depth in jobs:
                    label = f"{what}, {say_bytes(block_bytes)} x {depth}"
                    self._step(report, label, partial(measure, report, block_bytes, depth))
        report.elapsed_s = time.monotonic() - start_s
        return report
