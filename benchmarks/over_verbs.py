# SPDX-License-Identifier: BSD-3-Clause
"""UCX over the verbs of NUPA, beside the same UCX over its own shared memory: of which an
application gets either."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import ucx
from benchmarks.case import Bench, Case, at_least, at_most

#: Names, bytes, iterations.
_BULK = (("64 KiB", 1 << 16, 20_000), ("1 MiB", 1 << 20, 2_000))


def _run(test: ucx.Test, size: int, count: int, *, verbs: bool) -> Callable[[Bench], ucx.Result]:
    def measure(bench: Bench) -> ucx.Result:
        place = ucx.over_verbs(bench.fabric, bench.hosts) if verbs else ucx.HERE_TOO
        return ucx.run(test, size, bench.iterations(count), bench.cpus, place=place)

    return measure


def _us(test: ucx.Test, *, verbs: bool) -> Callable[[Bench], float]:
    run = _run(test, 8, 200_000, verbs=verbs)
    return lambda bench: run(bench).typical_us


def _gb_per_s(test: ucx.Test, size: int, count: int, *, verbs: bool) -> Callable[[Bench], float]:
    run = _run(test, size, count, verbs=verbs)
    return lambda bench: run(bench).gb_per_s


CASES = (
    Case(
        "UCX over verbs: tag_lat 8 B",
        "µs",
        at_most(1.5),
        _us("tag_lat", verbs=True),
        "over its own shared memory",
        _us("tag_lat", verbs=False),
    ),
    *(
        Case(
            f"UCX over verbs: {test} {name}",
            "GB/s",
            at_least(0.9),
            _gb_per_s(test, size, count, verbs=True),
            "over its own shared memory",
            _gb_per_s(test, size, count, verbs=False),
        )
        for name, size, count in _BULK
        for test in ("tag_bw", "ucp_put_bw")
    ),
)
