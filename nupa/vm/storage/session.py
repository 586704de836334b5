# SPDX-License-Identifier: BSD-3-Clause
"""The steps of `nupa vm storage`: a target in the first guest, an initiator in the second."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from nupa.base.errors import NupaError
from nupa.base.progress import Progress
from nupa.fabric import Fabric
from nupa.measure.storage_report import Column, StorageReport
from nupa.programs import disk, fio
from nupa.programs.fio import FioError
from nupa.programs.pair import ProgramError
from nupa.vm.files.state import MachineState
from nupa.vm.machine.qemu import address_of
from nupa.vm.pair import ROOTS_PATH, Pair
from nupa.vm.storage.protocol import StorageProtocol
from nupa.vm.storage.transport import Network, StorageTransport

_FAILURES = (ProgramError, FioError, NupaError)
_STEP_MAX_S = 60.0  # a longer step has hung
_VERIFY_MAX_S = 120.0  # likewise, and it is as slow as the transport
_MIB = 1 << 20
_SPARE_MIB = 16  # of the target, beyond what is written: a file system's own

_REMEDIES = {
    "fio": fio.INSTALL_HINT,
    "rdma": "the program rdma, which makes and shows RDMA devices, is not installed: "
    "`apt-get install iproute2` (Debian, Ubuntu) or `dnf install iproute` (Fedora, RHEL); or "
    "measure without: --over tcp",
}


@dataclass(frozen=True)
class StoragePlan:
    """*size_bytes* are verified, and then measured for *seconds* by each workload."""

    protocol: StorageProtocol
    transports: tuple[StorageTransport, ...]
    size_bytes: int
    seconds: float

    @property
    def modules(self) -> tuple[str, ...]:
        """Those of the kernel that guests must be able to load, beside the usual ones."""
        named = [*self.protocol.target, *self.protocol.initiator]
        named += [module for transport in self.transports for module in transport.modules]
        return tuple(dict.fromkeys(named))

    @property
    def nupa_modules(self) -> bool:
        return any(transport.nupa_modules for transport in self.transports)

    @property
    def steps(self) -> int:
        """How many times `Progress.step` is called."""
        return 2 + len(self.transports)


def missing(transports: Sequence[StorageTransport]) -> str:
    """Says what to install on this machine, whose programs the guests run; empty: nothing."""
    path = f"{os.environ.get('PATH', os.defpath)}:{ROOTS_PATH}"
    for program in ("fio", *(each for transport in transports for each in transport.programs)):
        if shutil.which(program, path=path) is None:
            return _REMEDIES[program]
    return ""


class StorageSession:
    """Runs a plan between the first two guests; a transport that fails does not stop the next."""

    def __init__(
        self,
        plan: StoragePlan,
        progress: Progress,
        up: MachineState,
        variables: dict[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*variables* are of the environment of the protocol's script."""
        self._plan = plan
        self._progress = progress
        self._clock = clock
        self._start_s = clock()
        self._hosts = (up.guests[0].name, up.guests[1].name)
        self._pair = Pair(up.name, self._hosts, _STEP_MAX_S, progress.tick)
        with Fabric.open(up.name) as fabric:
            on_fabric = [fabric.host(host).ipv4 for host in self._hosts]
        self._addresses: dict[Network, list[str]] = {
            "nupa_net0": on_fabric,
            "eth0": [address_of(number) for number in range(2)],
        }
        self._variables = [f"{key}={value}" for key, value in variables.items()]
        self.report = StorageReport(
            plan.protocol.what,
            tuple(Column(each.name, each.what, each.rdma) for each in plan.transports),
            {"memory": up.kind, "QEMU": up.qemu_version, "Linux": up.kernel},
        )

    def run(self) -> StorageReport:
        if self._step("nupa_net0 in the guests, and the target", self._serve):
            for transport in self._plan.transports:
                self._step(transport.what, partial(self._measure, transport))
            self._step("end of the target", self._end)
        self.report.elapsed_s = self._clock() - self._start_s
        return self.report

    def _step(self, label: str, action: Callable[[], None]) -> bool:
        return self.report.attempt(self._progress, label, action, _FAILURES)

    def _run(self, end: int, *argv: str) -> str:
        """Runs a command; *end* 0: in the target, 1: in the initiator."""
        return self._pair.run(self._hosts[end], argv)

    def _script(self, *words: str) -> list[str]:
        """Returns the command that runs the protocol's script."""
        return ["env", *self._variables, "sh", self._plan.protocol.script, *words]

    def _load(self, end: int, modules: Sequence[str]) -> None:
        for module in modules:
            self._run(end, "modprobe", module)

    def _end(self) -> None:
        self._run(0, *self._script("end"))

    def _serve(self) -> None:
        self._pair.net_up()
        self._load(0, self._plan.protocol.target)
        self._load(1, self._plan.protocol.initiator)
        clients = [self._addresses[network][1] for network in self._addresses]
        mebibytes = -(-self._plan.size_bytes // _MIB) + _SPARE_MIB
        self._run(0, *self._script("serve", str(mebibytes), *clients))

    def _measure(self, transport: StorageTransport) -> None:
        """Sets a transport up, verifies and measures, and takes it down also after a failure."""
        server, client = self._addresses[transport.network]
        with ExitStack() as stack:

            def undo(end: int, *argv: str) -> None:
                stack.callback(self._undo, transport, partial(self._run, end, *argv))

            for end in range(2):
                self._load(end, transport.modules)
                if transport.remove:
                    undo(end, *transport.remove)
                if transport.make:
                    self._run(end, *transport.make)
            undo(0, *self._script("withdraw"))
            self._run(0, *self._script("offer", transport.kind, server))
            undo(1, *self._script("detach"))
            path = self._run(1, *self._script("attach", transport.kind, server, client)).strip()
            self.report.rates[transport.name] = self._fio(path)

    def _undo(self, transport: StorageTransport, action: Callable[[], str]) -> None:
        """Takes a part down; its failure is reported beside that of the measurement."""
        try:
            action()
        except _FAILURES as error:
            self.report.failures.append(f"end of {transport.what}: {error}")

    def _fio(self, path: str) -> dict[disk.DiskWorkload, disk.DiskRate]:
        plan = self._plan
        deadline_s = _VERIFY_MAX_S + 3 * plan.seconds * len(disk.WORKLOADS)
        command = disk.command(path, plan.size_bytes, plan.seconds)
        return disk.parse(self._pair.run(self._hosts[1], command, deadline_s=deadline_s))
