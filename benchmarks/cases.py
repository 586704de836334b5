# SPDX-License-Identifier: BSD-3-Clause
"""What is measured, beside what, against which target."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from nupa.demo import perftest, raw
from nupa.demo.perftest import Operation
from nupa.demo.programs import Program, ProgramError, free_port, nupa_run, run_pair

_RAW_SECONDS = 0.3


@dataclass(frozen=True)
class Bench:
    """Where the cases run."""

    fabric: str
    cpus: tuple[int, int]
    hosts: tuple[str, str] = ("host0", "host1")
    #: Fewer iterations: to see that all runs, not to compare.
    quick: bool = False

    def iterations(self, count: int) -> str:
        return str(max(100, count // 20) if self.quick else count)


@dataclass(frozen=True)
class Case:
    """One line: *measure* and *reference* return one sample each, in *unit*."""

    what: str
    unit: str
    target: str
    met: Callable[[float, float], bool]  #: of the medians; the second is 0 without a reference
    measure: Callable[[Bench], float]
    reference_name: str = ""
    reference: Callable[[Bench], float] | None = None


def _perftest(
    bench: Bench, operation: Operation, kind: perftest.Kind, mover: str | None, *options: str
) -> str:
    port = free_port()
    name = perftest.program(operation, kind)
    if perftest.missing([name]):
        raise ProgramError(perftest.INSTALL_HINT)
    server, client = perftest.commands(name, port, options)
    result = run_pair(
        server,
        client,
        fabric=bench.fabric,
        mover=mover,
        hosts=bench.hosts,
        cpus=bench.cpus,
        port=port,
    )
    return result.check().client.stdout


def _latency_us(operation: Operation, mover: str | None = None) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        options = ("-s", "8", "-n", bench.iterations(50_000))
        text = _perftest(bench, operation, "lat", mover, *options)
        return perftest.parse_latency(text)[0].typical_us

    return measure


def _write_gb_per_s(size: int, count: int) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        options = ("-s", str(size), "-n", bench.iterations(count))
        text = _perftest(bench, "write", "bw", "cma", *options)
        return perftest.parse_bandwidth(text)[0].mean_bytes_per_s / 1e9

    return measure


def _send_mega_per_s(bench: Bench) -> float:
    options = ("-s", "8", "-n", bench.iterations(2_000_000))
    text = _perftest(bench, "send", "bw", None, *options)
    return perftest.parse_bandwidth(text)[0].messages_per_s / 1e6


def _cache_line_us(bench: Bench) -> float:
    values = raw.run("raw_cacheline", cpus=bench.cpus, seconds=_RAW_SECONDS)
    return float(values["one_way_ns"]) / 1e3


def _writev(size: int, key: str, scale: float) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        values = raw.run("raw_cma", cpus=bench.cpus, seconds=_RAW_SECONDS, sizes=[size])
        return float(values["results"][0][key]) * scale

    return measure


def _writev_pingpong_us(bench: Bench) -> float:
    values = raw.run("raw_cma", cpus=bench.cpus, seconds=_RAW_SECONDS, sizes=[64])
    return float(values["pingpong_64_ns"]) / 1e3


def _python(key: str, scale: float) -> Callable[[Bench], float]:
    """A number that python_verbs.py prints, which makes a fabric of its own."""

    def measure(bench: Bench) -> float:
        argv = [
            sys.executable,
            "-m",
            "benchmarks.python_verbs",
            *(["--quick"] if bench.quick else []),
        ]
        return float(json.loads(_output(argv, bench.cpus[0]))[key]) * scale

    return measure


def _output(argv: list[str], cpu: int) -> str:
    program = Program(argv, cpu=cpu)
    try:
        outcome = program.outcome()
    finally:
        program.close()
    if not outcome.ok:
        raise ProgramError(outcome.describe())
    return outcome.stdout


def _wall_ms(argv: Callable[[Bench], list[str]]) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        command = argv(bench)
        start_s = time.perf_counter()
        _output(command, bench.cpus[0])
        return (time.perf_counter() - start_s) * 1e3

    return measure


CASES = (
    Case(
        "ib_send_lat -s 8, typical",
        "µs",
        "<= 0.30 and <= 3 x",
        lambda value, reference: value <= 0.30 and value <= 3 * reference,
        _latency_us("send"),
        "cache line, one way",
        _cache_line_us,
    ),
    Case(
        "ib_write_lat -s 8 over cma",
        "µs",
        "<= 1.3 x",
        lambda value, reference: value <= 1.3 * reference,
        _latency_us("write", "cma"),
        "process_vm_writev 64 B",
        _writev(64, "ns", 1e-3),
    ),
    # The same by both ends in turns, as ib_write_lat does: each also waits for the other's line.
    Case(
        "ib_write_lat -s 8, by turns",
        "µs",
        "<= 1.3 x",
        lambda value, reference: value <= 1.3 * reference,
        _latency_us("write", "cma"),
        "writev 64 B, ping-pong",
        _writev_pingpong_us,
    ),
    *(
        Case(
            f"ib_write_bw {name} over cma",
            "GB/s",
            ">= 0.9 x",
            lambda value, reference: value >= 0.9 * reference,
            _write_gb_per_s(size, count),
            f"process_vm_writev {name}",
            _writev(size, "gb_per_s", 1.0),
        )
        for name, size, count in (("64 KiB", 1 << 16, 50_000), ("1 MiB", 1 << 20, 5_000))
    ),
    Case(
        "ib_send_bw -s 8",
        "M/s",
        ">= 5",
        lambda value, _: value >= 5,
        _send_mega_per_s,
    ),
    Case(
        "nupa.verbs: post and poll one",
        "µs",
        "<= 4",
        lambda value, _: value <= 4,
        _python("one_ns", 1e-3),
    ),
    Case(
        "nupa.verbs: each of 64",
        "ns",
        "<= 150",
        lambda value, _: value <= 150,
        _python("each_of_64_ns", 1.0),
    ),
    Case(
        "attach of a process",
        "ms",
        "<= 5",
        lambda value, _: value <= 5,
        _python("attach_ns", 1e-6),
    ),
    Case(
        "nupa run -- true",
        "ms",
        "<= 100",
        lambda value, _: value <= 100,
        _wall_ms(lambda bench: nupa_run(["true"], fabric=bench.fabric)),
        "python -c pass",
        _wall_ms(lambda _: [sys.executable, "-c", "pass"]),
    ),
)
