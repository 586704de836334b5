# SPDX-License-Identifier: BSD-3-Clause
"""A third machine on the network: its packets, forged ones, and a translation of addresses."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from nupa.packet.scapy.transport import BTH
from nupa.programs.pair import Program, run
from tests.common.namespaces import DEADLINE_S, Namespace, machines
from tests.programs import users
from tests.wire.lab import Wired, wired
from tests.wire.test_connections import PORT, listens, meet

_TICK_S = 0.02
PACKETS = 200
#: Sends the frames of a file, a line of hex each, from eth0.
_SEND = """
import pathlib, socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
    raw.bind(("eth0", 0))
    for line in pathlib.Path(sys.argv[1]).read_text().split():
        raw.send(bytes.fromhex(line))
"""
#: Passes on what comes from one of two addresses to the other one, as from its own address.
_TRANSLATE = """
import socket, sys
own, *ends = sys.argv[1:]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: IP_PMTUDISC_DO
udp.bind((own, 4791))
print("translates", flush=True)
while True:
    data, (source, _) = udp.recvfrom(9000)
    udp.sendto(data, (ends[source == ends[0]], 4791))
"""


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[Namespace, Namespace, Namespace]]:
    with machines(3) as (left, right, stranger):
        yield left, right, stranger


@pytest.fixture(scope="module")
def wire(three: tuple[Namespace, Namespace, Namespace]) -> Iterator[Wired]:
    with wired(three[:2], users.ourselves()) as stage:
        yield stage


def until(holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end_s, what
        time.sleep(_TICK_S)


@contextmanager
def talking(wire: Wired) -> Iterator[tuple[Program, Program]]:
    """A server on the left machine and a client on the right one, which talk without end."""
    words = ("rping", "-v", "-V", "-p", PORT, "-a", wire.addresses[0])
    with wire.start(0, (*words, "-s")) as server:
        until(lambda: listens(wire), "the server does not listen")
        with wire.start(1, (*words, "-c")) as client:
            client.wait_said("rdma-ping-1", DEADLINE_S)
            yield server, client
            for program in (client, server):
                if program.running:
                    program.signal(signal.SIGTERM)


def to_the_left(wire: Wired) -> BTH:
    """Returns the BTH of a packet that has come to the program of the left machine."""
    which = f'source == "{wire.addresses[1]}" and dqpn != 1'
    argv = wire.nupa("capture", "--level", "transport", "--json", "-c", "1", "-f", which)
    (line,) = run(argv, env=wire.env, deadline_s=DEADLINE_S).check().stdout.splitlines()
    found = json.loads(line)
    return BTH(opcode="RC_SEND_ONLY", dqpn=int(found["dqpn"]), psn=int(found["psn"]), ackreq=1)


def send(by: Namespace, to: Namespace, source: str, packets: list[BTH], folder: Path) -> None:
    """Sends them, with right ICRCs, as if they came from *source*."""
    ether = Ether(dst=to.must("cat", "/sys/class/net/eth0/address").strip())
    below = ether / IP(src=source, dst=to.ipv4, id=0, flags="DF") / UDP(sport=4791, chksum=0)
    file = folder / "frames"
    file.write_text("".join(bytes(below / packet).hex() + "\n" for packet in packets))
    by.must(sys.executable, "-c", _SEND, str(file))


def test_packets_of_another_machine_change_nothing_and_are_counted(
    three: tuple[Namespace, Namespace, Namespace], wire: Wired, tmp_path: Path
) -> None:
    """To the right QP, with the PSN that is expected about then, and with right ICRCs."""
    left, _, stranger = three
    with talking(wire) as programs:
        before = wire.wire()
        bth = to_the_left(wire)
        packets = [bth / Raw(b"evil" * 4) for _ in range(PACKETS)]
        for number, packet in enumerate(packets):
            packet.psn = (bth.psn + number) % (1 << 24)
        send(stranger, left, stranger.ipv4, packets, tmp_path)
        until(lambda: wire.wire()["foreign"] >= before["foreign"] + PACKETS, "they are not counted")
        now = to_the_left(wire).psn  # and the dialogue goes on
        assert now != bth.psn
        assert all(program.running for program in programs)
        assert wire.wire()["icrc_errors"] == before["icrc_errors"]


@pytest.mark.parametrize("seed", [1, 2])
def test_forged_packets_of_the_right_address_cost_the_queue_pair_at_most(
    three: tuple[Namespace, Namespace, Namespace], wire: Wired, tmp_path: Path, seed: int
) -> None:
    """A guess of the PSN may hit; the keeper and later connections do not mind."""
    left, right, stranger = three
    random = Random(seed)
    print(f"seed {seed}")
    keeper = wire.wire()["keeper"]
    with talking(wire) as (client, server):
        bth = to_the_left(wire)
        packets = []
        for _ in range(10 * PACKETS):
            packet = bth.copy()
            packet.opcode = random.randrange(32)
            packet.psn = (bth.psn + random.randrange(-50, 5000)) % (1 << 24)
            packets.append(packet / Raw(random.randbytes(random.randrange(0, 300))))
        send(stranger, left, right.ipv4, packets, tmp_path)
        for program in (client, server):
            if not program.running:
                assert program.outcome().returncode >= 0, program.outcome().describe()
    assert wire.wire()["keeper"] == keeper
    meet(wire, "rping")


@dataclass(frozen=True)
class Translated(Namespace):
    """A machine that others see as another one."""

    seen_as: str

    @property
    def ipv4(self) -> str:
        return self.seen_as


@pytest.fixture
def behind_nat() -> Iterator[tuple[Wired, tuple[Namespace, Namespace]]]:
    """Two machines, of which each has the translator's address for the other one."""
    with machines(3) as (left, right, translator):
        translate = ("-c", _TRANSLATE, translator.ipv4, left.ipv4, right.ipv4)
        seen = [Translated(**vars(each), seen_as=translator.ipv4) for each in (left, right)]
        with translator.start(sys.executable, *translate) as program:
            program.wait_said("translates", DEADLINE_S)
            with wired(seen, users.ourselves()) as wire:
                yield wire, (left, right)


@pytest.mark.parametrize("end", [0, 1])
def test_a_translation_of_addresses_is_shown(
    behind_nat: tuple[Wired, tuple[Namespace, Namespace]], end: int
) -> None:
    wire, machines_ = behind_nat
    side = wire.side(end)
    until(lambda: bool(side.wire()["nat"]), "NAT is not found")
    assert side.wire()["nat"] == machines_[1 - end].ipv4
    for command in ("wire", "ls"), ("show",):
        assert "one machine behind NAT" in side.ok(*command)
