# SPDX-License-Identifier: BSD-3-Clause
"""Bulk of nupa_net0 and of verbs between the same hosts at once: neither starves the other.

The benchmarks measure the shares of each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.net.lab import DEADLINE_S, Net
from tests.net.real import all_stream, iperf_argv, iperf_end, iperf_server
from tests.programs.needs import needs

VERBS_PORT = 18515
MIB = 1 << 20


def perftest(net: Net, command: Sequence[str]) -> list[float]:
    """Runs client and server to their ends: the line of results, as numbers."""
    argv = [*command, "-F", "-p", str(VERBS_PORT)]
    server = net.start("host1", argv, shell=True)
    net.listening("host1", VERBS_PORT, server)
    client = net.exec("host0", [*argv, "10.0.0.2"], shell=True)
    server.wait(DEADLINE_S).check()
    lines = client.stdout.splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.lstrip().startswith("#bytes"))
    return [float(word) for word in lines[at + 1].split()]


# Its output: bytes, iterations, peak MB/s, average MB/s, million messages/s; latency has its
# average in µs in the sixth column.
@pytest.mark.parametrize("program", ["ib_write_bw", "ib_read_bw", "ib_send_bw"])
def test_bulk_of_verbs_and_of_tcp_both_make_progress(net: Net, program: str) -> None:
    needs(program, "perftest")
    tcp_server = iperf_server(net)
    tcp = net.start("host0", iperf_argv("-t", "4", "-i", "0.5"))
    bytes_each, messages, *_ = perftest(net, [program, "-D", "2"])
    outcome = tcp.wait(DEADLINE_S).check()
    tcp_server.wait(DEADLINE_S).check()
    assert messages * bytes_each > 64 * MIB
    all_stream(iperf_end(outcome), 1, least_bytes=64 * MIB)
    # At no time does it stand still.
    for interval in json.loads(outcome.stdout)["intervals"]:
        assert interval["sum"]["bytes"] > 0, interval


def test_small_messages_of_verbs_pass_bulk_of_tcp(net: Net) -> None:
    needs("ib_write_lat", "perftest")
    tcp_server = iperf_server(net)
    tcp = net.start("host0", iperf_argv("-t", "3", "-P", "4"))
    *_, average_us, _, _, _ = perftest(net, ["ib_write_lat", "-n", "2000"])
    assert 0 < average_us < 10_000
    all_stream(iperf_end(tcp.wait(DEADLINE_S).check()), 4)
    tcp_server.wait(DEADLINE_S).check()
