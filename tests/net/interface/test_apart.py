# SPDX-License-Identifier: BSD-3-Clause
"""Interfaces keep fabrics, pumps and strangers apart; they count frames and idle seconds."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import pytest

from nupa.programs.pair import ProgramOutcome
from tests.net.lab import Net, ip
from tests.net.real import NAME, all_stream, carrier_becomes, hears_nothing, iperf, link, ping_all
from tests.programs.needs import needs

STRANGER = "10.0.0.77"
STRANGER_MAC = "02:00:0a:00:00:4d"
IDLE_S = 1.5
DROPS = ("tx_unknown", "tx_down", "tx_full", "tx_invalid", "rx_invalid", "rx_refused")


def counters(net: Net, host: str) -> dict[str, int]:
    """Returns the fabric's counters of the interface, as in `nupa net ls --json`."""
    (found,) = (entry["counters"] for entry in net.ls() if entry["host"] == host)
    assert isinstance(found, dict)
    return found


def echoes_received(table: str) -> int:
    """Returns InEchos of /proc/net/snmp."""
    names, values = (line.split() for line in table.splitlines() if line.startswith("Icmp:"))
    return int(values[names.index("InEchos")])


def on(net: Net, fabric: str, host: str, *command: str) -> ProgramOutcome:
    return net.nupa("net", "exec", "--fabric", fabric, host, "--", *command)


def test_two_fabrics_with_the_same_addresses_do_not_see_each_other(by_user: Net) -> None:
    net, ping = by_user, [needs("ping", "iputils-ping"), "-n"]
    fabrics = ("blue", "red")
    for fabric in fabrics:
        net.ok("up", "--name", fabric)
        net.ok("net", "up", "--fabric", fabric)
    # As slow, for it waits for the last answer no longer than for one interval.
    three = [*ping, "-c", "3", "-i", "0.2", ip(1)]
    for fabric in fabrics:
        assert on(net, fabric, "host0", *three).ok
        # Each its own three, not those of both.
        table = on(net, fabric, "host1", "cat", "/proc/net/snmp").stdout
        assert echoes_received(table) == 3
    net.ok("port", "host1", "down", "--fabric", "blue")
    few = [*ping, "-c", "2", "-i", "0.05", "-W", "0.3", ip(1)]
    assert not on(net, "blue", "host0", *few).ok
    assert on(net, "red", "host0", *three).ok


def test_two_pumps_serve_a_fabric_as_one_does(down: Net) -> None:
    down.ok("up")
    for host in ("host0", "host1"):
        down.ok("net", "up", "--host", host)
    assert len({entry["pump"] for entry in down.ls()}) == 2
    ping_all(down, "host0", ip(1), 200, "-f", "-q", "-s", "60000")
    ping_all(down, "host1", "fd4e:5550:4100::1", 200, "-f", "-q", "-s", "60000")
    all_stream(iperf(down), 1, least_bytes=16 << 20)
    all_stream(iperf(down, "--bidir", "-P", "4"), 8)
    assert iperf(down, "-u", "-b", "2M", "-l", "100")["sum"]["packets"] > 1000


def test_frames_to_nobody_are_dropped_and_counted(net: Net) -> None:
    add = ["neigh", "add", STRANGER, "lladdr", STRANGER_MAC, "dev", NAME, "nud", "permanent"]
    net.exec("host0", [needs("ip", "iproute2"), *add])
    before, there = counters(net, "host0"), counters(net, "host1")
    hears_nothing(net, "host0", STRANGER)
    after = counters(net, "host0")
    assert after["tx_unknown"] - before["tx_unknown"] == 4
    assert counters(net, "host1")["rx_packets"] - there["rx_packets"] < 4
    shown = net.ok("show", "--json").stdout
    assert f'"tx_unknown": {after["tx_unknown"]}' in shown


def test_frames_to_a_host_without_interface_are_dropped_and_counted(down: Net) -> None:
    down.ok("up")
    down.ok("net", "up", "--host", "host0")
    add = ["neigh", "add", ip(1), "lladdr", "02:00:0a:00:00:02", "dev", NAME, "nud", "permanent"]
    down.exec("host0", [needs("ip", "iproute2"), *add])
    before = counters(down, "host0")["tx_down"]
    hears_nothing(down, "host0", ip(1))
    assert counters(down, "host0")["tx_down"] - before >= 4


def test_the_kernel_counts_what_the_fabric_counts(net: Net) -> None:
    ping_all(net, "host0", ip(1), 50, "-i", "0.002", "-s", "1000")
    of_kernel, of_fabric = link(net, "host0")["stats64"], counters(net, "host0")
    assert of_kernel["tx"]["packets"] >= 50
    # Requests that the pump answers, such as ARP, do not cross; unrelated frames may come in
    # between: few.
    for way in ("tx", "rx"):
        assert abs(of_kernel[way]["packets"] - of_fabric[f"{way}_packets"]) < 10
        assert of_kernel[way]["errors"] == of_kernel[way]["dropped"] == 0
    assert {name: of_fabric[name] for name in DROPS} == dict.fromkeys(DROPS, 0)


def cpu_s(pid: int) -> float:
    """Seconds that all threads of a process computed (proc_pid_schedstat: nanoseconds)."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in threads) / 1e9


@pytest.mark.parametrize("queues", [1, 2])
def test_a_pump_with_nothing_to_do_sleeps(down: Net, queues: int) -> None:
    down.ok("net", "up", "--queues", str(queues))
    ping_all(down, "host0", ip(1), 10, "-i", "0.002")
    pump = down.ls()[0]["pump"]
    alive = os.pidfd_open(pump)
    try:
        before_s, start_s = cpu_s(pump), time.monotonic()
        # Nothing is to happen: it lives.
        assert select.select([alive], [], [], IDLE_S) == ([], [], [])
        assert (cpu_s(pump) - before_s) / (time.monotonic() - start_s) < 0.01
    finally:
        os.close(alive)


def test_a_flap_counts_as_changes_of_the_carrier(net: Net) -> None:
    before = counters(net, "host1")["carrier_changes"]
    net.ok("port", "host1", "down")
    carrier_becomes(net, "host1", False)
    net.ok("port", "host1", "up")
    carrier_becomes(net, "host1", True)
    assert counters(net, "host1")["carrier_changes"] - before == 2
