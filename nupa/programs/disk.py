# SPDX-License-Identifier: BSD-3-Clause
"""fio on a disk or a file: one command that verifies it, then measures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nupa.base.quantity import say_bytes
from nupa.programs import fio
from nupa.programs.fio import Direction, FioError

_VERIFY = "verify"
# Blocks of all sizes in random order, each written once; then they are read, their CRC compared.
_VERIFIED = (
    *("--rw=randwrite", "--blocksize_range=4k-128k", "--iodepth=16"),
    *("--verify=crc32c", "--do_verify=1", "--verify_fatal=1"),
)


@dataclass(frozen=True)
class DiskWorkload:
    """Requests of one size, *depth* of them outstanding."""

    direction: Direction
    block_bytes: int
    depth: int
    random: bool = False

    @property
    def name(self) -> str:
        order = "random " if self.random else ""
        return f"{order}{self.direction} {say_bytes(self.block_bytes)} x {self.depth}"

    @property
    def unit(self) -> str:
        """Of its rate: large blocks are about bytes, small ones about requests."""
        return "MB/s" if self.block_bytes >= 1 << 16 else "IOPS"

    def options(self) -> list[str]:
        order = "rand" if self.random else ""
        words = {"rw": f"{order}{self.direction}", "bs": self.block_bytes, "iodepth": self.depth}
        return [f"--{key}={value}" for key, value in words.items()]


@dataclass(frozen=True)
class DiskRate:
    """What a workload reached."""

    operations_per_s: float
    bytes_per_s: float
    mean_us: float  #: from a request to its completion


#: What is measured by default.
WORKLOADS = (
    DiskWorkload("write", 128 << 10, 8),
    DiskWorkload("read", 128 << 10, 8),
    DiskWorkload("write", 4 << 10, 1, random=True),
    DiskWorkload("read", 4 << 10, 1, random=True),
    DiskWorkload("read", 4 << 10, 16, random=True),
)


def command(
    path: str, size_bytes: int, seconds: float, workloads: Sequence[DiskWorkload] = WORKLOADS
) -> list[str]:
    """Returns fio's command line: it verifies *size_bytes* at *path*, then runs each workload."""
    argv = ["fio", "--output-format=json", f"--filename={path}", f"--size={size_bytes}"]
    argv += ["--ioengine=libaio", "--direct=1", f"--name={_VERIFY}", *_VERIFIED]
    for workload in workloads:
        argv += [f"--name={workload.name}", "--stonewall", *workload.options()]
        argv += ["--time_based", f"--runtime={round(seconds * 1000)}ms"]
    return argv


def parse(text: str, workloads: Sequence[DiskWorkload] = WORKLOADS) -> dict[DiskWorkload, DiskRate]:
    """Parses fio's JSON.  FioError: data was damaged, a job failed or is missing."""
    named = {job.get("jobname"): job for job in fio.jobs(text)}
    verified = named.get(_VERIFY)
    if verified is None:
        raise FioError("fio's JSON has no job that verifies")
    fio.rate(verified, "write")
    fio.rate(verified, "read")
    missing = [workload.name for workload in workloads if workload.name not in named]
    if missing:
        raise FioError(f"fio's JSON has no job {missing[0]!r}")
    found = {}
    for workload in workloads:
        rate = fio.rate(named[workload.name], workload.direction)
        found[workload] = DiskRate(rate.operations_per_s, rate.bytes_per_s, rate.mean_us)
    return found
