# SPDX-License-Identifier: BSD-3-Clause
"""tcpdump on nupa_net0: what crosses the fabric, as each host sees it."""

from __future__ import annotations

import os
import signal
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nupa.programs.pair import Program
from tests.net.lab import DEADLINE_S, Net, ip
from tests.net.real import NAME, ping, ping_all
from tests.programs.needs import needs

PCAP_MAGIC, PCAP_HEADER_BYTES = 0xA1B2C3D4, 24  # draft-gharris-opsawg-pcap
LINKTYPE_ETHERNET = 1


@contextmanager
def tcpdump(net: Net, host: str, *options: str) -> Iterator[Program]:
    """Runs on that host; it has ended, and said all, at the end."""
    program = net.start(host, [needs("tcpdump", "tcpdump"), "-n", "-l", "-i", NAME, *options])
    _listens(net, host, program)
    yield program
    os.kill(program.pid, signal.SIGTERM)  # nupa hands it on
    program.wait(DEADLINE_S).check()


def _listens(net: Net, host: str, program: Program) -> None:
    """Waits until there is a packet socket (packet(7)) on that host."""
    while len(net.exec(host, ["cat", "/proc/net/packet"]).stdout.splitlines()) < 2:
        assert program.running, program.outcome().describe()


def test_what_it_writes_is_a_capture_of_the_traffic(net: Net) -> None:
    with tempfile.TemporaryDirectory(prefix="nupa-test-") as folder:
        path = Path(folder) / "pings.pcap"
        # -Z: it may write there.
        with tcpdump(net, "host1", "-Z", "root", "-U", "-w", str(path), "icmp"):
            ping_all(net, "host0", ip(1), 5, "-i", "0.01", "-s", "60000")
            while path.stat().st_size < PCAP_HEADER_BYTES + 10 * 60000:
                pass
        magic, linktype = struct.unpack_from("=I16xI", path.read_bytes())
        assert (magic, linktype) == (PCAP_MAGIC, LINKTYPE_ETHERNET)
        read = net.exec("host0", ["tcpdump", "-n", "-r", str(path)]).stdout.splitlines()
    requests = [line for line in read if f"{ip(0)} > {ip(1)}: ICMP echo request" in line]
    replies = [line for line in read if f"{ip(1)} > {ip(0)}: ICMP echo reply" in line]
    assert len(requests) == len(replies) == 5
    assert all("length 60008" in line for line in read)


def test_questions_for_link_addresses_do_not_cross(net: Net) -> None:
    asked = "arp or (icmp6 and (ip6[40] == 135 or ip6[40] == 136)) or icmp or icmp6"
    there, here = (tcpdump(net, host, "-Q", "in", asked) for host in ("host1", "host0"))
    with there as on_host1, here as on_host0:
        for to in (ip(1), "fd4e:5550:4100::2"):
            ping_all(net, "host0", to, 1)
        # The answer comes from nowhere farther than the pump.
        on_host0.wait_said("is-at 02:00:0a:00:00:02", DEADLINE_S)
        on_host0.wait_said("neighbor advertisement", DEADLINE_S)
        on_host1.wait_said("ICMP echo request", DEADLINE_S)
        on_host1.wait_said("ICMP6, echo request", DEADLINE_S)
        questions = ("who-has 10.0.0.2", "neighbor solicitation, who has fd4e:5550:4100::2")
        assert not any(map(on_host1.has_said, questions))


def test_questions_for_nobody_cross_as_all_broadcasts_do(net: Net) -> None:
    with tcpdump(net, "host1", "arp") as on_host1:
        ping(net, "host0", "10.0.0.99", "-c", "1", "-W", "0.2", check=False)
        on_host1.wait_said("who-has 10.0.0.99 tell 10.0.0.1", DEADLINE_S)
