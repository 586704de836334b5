# SPDX-License-Identifier: BSD-3-Clause
"""Three guests on one CXL memory: each with each, and all at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import pytest

from . import programs
from .machine import Machine, booted, new_port

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(600)]

PAIRS = list(combinations(["host0", "host1", "host2"], 2))


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with booted(3) as machine:
        yield machine


@pytest.mark.parametrize(("server", "client"), PAIRS)
@pytest.mark.parametrize("command", ["ib_send_lat", "ib_write_bw", "ib_atomic_lat"])
def test_each_two_guests_exchange_messages(
    machine: Machine, command: str, server: str, client: str
) -> None:
    programs.perftest(machine, server, client, command)


def test_all_guests_and_the_machine_talk_at_once(machine: Machine) -> None:
    ring = [*machine.hosts, machine.here]
    pairs = zip(ring, [*ring[1:], ring[0]], strict=True)
    with ThreadPoolExecutor(len(ring)) as pool:
        talks = [pool.submit(programs.rping, machine, *pair) for pair in pairs]
    for talk in talks:
        talk.result()


def test_a_file_goes_round(machine: Machine, tmp_path: Path) -> None:
    for server, client in PAIRS:
        programs.copy_file(machine, server, client, 8 << 20, tmp_path)


def test_one_server_serves_all_the_others(machine: Machine) -> None:
    """A program in Python, whose clients come one after the other."""
    others = [host for host in (*machine.hosts, machine.here) if host != "host1"]
    port = new_port()
    echo = [sys.executable, "-P", str(programs.ECHO)]
    server = machine.start("host1", [*echo, "serve", str(port), "--connections", str(len(others))])
    machine.until(machine.cm(port), server)
    for host in others:
        told = machine.run(host, [*echo, "ask", "10.0.0.2", str(port), "--rounds", "100"])
        assert told.stdout == "begun\n100 rounds\n", told.describe()
    outcome = machine.wait(server)
    assert outcome.stdout.count("100 echoed, then IBV_WC_SUCCESS") == len(others)


def test_the_netdev_joins_all_guests(machine: Machine) -> None:
    programs.net_up(machine, *machine.hosts)
    for server, client in PAIRS:
        programs.iperf3(machine, server, client)
