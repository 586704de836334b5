# SPDX-License-Identifier: BSD-3-Clause
"""What grows: queue pairs, regions, peers, threads, by programs of benchmarks/csrc."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from benchmarks import ucx
from benchmarks.case import Bench, Case, at_least, no_less, no_more
from nupa.measure import raw

#: Seconds of measuring by each program.
_SECONDS = {"many_qps": 0.6, "many_regions": 0.6, "empty_poll": 0.9, "threads": 0.9}


def _of(program: str, key: str, scale: float = 1.0) -> Callable[[Bench], float]:
    def measure(bench: Bench) -> float:
        values = raw.run(program, cpus=bench.cpus, seconds=_SECONDS[program])
        return float(values[key]) * scale

    return measure


@cache
def _backed(cpus: tuple[int, int]) -> dict[str, float]:
    """Run it once: what is backed does not depend on the time that it takes."""
    return raw.run("all_to_all", cpus=cpus, seconds=30)


def _backed_gb(key: str) -> Callable[[Bench], float]:
    return lambda bench: float(_backed(bench.cpus)[key]) / 1e9


def _ucx_threads_mega_per_s(bench: Bench) -> float:
    count = bench.iterations(2_000_000)
    return ucx.run("ucp_put_bw", 8, count, bench.cpus, "-T", "2").messages_per_s / 1e6


CASES = (
    Case(
        "1,024 QPs: WRITE 8 B by turns",
        "M/s",
        at_least(0.7),
        _of("many_qps", "many_per_s", 1e-6),
        "one QP",
        _of("many_qps", "one_per_s", 1e-6),
    ),
    Case("1,024 QPs: resident, each", "KiB", no_more(16), _of("many_qps", "kib_each")),
    Case("QPs made and connected", "/s", no_less(10_000), _of("many_qps", "connects_per_s")),
    Case(
        "100,000 regions: WRITE 8 B by turns",
        "µs",
        no_more(0.1),
        _of("many_regions", "many_ns", 1e-3),
        "64 regions",
        _of("many_regions", "few_ns", 1e-3),
    ),
    Case(
        "empty poll, 2,000 QPs wait for receives",
        "ns",
        no_more(40),
        _of("empty_poll", "waiting_ns"),
        "none waits",
        _of("empty_poll", "idle_ns"),
    ),
    Case(
        "empty poll, 64 peers",
        "ns",
        no_more(40),
        _of("empty_poll", "peers_ns"),
        "one peer",
        _of("empty_poll", "idle_ns"),
    ),
    Case(
        "200 processes, SEND 8 B to each: backed",
        "GB",
        no_more(0.5),
        _backed_gb("lines_bytes"),
    ),
    Case(
        "200 processes, SEND 4 KiB to each: backed",
        "GB",
        no_more(2),
        _backed_gb("payloads_bytes"),
    ),
    Case(
        "two threads: WRITE 8 B",
        "M/s",
        at_least(1.8),
        _of("threads", "two_per_s", 1e-6),
        "one thread",
        _of("threads", "one_per_s", 1e-6),
    ),
    Case(
        "two threads, a context each",
        "M/s",
        at_least(1.8),
        _of("threads", "contexts_per_s", 1e-6),
        "one thread",
        _of("threads", "one_per_s", 1e-6),
    ),
    Case(
        "two threads: WRITE 8 B, UCX",
        "M/s",
        at_least(1),
        _of("threads", "two_per_s", 1e-6),
        "ucp_put_bw -T 2",
        _ucx_threads_mega_per_s,
    ),
)
