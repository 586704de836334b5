# SPDX-License-Identifier: BSD-3-Clause
"""Wires between two machines, beside UCX over TCP and plain UDP on the same cable.

Client and server are pinned, each to one of the two CPUs; the threads of the engine are theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from benchmarks import ucx
from benchmarks.case import Bench, Case, at_least, at_most, no_less
from nupa.measure import raw
from nupa.programs import perftest
from nupa.programs.pair import ProgramError, ProgramPair, free_port
from nupa.programs.perftest import Operation
from tests.common.namespaces import ETHERNET_MTU_BYTES, machines
from tests.programs import users
from tests.wire.lab import Wired, wired

_DEADLINE_S = 60.0
_UDP_S = 0.5
_IP_AND_UDP_BYTES = 28
_GSO_BYTES = 65000
Lab = Callable[[], AbstractContextManager[Wired]]


def _lab(mtu_bytes: int) -> Lab:
    @contextmanager
    def make() -> Iterator[Wired]:
        """Makes two machines with fabrics of their own and a wire."""
        with machines(2, mtu_bytes=mtu_bytes) as pair, wired(pair, users.ourselves()) as stage:
            yield stage

    return make


_LABS = {mtu_bytes: _lab(mtu_bytes) for mtu_bytes in (ETHERNET_MTU_BYTES, 9000)}


def _perftest(
    bench: Bench, mtu: int, operation: Operation, kind: perftest.Kind, *options: str
) -> str:
    stage = bench.machines.get(_LABS[mtu])
    name = perftest.program(operation, kind)
    if perftest.missing([name]):
        raise ProgramError(perftest.INSTALL_HINT)
    pair = stage.pair([name, "-F", *options], cpus=bench.cpus, deadline_s=_DEADLINE_S)
    return pair.run().check().client.stdout


def _latency_us(mtu: int, operation: Operation) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        options = ("-s", "8", "-n", bench.iterations(20_000))
        text = _perftest(bench, mtu, operation, "lat", *options)
        return perftest.parse_latency(text)[0].typical_us

    return measure


def _bandwidth(
    mtu: int, operation: Operation, size: int, count: int
) -> Callable[[Bench], perftest.Bandwidth]:
    def measure(bench: Bench) -> perftest.Bandwidth:
        options = ("-s", str(size), "-n", bench.iterations(count))
        return perftest.parse_bandwidth(_perftest(bench, mtu, operation, "bw", *options))[0]

    return measure


def _gb_per_s(mtu: int, operation: Operation, size: int, count: int) -> Callable[[Bench], float]:
    measure = _bandwidth(mtu, operation, size, count)
    return lambda bench: measure(bench).mean_bytes_per_s / 1e9


def _mega_per_s(mtu: int, operation: Operation) -> Callable[[Bench], float]:
    measure = _bandwidth(mtu, operation, 8, 500_000)
    return lambda bench: measure(bench).messages_per_s / 1e6


def _ucx(bench: Bench, mtu: int, test: ucx.Test, size: int, count: int) -> ucx.Result:
    left, right = bench.machines.get(_LABS[mtu]).machines
    place = ucx.by_tcp(left, right)
    return ucx.run(test, size, bench.iterations(count), bench.cpus, place=place)


def _ucx_us(mtu: int, test: ucx.Test) -> Callable[[Bench], float]:
    return lambda bench: _ucx(bench, mtu, test, 8, 20_000).typical_us


def _ucx_gb_per_s(mtu: int, test: ucx.Test, size: int, count: int) -> Callable[[Bench], float]:
    return lambda bench: _ucx(bench, mtu, test, size, count).gb_per_s


def _udp(bench: Bench, mtu: int, *options: str) -> dict[str, float]:
    left, right = bench.machines.get(_LABS[mtu]).machines
    port = free_port()
    program, where = raw.path("net_probe"), ["--address", left.ipv4, "--port", str(port)]
    seconds = _UDP_S / 5 if bench.quick else _UDP_S
    pair = ProgramPair(
        left.argv(program, "--serve", *where),
        right.argv(program, *options, *where, "--seconds", f"{seconds:g}", "--json"),
        cpus=bench.cpus,
        port=port,
        deadline_s=_DEADLINE_S,
    )
    values: dict[str, float] = json.loads(pair.run().check().client.stdout)
    return values


def _udp_us(mtu: int) -> Callable[[Bench], float]:
    return lambda bench: _udp(bench, mtu, "--poll", "--bytes", "8")["round_trip_ns"] / 2e3


def _udp_gb_per_s(mtu: int) -> Callable[[Bench], float]:
    """Returns what arrives of datagrams that the kernel cuts and joins (UDP_SEGMENT, UDP_GRO)."""
    segment = mtu - _IP_AND_UDP_BYTES
    together = _GSO_BYTES // segment * segment

    def measure(bench: Bench) -> float:
        options = ("--udp", "--bytes", str(together), "--segment", str(segment))
        return _udp(bench, mtu, *options)["received_per_s"] * segment / 1e9

    return measure


def _cases(mtu: int) -> Iterator[Case]:
    name = f", MTU {mtu}"
    send_us = _latency_us(mtu, "send")
    yield Case(
        f"wire: ib_send_lat -s 8{name}",
        "µs",
        at_most(1.2),
        send_us,
        "UDP by poll",
        _udp_us(mtu),
    )
    yield Case(
        f"wire: ib_send_lat -s 8, UCX{name}",
        "µs",
        at_most(0.9),
        send_us,
        "UCX over tcp, tag_lat",
        _ucx_us(mtu, "tag_lat"),
    )
    for words, size, count in (("64 KiB", 1 << 16, 10_000), ("1 MiB", 1 << 20, 1_000)):
        write = _gb_per_s(mtu, "write", size, count)
        yield Case(
            f"wire: ib_write_bw {words}{name}",
            "GB/s",
            at_least(1.0),
            write,
            "UCX over tcp, ucp_put_bw",
            _ucx_gb_per_s(mtu, "ucp_put_bw", size, count),
        )
        yield Case(
            f"wire: ib_write_bw {words}, UDP{name}",
            "GB/s",
            at_least(0.8),
            write,
            "UDP with segmentation offload",
            _udp_gb_per_s(mtu),
        )
    operations: tuple[Operation, ...] = ("write", "send")
    for operation in operations:
        yield Case(
            f"wire: ib_{operation}_bw -s 8{name}", "M/s", no_less(1), _mega_per_s(mtu, operation)
        )


CASES = tuple(case for mtu in _LABS for case in _cases(mtu))
