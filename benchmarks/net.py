# SPDX-License-Identifier: BSD-3-Clause
"""TCP and UDP over nupa_net0 and over the references.

Client and server are pinned, each to one of the two CPUs.  The processes that move the frames are
not, on both sides of a ratio.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable

from benchmarks.case import Bench, Case, Target, at_least, at_most
from benchmarks.links import Kind, Link
from nupa.measure import raw
from nupa.programs import iperf3 as iperf3_tool
from nupa.programs.pair import ProgramError, ProgramPair, free_port

_PROBE_S = 0.5
_IDLE_S = 10.0


def iperf3(link: Link, port: int, *options: str) -> tuple[list[str], list[str]]:
    """Returns the commands of a server for one client, and of a client that prints JSON."""
    if shutil.which("iperf3") is None:
        raise ProgramError(iperf3_tool.INSTALL_HINT)
    server, client = iperf3_tool.commands(link.addresses[0], port, options)
    return link.command(0, server), link.command(1, client)


def gbit_per_s(text: str) -> float:
    """Returns the bytes that arrived in both directions.  ProgramError: none did."""
    try:
        return iperf3_tool.parse_bits_per_s(text) / 1e9
    except iperf3_tool.Iperf3Error as error:
        raise ProgramError(str(error)) from error


def stream(kind: Kind, *options: str) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        link = bench.links.get(kind, bench.fabric)
        port = free_port()
        length = ("-n", "64M") if bench.quick else ("-t", "1")
        server, client = iperf3(link, port, *length, *options)
        pair = ProgramPair(server, client, cpus=bench.cpus, port=port)
        return gbit_per_s(pair.run().check().client.stdout)

    return measure


def _probe(bench: Bench, link: Link, cpus: tuple[int, int], *options: str) -> dict[str, float]:
    port = free_port()
    where = ["--address", link.addresses[0], "--port", str(port)]
    seconds = _PROBE_S / 5 if bench.quick else _PROBE_S
    program = raw.path("net_probe")
    server = link.command(0, [program, "--serve", *where])
    client = link.command(1, [program, *options, *where, "--seconds", f"{seconds:g}", "--json"])
    pair = ProgramPair(server, client, cpus=cpus, port=port)
    values: dict[str, float] = json.loads(pair.run().check().client.stdout)
    return values


def round_trip_us(kind: Kind) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        link = bench.links.get(kind, bench.fabric)
        return _probe(bench, link, bench.cpus, "--tcp")["round_trip_ns"] / 1e3

    return measure


def round_trip_on_one_cpu_us(kind: Kind) -> Callable[[Bench], float]:
    """Measures without wake-ups across CPUs, so that only the time of the code remains."""

    def measure(bench: Bench) -> float:
        link = bench.links.get(kind, bench.fabric)
        cpu = bench.cpus[0]
        with link.pinned(cpu):
            return _probe(bench, link, (cpu, cpu), "--tcp")["round_trip_ns"] / 1e3

    return measure


def datagrams_k_per_s(kind: Kind) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        link = bench.links.get(kind, bench.fabric)
        values = _probe(bench, link, bench.cpus, "--udp", "--bytes", "64")
        return values["received_per_s"] / 1e3

    return measure


def _idle_percent(bench: Bench) -> float:
    """Returns per cent of one CPU that all threads of the network use while it is idle."""
    link = bench.links.get("nupa_net0", bench.fabric)
    seconds = _IDLE_S / 10 if bench.quick else _IDLE_S
    before_ns, start_ns = link.cpu_ns(), time.monotonic_ns()
    time.sleep(seconds)
    return 100 * (link.cpu_ns() - before_ns) / (time.monotonic_ns() - start_ns)


CASES = (
    Case(
        "net: iperf3, one stream",
        "Gb/s",
        at_least(1),
        stream("nupa_net0"),
        "veth, default MTU",
        stream("veth"),
    ),
    Case(
        "net: iperf3, beside 64 KiB frames",
        "Gb/s",
        at_least(0.6),
        stream("nupa_net0"),
        "veth, MTU 65535",
        stream("veth, MTU 65535"),
    ),
    Case(
        "net: iperf3, beside a TAP loop",
        "Gb/s",
        at_least(0.8),
        stream("nupa_net0"),
        "TAP loop",
        stream("TAP loop"),
    ),
    Case(
        "net: iperf3, beside large frames",
        "Gb/s",
        None,
        stream("nupa_net0"),
        "veth, MTU 9000",
        stream("veth, MTU 9000"),
    ),
    Case(
        "net: iperf3, beside no offload",
        "Gb/s",
        None,
        stream("nupa_net0"),
        "TAP loop, MTU 1500",
        stream("TAP loop, plain"),
    ),
    Case(
        "net: iperf3, 8 streams",
        "Gb/s",
        None,
        stream("nupa_net0", "-P", "8"),
        "TAP loop",
        stream("TAP loop", "-P", "8"),
    ),
    Case(
        "net: iperf3, both directions",
        "Gb/s",
        None,
        stream("nupa_net0", "--bidir"),
        "TAP loop",
        stream("TAP loop", "--bidir"),
    ),
    Case(
        "net: TCP round trip of 1 B",
        "µs",
        at_most(1.5),
        round_trip_us("nupa_net0"),
        "TAP loop",
        round_trip_us("TAP loop"),
    ),
    Case(
        "net: round trip on one CPU",
        "µs",
        at_most(1.5),
        round_trip_on_one_cpu_us("nupa_net0"),
        "TAP loop",
        round_trip_on_one_cpu_us("TAP loop"),
    ),
    Case(
        "net: TCP round trip, beside veth",
        "µs",
        None,
        round_trip_us("nupa_net0"),
        "veth",
        round_trip_us("veth"),
    ),
    Case(
        "net: UDP datagrams of 64 B",
        "k/s",
        at_least(1),
        datagrams_k_per_s("nupa_net0"),
        "TAP loop",
        datagrams_k_per_s("TAP loop"),
    ),
    Case(
        "net: idle, of one CPU",
        "%",
        Target("< 0.1", lambda value, _: value < 0.1),
        _idle_percent,
        once=True,
    ),
)
