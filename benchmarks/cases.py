# SPDX-License-Identifier: BSD-3-Clause
"""The measurements: each with its reference and its target."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nupa
from benchmarks import (
    capture,
    fio,
    mpi,
    net,
    over_verbs,
    packets,
    priority,
    record,
    registration,
    scale,
    tenant_rates,
    transactions,
    trunk,
    ucx,
    windows,
    wire,
)
from benchmarks.case import Bench, Case, Target, at_least, at_most, no_less, no_more, output
from benchmarks.model import packets as model_packets
from benchmarks.model import rates as model_rates
from nupa.measure import raw
from nupa.programs import perftest
from nupa.programs.pair import NUPA, ProgramError, ProgramPair, free_port, nupa_run
from nupa.programs.perftest import Operation

_RAW_SECONDS = 0.3


def _perftest(
    bench: Bench, operation: Operation, kind: perftest.Kind, mover: str | None, *options: str
) -> str:
    port = free_port()
    name = perftest.program(operation, kind)
    if perftest.missing([name]):
        raise ProgramError(perftest.INSTALL_HINT)
    server, client = perftest.commands(name, port, options)
    pair = ProgramPair(
        server,
        client,
        fabric=bench.fabric,
        mover=mover,
        hosts=bench.hosts,
        cpus=bench.cpus,
        port=port,
    )
    return pair.run().check().client.stdout


def _latency_us(
    operation: Operation, mover: str | None = None, count: int = 50_000, *more: str, size: int = 8
) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        sized = () if operation == "atomic" else ("-s", str(size))
        options = (*sized, "-n", bench.iterations(count), *more)
        text = _perftest(bench, operation, "lat", mover, *options)
        return perftest.parse_latency(text)[0].typical_us

    return measure


def _write_gb_per_s(size: int, count: int, mover: str | None) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        options = ("-s", str(size), "-n", bench.iterations(count))
        text = _perftest(bench, "write", "bw", mover, *options)
        return perftest.parse_bandwidth(text)[0].mean_bytes_per_s / 1e9

    return measure


def _mega_per_s(operation: Operation) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        options = ("-s", "8", "-n", bench.iterations(2_000_000))
        text = _perftest(bench, operation, "bw", None, *options)
        return perftest.parse_bandwidth(text)[0].messages_per_s / 1e6

    return measure


def _cache_line_us(key: str) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        values = raw.run("raw_cacheline", cpus=bench.cpus, seconds=_RAW_SECONDS)
        return float(values[key]) / 1e3

    return measure


def _ucx_us(test: ucx.Test, size: int = 8, count: int = 200_000) -> Callable[[Bench], float]:
    return lambda bench: ucx.run(test, size, bench.iterations(count), bench.cpus).typical_us


def _ucx_mega_per_s(test: ucx.Test) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        return ucx.run(test, 8, bench.iterations(2_000_000), bench.cpus).messages_per_s / 1e6

    return measure


def _ucx_put_gb_per_s(size: int, count: int) -> Callable[[Bench], float]:
    return lambda bench: ucx.run("ucp_put_bw", size, bench.iterations(count), bench.cpus).gb_per_s


def _memcpy_gb_per_s(size: int) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        values = raw.run("raw_memcpy", cpus=bench.cpus, seconds=_RAW_SECONDS, sizes=[size])
        return float(values["results"][0]["gb_per_s"])

    return measure


def _event_round_trip_us(bench: Bench) -> float:
    return 2 * _latency_us("send", None, 20_000, "-e")(bench)


def _eventfd_us(bench: Bench) -> float:
    values = raw.run("raw_eventfd", cpus=bench.cpus, seconds=_RAW_SECONDS)
    return float(values["round_trip_ns"]) / 1e3


#: Names, bytes, iterations.
_BULK = (
    ("4 KiB", 1 << 12, 200_000),
    ("64 KiB", 1 << 16, 50_000),
    ("1 MiB", 1 << 20, 5_000),
)


def _writev(size: int, key: str, scale: float) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        values = raw.run("raw_cma", cpus=bench.cpus, seconds=_RAW_SECONDS, sizes=[size])
        return float(values["results"][0][key]) * scale

    return measure


def _writev_pingpong_us(bench: Bench) -> float:
    values = raw.run("raw_cma", cpus=bench.cpus, seconds=_RAW_SECONDS, sizes=[64])
    return float(values["pingpong_64_ns"]) / 1e3


def _python(key: str, scale: float) -> Callable[[Bench], float]:
    """Measures by python_verbs.py, which makes a fabric of its own."""

    def measure(bench: Bench) -> float:
        argv = [sys.executable, "-m", "benchmarks.python_verbs", *["--quick"] * bench.quick]
        return float(json.loads(output(argv, bench.cpus[0]))[key]) * scale

    return measure


def _true(bench: Bench) -> list[str]:
    """Returns the command line of `nupa run -- true`, by the installed command."""
    words = nupa_run(["true"], fabric=bench.fabric)[len(NUPA) :]
    return [str(Path(nupa.__path__[0]) / "bin" / "nupa"), *words]


def _wall_ms(argv: Callable[[Bench], list[str]]) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        command = argv(bench)
        start_s = time.perf_counter()
        output(command, bench.cpus[0])
        return (time.perf_counter() - start_s) * 1e3

    return measure


CASES = (
    Case(
        "ib_write_lat -s 8",
        "µs",
        at_most(0.9),
        _latency_us("write"),
        "ucp_put_lat",
        _ucx_us("ucp_put_lat"),
    ),
    Case(
        "ib_write_lat -s 8, the line",
        "µs",
        at_most(1.4),
        _latency_us("write"),
        "cache line, one way",
        _cache_line_us("one_way_ns"),
    ),
    # A program such as ib_write_lat polls another line, in its own memory, than it stores to.
    Case(
        "ib_write_lat -s 8, two lines",
        "µs",
        at_most(1.4),
        _latency_us("write"),
        "a line each way",
        _cache_line_us("two_lines_ns"),
    ),
    Case(
        "ib_send_lat -s 8, am",
        "µs",
        at_most(0.75),
        _latency_us("send"),
        "ucp_am_lat",
        _ucx_us("ucp_am_lat"),
    ),
    *(
        Case(
            f"ib_send_lat -s {size}, am",
            "µs",
            at_most(0.8 if size == 4096 else 1),
            _latency_us("send", None, 100_000, size=size),
            "ucp_am_lat",
            _ucx_us("ucp_am_lat", size, 100_000),
        )
        for size in (64, 256, 1024, 4096, 8192, 65536)
    ),
    Case(
        "ib_send_lat of 1 MiB",
        "µs",
        at_most(1.1),
        _latency_us("send", None, 2_000, size=1 << 20),
        "ib_write_lat of 1 MiB",
        _latency_us("write", None, 2_000, size=1 << 20),
    ),
    Case(
        "ib_send_lat -s 8, tag",
        "µs",
        at_most(0.9),
        _latency_us("send"),
        "tag_lat",
        _ucx_us("tag_lat"),
    ),
    Case(
        "ib_send_lat -s 8, the line",
        "µs",
        Target(
            "<= 0.30 and <= 3 x", lambda value, reference: value <= 0.30 and value <= 3 * reference
        ),
        _latency_us("send"),
        "cache line, one way",
        _cache_line_us("one_way_ns"),
    ),
    Case(
        "ib_read_lat -s 8",
        "µs",
        at_most(0.5),
        _latency_us("read", None, 20_000),
        "the same over cma",
        _latency_us("read", "cma", 20_000),
    ),
    Case(
        "ib_atomic_lat",
        "µs",
        at_most(0.5),
        _latency_us("atomic", None, 20_000),
        "the same over relay",
        _latency_us("atomic", "relay", 20_000),
    ),
    Case(
        "ib_write_lat -s 8 over cma",
        "µs",
        at_most(1.3),
        _latency_us("write", "cma"),
        "process_vm_writev 64 B",
        _writev(64, "ns", 1e-3),
    ),
    # Both ends take turns, as in ib_write_lat: each also waits for the other's line.
    Case(
        "the same, by turns",
        "µs",
        at_most(1.3),
        _latency_us("write", "cma"),
        "writev 64 B, ping-pong",
        _writev_pingpong_us,
    ),
    Case(
        "ib_send_lat -e, round trip",
        "µs",
        at_most(1.5),
        _event_round_trip_us,
        "wake-up by eventfd",
        _eventfd_us,
    ),
    Case(
        "ib_write_bw -s 8",
        "M/s",
        at_least(1),
        _mega_per_s("write"),
        "ucp_put_bw",
        _ucx_mega_per_s("ucp_put_bw"),
    ),
    Case(
        "ib_send_bw -s 8, am",
        "M/s",
        at_least(2),
        _mega_per_s("send"),
        "ucp_am_bw",
        _ucx_mega_per_s("ucp_am_bw"),
    ),
    Case(
        "ib_send_bw -s 8, tag",
        "M/s",
        at_least(1.5),
        _mega_per_s("send"),
        "tag_bw",
        _ucx_mega_per_s("tag_bw"),
    ),
    *(
        Case(
            f"ib_write_bw {name}",
            "GB/s",
            at_least(0.85),
            _write_gb_per_s(size, count, None),
            f"memcpy {name}",
            _memcpy_gb_per_s(size),
        )
        for name, size, count in _BULK
    ),
    *(
        Case(
            f"ib_write_bw {name}, UCX",
            "GB/s",
            at_least(1),
            _write_gb_per_s(size, count, None),
            f"ucp_put_bw {name}",
            _ucx_put_gb_per_s(size, count),
        )
        for name, size, count in _BULK
    ),
    Case("ib_write_bw 4 MiB", "GB/s", no_less(11), _write_gb_per_s(1 << 22, 1_000, None)),
    *(
        Case(
            f"ib_write_bw {name} over cma",
            "GB/s",
            at_least(0.9),
            _write_gb_per_s(size, count, "cma"),
            f"process_vm_writev {name}",
            _writev(size, "gb_per_s", 1.0),
        )
        for name, size, count in _BULK[1:]
    ),
    *scale.CASES,
    *over_verbs.CASES,
    *mpi.CASES,
    Case("nupa.verbs: post and poll one", "µs", no_more(4), _python("one_ns", 1e-3)),
    Case("nupa.verbs: each of 64", "ns", no_more(150), _python("each_of_64_ns", 1.0)),
    Case("attach of a process", "ms", no_more(5), _python("attach_ns", 1e-6)),
    Case(
        "nupa run -- true",
        "ms",
        no_more(20),
        _wall_ms(_true),
        "python -c pass",
        _wall_ms(lambda _: [sys.executable, "-c", "pass"]),
    ),
    *registration.CASES,
    *net.CASES,
    *priority.CASES,
    *fio.CASES,
    *packets.CASES,
    *windows.CASES,
    *transactions.CASES,
    *model_packets.CASES,
    *model_rates.CASES,
    *tenant_rates.CASES,
    *wire.CASES,
    *trunk.CASES,
    *capture.cases(_latency_us("send"), _latency_us("write")),
    *record.cases(ib_write_lat=_latency_us("write"), ib_send_lat=_latency_us("send")),
)
