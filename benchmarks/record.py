# SPDX-License-Identifier: BSD-3-Clause
"""What `nupa run --record` costs: the latency of 8 bytes, recorded and not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from benchmarks.case import Bench, Case, at_most

_VARIABLE = "NUPA_RECORD"


def _recorded(measure: Callable[[Bench], float]) -> Callable[[Bench], float]:
    """Measures the same while all processes record, as below `nupa run --record`."""

    def measure_recorded(bench: Bench) -> float:
        with tempfile.TemporaryDirectory(prefix="nupa-record-") as folder:
            os.environ[_VARIABLE] = folder
            try:
                return measure(bench)
            finally:
                del os.environ[_VARIABLE]

    return measure_recorded


def cases(**latencies: Callable[[Bench], float]) -> tuple[Case, ...]:
    """Returns a case for each program: its name, and what measures its latency."""
    return tuple(
        Case(f"record: {name}", "µs", at_most(1.3), _recorded(measure), "not recorded", measure)
        for name, measure in latencies.items()
    )
