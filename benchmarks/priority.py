# SPDX-License-Identifier: BSD-3-Clause
"""Verbs and TCP over one fabric at the same time: neither may starve the other.

Each is measured alone and while the other runs as fast as it can.  Two polling ends, two ends of
TCP and the pump share two CPUs, so a fair share is two fifths of a CPU for each.  The targets are
half of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.case import Bench, Case, at_least, at_most
from benchmarks.net import iperf3, stream
from nupa.programs import perftest
from nupa.programs.pair import Program, ProgramError, ProgramPair, free_port
from nupa.programs.perftest import Operation

_LOAD_S = 30
_BUSY_CPU_S = 0.5  # more than it takes to start
_TICK_S = 0.01


def _session_cpu_s(program: Program) -> float:
    """Returns the run time of a program, which leads a session of its own, and of its children."""
    total_ns = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            session = (process / "stat").read_text().rpartition(")")[2].split()[3]
            if int(session) == program.pid:
                total_ns += int((process / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total_ns / 1e9


@contextmanager
def _meanwhile(pair: ProgramPair) -> Iterator[None]:
    """Runs *pair* while the block runs, which begins once the client works."""
    with pair:
        pair.start_server()
        pair.start_client()
        while _session_cpu_s(pair.client) < _BUSY_CPU_S:
            if not pair.client.running or pair.elapsed_s > _LOAD_S:
                pair.client.kill("was killed: it did not begin to work")
                raise ProgramError(pair.client.outcome().describe())
            time.sleep(_TICK_S)
        yield
        if not pair.client.running:
            raise ProgramError(f"it ended too early: {pair.client.outcome().describe()}")


def _bulk(bench: Bench) -> ProgramPair:
    port = free_port()
    server, client = iperf3(bench.links.get("nupa_net0", bench.fabric), port, "-t", str(_LOAD_S))
    return ProgramPair(server, client, cpus=bench.cpus, port=port)


def _verbs(bench: Bench, operation: Operation, kind: perftest.Kind, *options: str) -> ProgramPair:
    name = perftest.program(operation, kind)
    if perftest.missing([name]):
        raise ProgramError(perftest.INSTALL_HINT)
    port = free_port()
    server, client = perftest.commands(name, port, options)
    return ProgramPair(
        server, client, fabric=bench.fabric, hosts=bench.hosts, cpus=bench.cpus, port=port
    )


def _send_lat_us(bench: Bench) -> float:
    """Returns the mean; the median would hide waits for the CPU."""
    pair = _verbs(bench, "send", "lat", "-s", "8", "-n", bench.iterations(50_000))
    return perftest.parse_latency(pair.run().check().client.stdout)[0].mean_us


def _write_gb_per_s(bench: Bench) -> float:
    pair = _verbs(bench, "write", "bw", "-s", "65536", "-n", bench.iterations(50_000))
    return perftest.parse_bandwidth(pair.run().check().client.stdout)[0].mean_bytes_per_s / 1e9


def _writes(bench: Bench) -> ProgramPair:
    return _verbs(bench, "write", "bw", "-s", "65536", "-D", str(_LOAD_S))


def _beside(
    load: Callable[[Bench], ProgramPair], measure: Callable[[Bench], float]
) -> Callable[[Bench], float]:
    def both(bench: Bench) -> float:
        with _meanwhile(load(bench)):
            return measure(bench)

    return both


_iperf3_gbit_per_s = stream("nupa_net0")

CASES = (
    Case(
        "net + verbs: ib_send_lat, mean",
        "µs",
        at_most(5),
        _beside(_bulk, _send_lat_us),
        "without iperf3",
        _send_lat_us,
    ),
    Case(
        "net + verbs: ib_write_bw 64 KiB",
        "GB/s",
        at_least(0.2),
        _beside(_bulk, _write_gb_per_s),
        "without iperf3",
        _write_gb_per_s,
    ),
    Case(
        "net + verbs: iperf3",
        "Gb/s",
        at_least(0.2),
        _beside(_writes, _iperf3_gbit_per_s),
        "without ib_write_bw",
        _iperf3_gbit_per_s,
    ),
)
