# SPDX-License-Identifier: BSD-3-Clause
"""The cost of ibv_reg_mr and ibv_dereg_mr: benchmarks/csrc/registration.c."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.case import Bench, Case, at_most, no_more
from nupa.measure import raw

_SECONDS = 0.5


def _us(key: str, size_bytes: int) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        seconds = _SECONDS / 10 if bench.quick else _SECONDS
        values = raw.run("registration", cpus=bench.cpus, seconds=seconds, sizes=[size_bytes])
        return float(values["results"][0][key]) / 1e3

    return measure


CASES = (
    Case("reg + dereg of 1 MiB for local use", "µs", no_more(5), _us("local_ns", 1 << 20)),
    Case(
        "reg + dereg of 4 KiB for peers",
        "µs",
        no_more(100),
        _us("reached_ns", 1 << 12),
        "copied there and back",
        _us("copied_ns", 1 << 12),
    ),
    *(
        Case(
            f"reg + dereg of {name} for peers",
            "µs",
            at_most(1.5),
            _us("reached_ns", size),
            "copied there and back",
            _us("copied_ns", size),
        )
        for name, size in (("1 MiB", 1 << 20), ("64 MiB", 1 << 26))
    ),
)
