# SPDX-License-Identifier: BSD-3-Clause
"""The cost of ibv_reg_mr and ibv_dereg_mr, and to other threads, by registration.c and stalls.c."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.case import Bench, Case, at_most, no_more
from nupa.measure import raw

_SECONDS = 0.5
#: At most: it works once on 512 MiB in each way.
_STALL_SECONDS = 20.0


def _us(key: str, size_bytes: int) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        seconds = _SECONDS / 10 if bench.quick else _SECONDS
        values = raw.run("registration", cpus=bench.cpus, seconds=seconds, sizes=[size_bytes])
        return float(values["results"][0][key]) / 1e3

    return measure


def _stall(key: str) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        return float(raw.run("stalls", cpus=bench.cpus, seconds=_STALL_SECONDS)[key])

    return measure


def _stall_cases(name: str, key: str) -> tuple[Case, Case]:
    """Polls of one thread while others do that, beside threads that copy memory."""
    return (
        Case(
            f"polls beside {name}, 99.99th percentile",
            "µs",
            no_more(100),
            _stall(f"{key}_p9999_us"),
            "beside copies",
            _stall("quiet_p9999_us"),
        ),
        Case(
            f"polls beside {name}, the worst",
            "µs",
            no_more(2_000),
            _stall(f"{key}_worst_us"),
            "beside copies",
            _stall("quiet_worst_us"),
        ),
    )


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
    *_stall_cases("registrations of 512 MiB", "reg"),
    *_stall_cases("ibv_rereg_mr of 512 MiB", "rereg"),
    Case(
        "first WRITE to an untouched 256 MiB",
        "µs",
        no_more(50),
        _stall("first_write_us"),
        "the second",
        _stall("second_write_us"),
    ),
    Case("the same, pages made present", "", no_more(1), _stall("pages")),
)
