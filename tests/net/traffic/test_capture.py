# SPDX-License-Identifier: BSD-3-Clause
"""`nupa capture` of level net: frames of nupa_net0, seen from outside of the namespaces."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.utils import rdpcap

from nupa.packet.scapy.transport import BTH
from nupa.programs.pair import Program
from tests.net.lab import DEADLINE_S, Net, ip
from tests.net.real import ping_all


@contextmanager
def capturing(net: Net, *options: str) -> Iterator[Program]:
    """Yields `nupa capture` when it watches; it has ended in order at the end."""
    with Program(net.argv("capture", *options), env=net.env) as program:
        program.wait_said("capturing on default", DEADLINE_S)
        yield program
        os.kill(program.pid, signal.SIGINT)
        program.wait(DEADLINE_S).check()


def test_pings_are_seen_as_they_crossed(net: Net, tmp_path: Path) -> None:
    file = tmp_path / "x.pcapng"
    with capturing(net, "--level", "net", "-w", str(file)):
        ping_all(net, "host0", ip(1), 5, "-i", "0.01", "-s", "500")
    pings = [packet for packet in rdpcap(str(file)) if ICMP in packet]
    seen = Counter((packet[IP].src, packet[ICMP].type, packet.sniffed_on) for packet in pings)
    assert seen == {(ip(0), 8, "host0/1"): 5, (ip(1), 0, "host1/1"): 5}
    assert {len(packet[ICMP].payload) for packet in pings} == {500}
    for packet in pings:
        again = packet[IP].copy()
        del again.chksum, again[ICMP].chksum
        assert bytes(again) == bytes(packet[IP])


def test_a_filter_and_a_count_are_those_of_frames(net: Net) -> None:
    match = f'source == "{ip(1)}" and protocol == icmp'
    options = ("--level", "net", "-c", "2", "-f", match, "--json")
    with Program(net.argv("capture", *options), env=net.env) as program:
        program.wait_said("capturing on default", DEADLINE_S)
        ping_all(net, "host0", ip(1), 3, "-i", "0.01")
        lines = program.wait(DEADLINE_S).check().stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(packet["level"], packet["host"]) for packet in found] == [("net", "host1")] * 2


def test_the_fabrics_own_packets_are_none_of_the_frames(net: Net, tmp_path: Path) -> None:
    """A UDP datagram is a frame; only level transport has InfiniBand packets."""
    file = tmp_path / "x.pcapng"
    script = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        f"s.sendto(b'hello', ('{ip(1)}', 9))"
    )
    with capturing(net, "-w", str(file)):
        net.exec("host0", [net.user.python, "-c", script])
        ping_all(net, "host0", ip(1), 1)
    packets = list(rdpcap(str(file)))
    (datagram,) = [p for p in packets if UDP in p and p[UDP].dport == 9 and ICMP not in p]
    assert bytes(datagram[UDP].payload).startswith(b"hello")
    assert not any(BTH in packet or TCP in packet for packet in packets)
