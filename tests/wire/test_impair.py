# SPDX-License-Identifier: BSD-3-Clause
"""The forwarder that impairs paths, judged by plain UDP sockets at both ends."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.common import record
from tests.common.impair import Impairment, impaired
from tests.common.namespaces import DEADLINE_S, Namespace

PACKETS = 4000
PORT = 4791

#: Receives numbered datagrams until one says that it is the last; writes what came.
_SERVER = """
import json, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
s.bind(("", int(sys.argv[1])))
s.settimeout(20)
print("bound", flush=True)
got, bad = [], 0
while True:
    data = s.recv(2048)
    if data == b"end":
        break
    number = int.from_bytes(data[:4], "big")
    if data == data[:4] * 100:
        got.append(number)
    else:
        bad += 1
print(json.dumps([got, bad]))
"""
_CLIENT = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to = (sys.argv[1], int(sys.argv[2]))
for number in range(int(sys.argv[3])):
    s.sendto(number.to_bytes(4, "big") * 100, to)
    if number % 50 == 49:
        time.sleep(0.002)
for _ in range(20):
    time.sleep(0.005)
    s.sendto(b"end", to)
"""


def arrived(left: Namespace, right: Namespace) -> tuple[list[int], int]:
    """Sends PACKETS from *right*: numbers in the order in which they came, and changed ones."""
    with left.start(sys.executable, "-c", _SERVER, str(PORT)) as server:
        server.wait_said("bound", DEADLINE_S)
        right.must(sys.executable, "-c", _CLIENT, left.ipv4, str(PORT), str(PACKETS))
        came, changed = json.loads(server.wait(DEADLINE_S).check().stdout.splitlines()[-1])
    return came, changed


@pytest.fixture(scope="module")
def unharmed(pair: tuple[Namespace, Namespace]) -> None:
    assert arrived(*pair) == (list(range(PACKETS)), 0)


@pytest.mark.usefixtures("unharmed")
def test_without_an_impairment_all_packets_pass_in_order(
    pair: tuple[Namespace, Namespace], impair: str
) -> None:
    with impaired(impair, *pair, Impairment(), seed=1) as counts:
        assert arrived(*pair) == (list(range(PACKETS)), 0)
    assert counts["selected"] == PACKETS + 20
    assert sum(counts[name] for name in ("lost", "duplicated", "reordered", "corrupted")) == 0


def test_lost_packets_are_the_seeds(pair: tuple[Namespace, Namespace], impair: str) -> None:
    lost = []
    for seed in (7, 7, 8):
        with impaired(impair, *pair, Impairment(loss=0.05), seed=seed) as counts:
            came, changed = arrived(*pair)
        assert changed == 0
        assert came == sorted(came)
        lost.append(set(range(PACKETS)) - set(came))
        assert 0 <= counts["lost"] - len(lost[-1]) <= 20
        assert PACKETS * 0.03 < len(lost[-1]) < PACKETS * 0.07
    assert lost[0] == lost[1] != lost[2]


def test_duplicates_come_later(pair: tuple[Namespace, Namespace], impair: str) -> None:
    with impaired(impair, *pair, Impairment(duplicate=0.05), seed=9) as counts:
        came, _ = arrived(*pair)
    twice = [number for number, times in Counter(came).items() if times == 2]
    assert set(came) == set(range(PACKETS))
    assert 0 <= counts["duplicated"] - len(twice) <= 20
    assert twice


def test_reordered_packets_all_come(pair: tuple[Namespace, Namespace], impair: str) -> None:
    with impaired(impair, *pair, Impairment(reorder=0.05), seed=10) as counts:
        came, _ = arrived(*pair)
    assert sorted(came) == list(range(PACKETS))
    late = sum(later < earlier for earlier, later in pairwise(came))
    assert 0 < late <= counts["reordered"]


def test_the_udp_checksum_finds_no_corrupted_packet(
    pair: tuple[Namespace, Namespace], impair: str
) -> None:
    with impaired(impair, *pair, Impairment(corrupt=0.05), seed=11) as counts:
        came, changed = arrived(*pair)
    assert len(came) + changed == PACKETS
    assert 0 <= counts["corrupted"] - changed <= 20
    assert changed


def test_other_ports_are_spared(pair: tuple[Namespace, Namespace], impair: str) -> None:
    with impaired(impair, *pair, Impairment(loss=1), seed=12, port=PORT + 1) as counts:
        assert len(arrived(*pair)[0]) == PACKETS
    assert counts["selected"] == 0


def test_the_record_says_what_was_done_to_each_packet(
    pair: tuple[Namespace, Namespace], impair: str, tmp_path: Path
) -> None:
    at = tmp_path / "packets"
    impairment = Impairment(loss=0.05, corrupt=0.05)
    with impaired(impair, *pair, impairment, seed=13, record=at) as counts:
        came, changed = arrived(*pair)
        passed = record.read(at)
    # Their payload is their number again and again, which stands where a BTH has its PSN.
    assert [each.psn for each in passed] == list(range(PACKETS))
    assert {(each.way, each.bytes) for each in passed} == {(1, 400)}
    hits = Counter(hit for each in passed for hit in each.hits)
    lost = {each.psn for each in passed if "lost" in each.hits}
    assert len(came) + changed == PACKETS - len(lost)
    assert lost.isdisjoint(came)
    # Those that say the end are too short for a BTH.
    assert 0 <= counts["lost"] - hits["lost"] <= 20
    assert changed == sum(each.hits == ("corrupted",) for each in passed)


@pytest.mark.parametrize(
    ("opcode", "syndrome", "said"),
    [
        (0x11, 0x1F, "ACK"),
        (0x11, 0x21, "RNR NAK 1"),
        (0x11, 0x60, "NAK 0"),
        (0x12, 0x1F, "ATOMIC response (ACK)"),
        (0xA6, 0, "WRITE first"),
        (0x81, 0, "CNP"),
    ],
)
def test_a_packet_is_said_in_words(opcode: int, syndrome: int, said: str) -> None:
    passed = record.Passage(5_000_000, 0x20F06, 7, 24, 1, opcode, ("lost",), bytes([syndrome]))
    wanted = f"{-1.0:10.3f} ms < QP 0x020f06 PSN 0x000007 {said}, 24 bytes  lost"
    assert passed.describe(6_000_000) == wanted
