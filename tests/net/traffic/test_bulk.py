# SPDX-License-Identifier: BSD-3-Clause
"""Bulk over nupa_net0: iperf3 in all its ways, and a file of 1 GiB by HTTP.

How fast it is, is the benchmarks' matter.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.net.lab import Net, ip
from tests.net.real import all_stream, iperf, link, ping, ping_all
from tests.programs.needs import needs

GIB = 1 << 30
HTTP_PORT = 8080


def full_sockets(net: Net, host: str) -> int:
    """Datagrams for which a socket on *host* had no room (snmp_counter: UdpRcvbufErrors)."""
    table = net.exec(host, ["cat", "/proc/net/snmp"]).stdout
    names, values = (line.split() for line in table.splitlines() if line.startswith("Udp:"))
    return int(values[names.index("RcvbufErrors")])


def dropped(net: Net, host: str) -> int:
    """Frames that the interface did not send, as `ip -s link` shows it."""
    return int(link(net, host)["stats64"]["tx"]["dropped"])


def test_one_stream(net_by_user: Net) -> None:
    all_stream(iperf(net_by_user), 1, least_bytes=16 << 20)


@pytest.mark.parametrize("to", [ip(1), "fd4e:5550:4100::2"])
def test_eight_streams(net: Net, to: str) -> None:
    all_stream(iperf(net, "-P", "8", to=to), 8)


def test_one_stream_each_way_at_once(net: Net) -> None:
    all_stream(iperf(net, "--bidir"), 2, least_bytes=16 << 20)


def test_eight_streams_each_way_at_once(net: Net) -> None:
    all_stream(iperf(net, "--bidir", "-P", "8", seconds=2), 16)


@pytest.mark.parametrize(("length", "streams"), [(64, 1), (1400, 8), (65000, 1)])
def test_datagrams_at_a_bearable_rate_all_arrive(net: Net, length: int, streams: int) -> None:
    # 800 of each stream in a second.
    rate = length * 8 * 800
    end = iperf(net, "-u", "-P", f"{streams}", "-l", f"{length}", "-b", f"{rate}")
    assert end["sum"]["packets"] >= 400 * streams
    # A receiver that does not compute for a while loses what does not fit into its socket.
    assert end["sum"]["lost_packets"] <= full_sockets(net, "host1")
    assert dropped(net, "host0") == 0


def test_of_datagrams_at_any_rate_each_that_is_lost_is_counted(net: Net) -> None:
    total = iperf(net, "-u", "-P", "8", "-l", "1400", "-b", "0")["sum"]
    assert total["packets"] - total["lost_packets"] > 1000
    assert total["lost_packets"] <= full_sockets(net, "host1") + dropped(net, "host0")
    # The interface lives on.
    ping_all(net, "host0", ip(1), 10, "-i", "0.01")


@pytest.mark.parametrize("mtu", [1500, 9000])
def test_any_mtu_carries_bulk_both_ways_and_no_longer_frame(down: Net, mtu: int) -> None:
    down.ok("net", "up", "--mtu", str(mtu))
    assert link(down, "host0")["mtu"] == mtu
    all_stream(iperf(down, "--bidir"), 2, least_bytes=16 << 20)
    headers = 20 + 8
    ping_all(down, "host0", ip(1), 1, "-M", "do", "-s", str(mtu - headers))
    tried = ping(
        down, "host0", ip(1), "-M", "do", "-c", "1", "-s", str(mtu - headers + 1), check=False
    )
    assert "message too long" in tried.stdout + tried.stderr
    # Fragments.
    ping_all(down, "host0", ip(1), 5, "-i", "0.01", "-s", "20000")


def test_two_queues_share_the_work_of_eight_streams(down: Net) -> None:
    down.ok("net", "up", "--queues", "2")
    all_stream(iperf(down, "-P", "8"), 8)
    all_stream(iperf(down, "-P", "8", "--bidir"), 16)
    for host in ("host0", "host1"):
        queues = sorted(
            Path(path).name
            for path in down.exec(
                host, ["sh", "-c", "ls -d /sys/class/net/nupa_net0/queues/*"]
            ).stdout.split()
        )
        assert queues == ["rx-0", "rx-1", "tx-0", "tx-1"]


@pytest.fixture
def gibibyte() -> Iterator[Path]:
    """A sparse file of 1 GiB: a block of it in 256 KiB says where it is."""
    with tempfile.TemporaryDirectory(prefix="nupa-test-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "gibibyte")
        with path.open("wb") as file:
            for at in range(0, GIB, 256 << 10):
                file.seek(at + at // (256 << 10) * 61 % (252 << 10))
                file.write(hashlib.sha256(b"%d" % at).digest() * 8)
            file.truncate(GIB)
        yield path


def test_curl_gets_a_file_of_1_gib_from_an_http_server(net: Net, gibibyte: Path) -> None:
    curl = needs("curl", "curl")
    with gibibyte.open("rb") as file:
        wanted = hashlib.file_digest(file, "blake2b").hexdigest()
    serve = [net.user.python, "-m", "http.server", "--bind", ip(1), "--directory"]
    server = net.start("host1", [*serve, str(gibibyte.parent), str(HTTP_PORT)])
    net.listening("host1", HTTP_PORT, server)
    url = f"http://{ip(1)}:{HTTP_PORT}/gibibyte"
    start_s = time.monotonic()
    got = net.exec("host0", ["sh", "-c", f"{curl} --noproxy '*' -sSf {url} | b2sum"])
    assert got.stdout.split()[0] == wanted
    assert time.monotonic() - start_s < 30
