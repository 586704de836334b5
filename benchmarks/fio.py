# SPDX-License-Identifier: BSD-3-Clause
"""RDMA against TCP by fio: the same job by verbs and over nupa_net0, as in `nupa demo`."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.case import Bench, Case, at_least
from nupa.measure import versus
from nupa.programs import fio
from nupa.programs.pair import ProgramError

_DEPTH = 32
_RAMP_S = 0.1
_SECONDS = 1.0


def _gb_per_s(carrier: fio.Carrier, block_bytes: int) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        if fio.missing():
            raise ProgramError(fio.INSTALL_HINT)
        bench.links.get("nupa_net0", bench.fabric)
        hosts = versus.host_pair(bench.fabric, bench.hosts, None)
        seconds = _SECONDS / 4 if bench.quick else _SECONDS
        job = fio.Job(carrier, block_bytes, _DEPTH, hosts.address, _RAMP_S, seconds)
        try:
            return versus.run(job, hosts).bytes_per_s / 1e9
        except fio.FioError as error:
            raise ProgramError(str(error)) from error

    return measure


CASES = tuple(
    Case(
        f"fio, {_DEPTH} blocks of {name}",
        "GB/s",
        at_least(2),
        _gb_per_s("rdma", size),
        "over TCP",
        _gb_per_s("tcp", size),
    )
    for name, size in (("4 KiB", 1 << 12), ("64 KiB", 1 << 16), ("1 MiB", 1 << 20))
)
