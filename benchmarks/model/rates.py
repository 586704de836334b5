# SPDX-License-Identifier: BSD-3-Clause
"""The rates of flows, of sweeps and of the packet engine, each in a process of its own.

As a program, this module prints one measurement: python -m benchmarks.model.rates flows
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.case import Bench, Case, no_less, no_more, output
from benchmarks.model import dumbbell

_LARGE = "hpn_upn(100000)"
_RANKS = "fat_tree(1024,ib-ndr)"
#: 1,008 configurations, all in closed form.
_SWEEP = {
    "work": ["allreduce:1K..16M", "alltoall:1K..8M", "write:8..2M"],
    "on": ["ib-hdr", "ib-ndr", "roce-400", "uec-800", "nvlink4", "nvlink5", "slingshot-11"],
    "ranks": [2, 4, 8],
    "figures": [""],
}
_CONFIGURATIONS = 1000


def _flows() -> dict[str, float]:
    """Measures a hierarchical all-reduce over 100,352 GPUs: seconds, and MiB at the peak."""
    from nupa import model

    begin = time.perf_counter()
    answer = model.predict("allreduce:1G", _LARGE, engine="flows", algorithm="hierarchical")
    seconds = time.perf_counter() - begin
    if answer.engine != "flows" or answer.ranks < 100_000:
        raise RuntimeError(f"{answer.engine} of {answer.ranks} ranks")
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "mib": peak_kib / 1024}


def _all_reduce() -> dict[str, float]:
    """Measures an all-reduce of 1,024 ranks by flows, with profiles that are read before."""
    from nupa import model

    model.predict("allreduce:1M", _RANKS, engine="flows")
    begin = time.perf_counter()
    answer = model.predict("allreduce:1G", _RANKS, engine="flows")
    seconds = time.perf_counter() - begin
    if answer.engine != "flows" or answer.ranks != 1024:
        raise RuntimeError(f"{answer.engine} of {answer.ranks} ranks")
    return {"seconds": seconds}


def _sweep() -> dict[str, float]:
    """Measures 1,000 configurations, in processes of this machine or by Dask."""
    from nupa import model

    begin = time.perf_counter()
    rows = model.sweep(_SWEEP)
    seconds = time.perf_counter() - begin
    wrong = [row.error for row in rows if row.error]
    if len(rows) < _CONFIGURATIONS or wrong:
        raise RuntimeError(f"{len(rows)} rows: {wrong[:1]}")
    if {row.engine for row in rows} != {"stages"}:
        raise RuntimeError("not all in closed form")
    return {"seconds": seconds * _CONFIGURATIONS / len(rows)}


_MEASUREMENTS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "flows": _flows,
    "all-reduce": _all_reduce,
    "sweep": _sweep,
}


def _rate(what: str, key: str, scale: float = 1.0) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        argv = [sys.executable, "-m", "benchmarks.model.rates", what]
        return float(json.loads(output(argv, bench.cpus[0]))[key]) * scale

    return measure


def _side(name: str, of: Callable[[Mapping[str, float], int], float]) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        size = dumbbell.QUICK_BYTES if bench.quick else dumbbell.BYTES
        argv = [sys.executable, "-m", "benchmarks.model.dumbbell", str(size)]
        return of(json.loads(output(argv, bench.cpus[0]))[name], size)

    return measure


def _events(side: Mapping[str, float], _size: int) -> float:
    return side["events"] / side["seconds"] / 1e6


def _crossings(side: Mapping[str, float], size: int) -> float:
    return dumbbell.crossings(size) / side["seconds"] / 1e6


CASES = (
    Case(
        "model: events, 16 pairs over a trunk", "M/s", no_less(10),
        _side("engine", _events), "simpy, the same model", _side("simpy", _events),
    ),
    Case(
        "model: the same, packets on a link", "M/s", None,
        _side("engine", _crossings), "simpy, the same model", _side("simpy", _crossings),
    ),
    Case(
        "model: all-reduce of 100,352 GPUs, flows", "s", no_more(1), _rate("flows", "seconds"),
    ),
    Case("model: the same, memory at its peak", "MiB", no_more(2048), _rate("flows", "mib")),
    Case(
        "model: all-reduce of 1,024 ranks, flows", "ms", no_more(10),
        _rate("all-reduce", "seconds", 1e3),
    ),
    Case("model: sweep of 1,000 closed forms", "s", no_more(60), _rate("sweep", "seconds")),
)  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(_MEASUREMENTS[sys.argv[1]]()))
