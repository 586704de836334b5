# SPDX-License-Identifier: BSD-3-Clause
"""The packet engine: a permutation of 2 MB messages among 1,024 endpoints of a fat tree.

As a program, this module prints the seconds and the events: python -m benchmarks.model.packets
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from benchmarks.case import Bench, Case, no_less, no_more, output

_PORTS, _QUICK_PORTS = 16, 8  # of a switch: 1,024 and 128 endpoints
_BYTES = 2_000_000


def _measure(ports: int) -> dict[str, float]:
    from nupa.model.engine.packets.run import run
    from nupa.model.validate import htsim

    graph = htsim.fat_tree(ports)
    work = htsim.permutation(graph.endpoints, _BYTES, seed=1)
    protocol = htsim.htsim_protocol(adapt=0.0)
    begin, cpu = time.perf_counter(), time.process_time()
    found = run(graph, work, protocols=protocol)
    return {
        "seconds": time.perf_counter() - begin,
        "cpu_seconds": time.process_time() - cpu,
        "events": found.totals.events,
    }


def _figure(of: Callable[[dict[str, float]], float]) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        ports = _QUICK_PORTS if bench.quick else _PORTS
        argv = [sys.executable, "-m", "benchmarks.model.packets", str(ports)]
        return of(json.loads(output(argv, bench.cpus[0])))

    return measure


CASES = (
    Case(
        "model: events of the packet engine, on one core", "M/s", no_less(10),
        _figure(lambda found: found["events"] / found["cpu_seconds"] / 1e6),
    ),
    Case(
        "model: 2 MB from each of 1,024 endpoints to another", "s", no_more(1),
        _figure(lambda found: found["seconds"]),
    ),
)  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]) if len(sys.argv) > 1 else _PORTS)))
