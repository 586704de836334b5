# SPDX-License-Identifier: BSD-3-Clause
"""Captures of a wire: tcpdump at a machine's end of the cable, and `nupa capture` of its fabric."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from nupa.packet.pcapng.reader import Reader
from nupa.programs.pair import Program, run
from tests.common.namespaces import DEADLINE_S, Namespace
from tests.programs.needs import needs
from tests.wire.lab import NAMES, Wired

ROCE = "udp dst port 4791"
_TICK_S = 0.02
_ETHERNET_BYTES = 14
_MARKED = "udp dst port 9"
_MARK = b"all that came before is in the file"
#: By IPv6, which no tunnel of ours carries.
_SEND_MARK = """
import socket, sys
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp:
    udp.sendto(sys.argv[1].encode(), (sys.argv[2], 9))
"""


class Flow(NamedTuple):
    """Packets of one direction to one QP."""

    source: bytes
    destination: bytes
    dqpn: int


def unrouted(frame: bytes) -> bytes:
    """Returns a RoCE frame from its IP header on, without what differs between places of capture:
    TTL, marks of congestion, the checksums, and the flow label, which the kernel chooses."""
    ip = bytearray(frame[_ETHERNET_BYTES:])
    if ip[0] >> 4 == 4:
        ip[1] &= 0xFC
        ip[8] = 0
        ip[10:12] = ip[26:28] = bytes(2)
    else:
        ip[1] &= 0xC0
        ip[2:4] = ip[46:48] = bytes(2)
        ip[7] = 0
    return bytes(ip)


def flow_of(packet: bytes) -> Flow:
    """Returns the flow of a packet of unrouted()."""
    at, size, bth = (12, 4, 28) if packet[0] >> 4 == 4 else (8, 16, 48)
    dqpn = int.from_bytes(packet[bth + 5 : bth + 8], "big")
    return Flow(packet[at : at + size], packet[at + size : at + 2 * size], dqpn)


def frames(file: Path) -> list[bytes]:
    with Reader(file) as reader:
        return [packet.data for packet in reader]


def flows(file: Path) -> dict[Flow, list[bytes]]:
    """Returns the packets of a file by their flows, each in order."""
    found: defaultdict[Flow, list[bytes]] = defaultdict(list)
    for frame in frames(file):
        packet = unrouted(frame)
        found[flow_of(packet)].append(packet)
    return dict(found)


@contextmanager
def at_cable(machine: Namespace, other: Namespace, file: Path, what: str = ROCE) -> Iterator[None]:
    """Captures packets at the cable of a machine; the file is complete after the block.

    *what* is a filter; a datagram to *other* tells that all before it is in the file.
    """
    tcpdump = needs("tcpdump", "tcpdump")
    raw = file.with_suffix(".raw")
    options = ["-i", "eth0", "-U", "--immediate-mode", "-B", "65536", "-s", "0", "-Z", "root"]
    either = f"({what}) or {_MARKED}"
    with machine.start(tcpdump, *options, "-w", str(raw), either) as program:
        program.wait_said("listening on", DEADLINE_S)
        yield
        machine.must(sys.executable, "-c", _SEND_MARK, _MARK.decode(), other.ipv6)
        until_s = time.monotonic() + DEADLINE_S
        while _MARK not in raw.read_bytes():
            assert time.monotonic() < until_s, "tcpdump does not write what it has seen"
            time.sleep(_TICK_S)  # a file that grows tells nobody
        program.signal(signal.SIGINT)
        said = program.wait(DEADLINE_S).check().stderr
        assert "0 packets dropped by kernel" in said, said
    without = ["-w", str(file), f"not ({_MARKED})"]
    run([tcpdump, "-r", str(raw), "-Z", "root", *without]).check()
    raw.unlink()


@contextmanager
def of_fabric(wire: Wired, end: int, file: Path) -> Iterator[None]:
    """Captures the same by NUPA."""
    argv = wire.side(end).nupa("capture", "--level", "transport", "-w", str(file))
    with Program(argv, env=wire.env) as program:
        program.wait_said(f"capturing on {NAMES[end]}", DEADLINE_S)
        yield
        program.signal(signal.SIGINT)
        outcome = program.wait(DEADLINE_S).check()
        assert ", 0 lost" in outcome.stderr, outcome.stderr


#: scapy's own layers, which are bound to the port once they are loaded: in a process without ours.
_SCAPY = """
import json, sys
from scapy.contrib.roce import BTH
from scapy.all import IP, IPv6
wrong = []
for number, line in enumerate(sys.stdin):
    frame = bytes.fromhex(line)
    packet = (IP if frame[0] >> 4 == 4 else IPv6)(frame)
    assert type(packet.payload.payload) is BTH, line
    said = packet.icrc
    del packet.icrc
    if packet.__class__(bytes(packet)).icrc != said:
        wrong.append(number)
print(json.dumps(wrong))
"""


def wrong_by_scapy(packets: Sequence[bytes]) -> list[int]:
    """Returns the numbers of frames whose ICRC scapy.contrib.roce computes differently."""
    lines = "".join(frame[_ETHERNET_BYTES:].hex() + "\n" for frame in packets)
    done = subprocess.run(
        [sys.executable, "-c", _SCAPY],
        input=lines,
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    found: list[int] = json.loads(done.stdout)
    return found
