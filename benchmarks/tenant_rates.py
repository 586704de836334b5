# SPDX-License-Identifier: BSD-3-Clause
"""Rates of tenants and partitions: their accuracy, their price, and the latency beside a flood."""

from __future__ import annotations

from typing import Any

from benchmarks.case import Bench, Case, at_most, no_more
from nupa.measure import raw

_SECONDS = 4.0
#: Places in the lists that benchmarks/csrc/tenant_rates.c prints.
_ALONE, _TABLE, _RATED = range(3)


class _Run:
    """One run of the program has both sides of a line: they take turns in it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def reference(self, bench: Bench) -> dict[str, Any]:
        seconds = _SECONDS / 5 if bench.quick else _SECONDS
        self._values = raw.run("tenant_rates", cpus=bench.cpus, seconds=seconds)
        return self._values

    def measure(self) -> dict[str, Any]:
        return self._values


_BESIDE = _Run()
_PRICE = _Run()


def _worst_percent(bench: Bench) -> float:
    """Returns by how much 100 ms of the worse of two tenants is off at most."""
    return max(abs(float(each)) for each in _Run().reference(bench)["worst_percent"])


CASES = (
    Case("rates of 2 tenants, worst 100 ms", "% off", no_more(5), _worst_percent),
    Case(
        "ping-pong p99 beside a flood with a rate",
        "µs",
        at_most(1.5),
        lambda _: float(_BESIDE.measure()["p99_ns"][_RATED]) / 1e3,
        "alone",
        lambda bench: float(_BESIDE.reference(bench)["p99_ns"][_ALONE]) / 1e3,
    ),
    Case(
        "ping-pong, another partition has a rate",
        "µs",
        at_most(1.01),
        lambda _: float(_PRICE.measure()["p50_ns"][_TABLE]) / 1e3,
        "no rate",
        lambda bench: float(_PRICE.reference(bench)["p50_ns"][_ALONE]) / 1e3,
    ),
)
