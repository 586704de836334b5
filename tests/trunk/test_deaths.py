# SPDX-License-Identifier: BSD-3-Clause
"""Programs, trunks and machines that are killed, and networks that are gone for a while."""

from __future__ import annotations

import os
import signal

import pytest

from nupa.programs.pair import Program
from tests.programs.needs import needs
from tests.trunk.lab import NAME, Cluster

pytestmark = pytest.mark.timeout(240)

RETRY_EXC = "transport retry counter exceeded"
PORT = 18516
#: It runs until it is ended.
FOREVER = ["ib_write_bw", "-s", "65536", "-D", "600", "-F", "-p", str(PORT)]


def streaming(lab: Cluster) -> tuple[Program, Program]:
    """Starts a stream of WRITEs from beta's host2 to alpha's host0, and waits until it flows."""
    needs("ib_write_bw", "perftest")
    server = lab.start(lab[0].on("host0", *FOREVER))
    lab[0].await_listener(server, PORT)
    before = lab.moved(1, "host2")
    client = lab.start(lab[1].on("host2", *FOREVER, lab[0].space.ipv4))
    lab.await_moved(1, "host2", before + (4 << 20), [server, client])
    return server, client


def fails_by_retries(program: Program) -> None:
    outcome = program.wait(60)
    said = outcome.stdout + outcome.stderr
    assert not outcome.killed, outcome.describe()
    assert outcome.returncode != 0, outcome.describe()
    assert RETRY_EXC in said or "status 12" in said, outcome.describe()


def works(lab: Cluster) -> None:
    """Checks that new programs on both machines reach each other."""
    command = ["ib_send_lat", "-s", "64", "-n", "100", "-F", "-p", "18517"]
    server = lab.start(lab[0].on("host1", *command))
    lab[0].await_listener(server, 18517)
    lab.start(lab[1].on("host3", *command, lab[0].space.ipv4)).wait(60).check()
    server.wait(20).check()


def test_the_partner_of_a_killed_program_gets_retry_exceeded(two: Cluster) -> None:
    server, client = streaming(two)
    server.kill("was killed by the test")
    fails_by_retries(client)
    works(two)


@pytest.mark.parametrize("at", [0, 1], ids=["the target's", "the requester's"])
def test_a_killed_trunk_is_a_port_that_is_down_until_it_is_started_again(
    two: Cluster, at: int
) -> None:
    _, client = streaming(two)
    (trunk,) = two[at].trunks()
    os.kill(trunk.pid, signal.SIGKILL)
    fails_by_retries(client)
    other = two[1 - at]
    gone = dict.fromkeys((("host0", "host1"), ("host2", "host3"))[at], "DOWN")
    two.await_ports(1 - at, gone)
    two.await_states(1 - at, {two[at].name: "down"})
    two.up().check()
    two.await_ports(1 - at, dict.fromkeys(gone, "ACTIVE"))
    assert other.states()[two[at].name] == "up"
    works(two)


def test_a_machine_that_is_lost_and_comes_back(two: Cluster) -> None:
    _, client = streaming(two)
    two[0].space.kill_all()
    fails_by_retries(client)
    two.await_ports(1, {"host0": "DOWN", "host1": "DOWN", "host2": "ACTIVE"})
    # It comes back without any memory of what was.
    two[0].ok("trunk", "down", "--fabric", NAME, "--here", "--force")
    assert list(two[0].folder.iterdir()) == []
    two.up().check()
    two.await_ports(1, {"host0": "ACTIVE", "host1": "ACTIVE"})
    works(two)


def test_the_third_machine_goes_on_where_two_lose_each_other(three: Cluster) -> None:
    three[0].space.kill_all()
    three.await_ports(1, {"host0": "DOWN", "host2": "ACTIVE"})
    command = ["ib_send_lat", "-s", "64", "-n", "100", "-F", "-p", "18517"]
    server = three.start(three[1].on("host1", *command))
    three[1].await_listener(server, 18517)
    three.start(three[2].on("host2", *command, three[1].space.ipv4)).wait(60).check()


def test_a_network_that_is_gone_for_a_moment_costs_time_alone(two: Cluster) -> None:
    server, client = streaming(two)
    before = two.moved(1, "host2")
    for _ in range(3):
        two[0].space.cable(plugged=False)
        two[0].space.cable(plugged=True)
    two.await_moved(1, "host2", before + (16 << 20), [server, client])
    for program in (client, server):
        assert program.running
