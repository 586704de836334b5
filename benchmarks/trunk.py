# SPDX-License-Identifier: BSD-3-Clause
"""Programs on two machines of one fabric, beside UCX over the same cable.

The trunks carry by the same UCX, over TCP.  Client and server are pinned as everywhere, on both
sides of a ratio; the trunks' processes are not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import ucx
from benchmarks.case import Bench, Case, at_least, at_most
from nupa.measure import raw
from nupa.programs import perftest
from nupa.programs.pair import ProgramError, ProgramPair, free_port
from nupa.programs.perftest import Operation
from tests.trunk.lab import Cluster, cluster

_DEADLINE_S = 60.0
_RAW_SECONDS = 0.3


@contextmanager
def _joined() -> Iterator[Cluster]:
    """Makes two machines, each with one host of a fabric, whose trunks are those of ucx.folder."""
    library = ucx.folder() / "lib" / "libucp.so.0"
    with (
        tempfile.TemporaryDirectory(prefix="nupa-bench-") as folder,
        cluster(Path(folder), 2, hosts=2, trunk=f'library = "{library}"\n') as lab,
    ):
        lab.up().check()
        yield lab


def _perftest(bench: Bench, operation: Operation, kind: perftest.Kind, *options: str) -> str:
    lab = bench.machines.get(_joined)
    name = perftest.program(operation, kind)
    if perftest.missing([name]):
        raise ProgramError(perftest.INSTALL_HINT)
    port = free_port()
    server, client = perftest.commands(name, port, options, server=lab[0].space.ipv4)
    pair = ProgramPair(
        lab[0].on("host0", *server),
        lab[1].on("host1", *client),
        cpus=bench.cpus,
        port=port,
        deadline_s=_DEADLINE_S,
    )
    return pair.run().check().client.stdout


def _latency_us(operation: Operation, *more: str) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        options = ("-s", "8", "-n", bench.iterations(20_000), *more)
        return perftest.parse_latency(_perftest(bench, operation, "lat", *options))[0].typical_us

    return measure


def _gb_per_s(operation: Operation, size: int, count: int) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        options = ("-s", str(size), "-n", bench.iterations(count))
        text = _perftest(bench, operation, "bw", *options)
        return perftest.parse_bandwidth(text)[0].mean_bytes_per_s / 1e9

    return measure


def _trunks_s(lab: Cluster) -> float:
    """Returns the processor time of the trunks so far."""
    return sum(
        int((task / "schedstat").read_text().split()[0]) / 1e9
        for machine in lab.machines
        for trunk in machine.trunks()
        for task in Path(f"/proc/{trunk.pid}/task").iterdir()
    )


def _cpu_s_per_gb(operation: Operation, size: int, count: int) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        lab = bench.machines.get(_joined)
        options = ("-s", str(size), "-n", bench.iterations(count))
        before_s = _trunks_s(lab)
        _perftest(bench, operation, "bw", *options)
        return (_trunks_s(lab) - before_s) / (size * int(options[-1]) / 1e9)

    return measure


def _ucx(bench: Bench, test: ucx.Test, size: int, count: int, *options: str) -> ucx.Result:
    lab = bench.machines.get(_joined)
    place = ucx.by_tcp(lab[0].space, lab[1].space)
    return ucx.run(test, size, bench.iterations(count), bench.cpus, *options, place=place)


def _ucx_us(test: ucx.Test) -> Callable[[Bench], float]:
    return lambda bench: _ucx(bench, test, 8, 20_000, "-E", "sleep").typical_us


def _ucx_gb_per_s(test: ucx.Test, size: int, count: int) -> Callable[[Bench], float]:
    return lambda bench: _ucx(bench, test, size, count, "-E", "sleep").gb_per_s


def _wake_up_us(bench: Bench) -> float:
    """Returns the time of one wake-up across CPUs, of which each hop through a trunk has one."""
    return (
        float(raw.run("raw_eventfd", cpus=bench.cpus, seconds=_RAW_SECONDS)["round_trip_ns"]) / 2e3
    )


#: With UCX's test of the same kind.
_OPERATIONS: tuple[tuple[Operation, ucx.Test], ...] = (("write", "ucp_put_bw"), ("send", "tag_bw"))
#: Names, bytes, iterations.
_BULK = (("64 KiB", 1 << 16, 20_000), ("1 MiB", 1 << 20, 2_000))

CASES = (
    Case(
        "trunk: ib_send_lat -s 8",
        "µs",
        at_most(2.5),
        _latency_us("send"),
        "UCX over tcp, tag_lat",
        _ucx_us("tag_lat"),
    ),
    Case(
        "trunk: ib_send_lat -s 8 -e",
        "µs",
        at_most(2.5),
        _latency_us("send", "-e"),
        "UCX over tcp, tag_lat",
        _ucx_us("tag_lat"),
    ),
    Case(
        "trunk: ib_write_lat -s 8",
        "µs",
        at_most(2.5),
        _latency_us("write"),
        "UCX over tcp, ucp_put_lat",
        _ucx_us("ucp_put_lat"),
    ),
    Case(
        "trunk: ib_send_lat -e, wake-ups",
        "µs",
        None,
        _latency_us("send", "-e"),
        "one wake-up by eventfd",
        _wake_up_us,
    ),
    *(
        Case(
            f"trunk: ib_{operation}_bw {name}",
            "GB/s",
            at_least(0.8),
            _gb_per_s(operation, size, count),
            f"UCX over tcp, {test}",
            _ucx_gb_per_s(test, size, count),
        )
        for operation, test in _OPERATIONS
        for name, size, count in _BULK
    ),
    *(
        Case(
            f"trunk: ib_{operation}_bw {name}, both trunks' CPU time",
            "s/GB",
            None,
            _cpu_s_per_gb(operation, size, count),
        )
        for operation, _ in _OPERATIONS
        for name, size, count in _BULK
    ),
)
