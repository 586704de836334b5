# SPDX-License-Identifier: BSD-3-Clause
"""tgt's iSCSI and iSER target, and libiscsi's iscsi-perf, which reads from it.

Written for tgt 1.0.85 and libiscsi 1.19.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nupa.base.closing import Closing
from nupa.programs.disk import DiskRate, DiskWorkload
from nupa.programs.pair import Program, ProgramError, await_end, run

Driver = Literal["iscsi", "iser"]
#: Returns the command line of a program of tgt, wherever it is.
TgtCommand = Callable[[Sequence[str]], list[str]]

INITIATOR = "iqn.2026-11.nupa:initiator"
TARGET = "iqn.2026-11.nupa:disk"
_BLOCK_BYTES = 512
_POLL_S = 0.05
_AVERAGE = re.compile(r"^iops average (\d+) \(", re.MULTILINE)


class TgtError(Exception):
    """iscsi-perf's output has no result; the message quotes it."""


@dataclass(frozen=True)
class TgtPlace:
    """Addresses of a target: *address* and *tcp_port* of iSCSI, *rdma_port* of the RDMA CM."""

    address: str
    tcp_port: int
    rdma_port: int

    def url(self, driver: Driver) -> str:
        port = self.tcp_port if driver == "iscsi" else self.rdma_port
        return f"{driver}://{self.address}:{port}/{TARGET}/1"


class TgtTarget(Closing):
    """A tgtd that serves one file by one driver; *socket* is a path that tgtadm finds it by.

    Debug output is off: iSER's is thirty lines a request, which takes longer than the request.
    """

    def __init__(
        self,
        serve: TgtCommand,
        admin: TgtCommand,
        driver: Driver,
        place: TgtPlace,
        disk: Path,
        socket: Path,
        *,
        deadline_s: float = 20.0,
    ) -> None:
        """Starts it.  ProgramError: it does not start, or refuses the disk."""
        self._env = {"TGT_IPC_SOCKET": str(socket)}
        self._admin, self._driver, self._deadline_s = admin, driver, deadline_s
        portals = ["--iscsi", f"portal={place.address}:{place.tcp_port}"]
        if driver == "iser":
            portals += ["--iser", f"port={place.rdma_port},pool_sz_mb=64"]
        self.server = Program(serve(["tgtd", "-f", *portals]), env=self._env)
        try:
            self._await(socket)
            for words in (
                f"--op new --mode target -T {TARGET}",
                f"--op new --mode logicalunit --lun 1 -b {disk}",
                "--op bind --mode target -I ALL",
                f"--op bind --mode target -Q {INITIATOR}",
            ):
                self._tell(words.split())
        except BaseException:
            self.close()
            raise

    def _await(self, socket: Path) -> None:
        """Waits until tgtadm can ask.  ProgramError: it ended, or was too slow."""
        waited_s = 0.0
        while not Path(f"{socket}.0").exists():
            if await_end([self.server], _POLL_S) or waited_s > self._deadline_s:
                self.server.kill("was killed: it did not listen for tgtadm")
                raise ProgramError(self.server.outcome().describe())
            waited_s += _POLL_S

    def _tell(self, words: Sequence[str]) -> None:
        argv = self._admin(["tgtadm", "--lld", self._driver, "--tid", "1", *words])
        run(argv, env=self._env, deadline_s=self._deadline_s).check()

    def close(self) -> None:
        self.server.close()


def perf_command(url: str, workload: DiskWorkload, seconds: float) -> list[str]:
    """Returns the command of iscsi-perf, which reads in order; *seconds* are rounded up."""
    blocks = workload.block_bytes // _BLOCK_BYTES
    words = {"-i": INITIATOR, "-b": blocks, "-m": workload.depth, "-t": -int(-seconds // 1)}
    return ["iscsi-perf", *(str(word) for pair in words.items() for word in pair), url]


def parse_perf(text: str, workload: DiskWorkload) -> DiskRate:
    """Parses the average of a run.  TgtError: there is none."""
    found = _AVERAGE.search(text.replace("\r", "\n"))
    rate = float(found[1]) if found else 0.0
    if rate <= 0:
        raise TgtError(f"an average was expected, iscsi-perf wrote: {text[-300:]!r}")
    # Little's law: as many requests as its depth are always outstanding.
    return DiskRate(rate, rate * workload.block_bytes, workload.depth / rate * 1e6)
