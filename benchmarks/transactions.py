# SPDX-License-Identifier: BSD-3-Clause
"""The rate of 64-byte lines that a host writes and reads through a CXL switch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from benchmarks.case import Bench, Case, no_less, output

_SECONDS = 0.5  # each figure


def _mega_per_s(key: str) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        seconds = _SECONDS / 10 if bench.quick else _SECONDS
        argv = [sys.executable, "-m", "nupa.cli", "fabric", "transactions", "--json"]
        text = output([*argv, f"--seconds={seconds}"], bench.cpus[0])
        return float(json.loads(text)[key]) / 1e6

    return measure


CASES = tuple(
    Case(f"transactions: {what}, in C", "M/s", no_less(2), _mega_per_s(f"c_{what}_per_s"))
    for what in ("write", "read")
)
