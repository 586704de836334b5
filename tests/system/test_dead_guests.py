# SPDX-License-Identifier: BSD-3-Clause
"""Guests that are killed, or stopped for long: who talks to them learns of it, and goes on."""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from nupa.programs.pair import Program

from . import programs
from .machine import DEADLINE_S, DEATH_S, TICK_S, Machine, booted, new_port

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(600)]

ECHO = [sys.executable, "-P", str(programs.ECHO)]
_LOST = ("IBV_WC_RETRY_EXC_ERR", "IBV_WC_WR_FLUSH_ERR")


@pytest.fixture(scope="module", params=["cxl", "ivshmem"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with booted(2, request.param) as machine:
        yield machine


@pytest.fixture(autouse=True)
def _all_alive(machine: Machine) -> Iterator[None]:
    """Starts guests again that a test killed, also if the test failed."""
    yield
    for host, guest in machine.guests().items():
        if guest["state"] == "dead":
            machine.start_again(host)


class Talk:
    """A server that echoes, for so many connections, and a first client that asks without end."""

    def __init__(self, machine: Machine, server: str, client: str, connections: int = 1) -> None:
        self.machine, self.server_host = machine, server
        self.port = new_port()
        self.server = machine.start(
            server, [*ECHO, "serve", str(self.port), "--connections", str(connections)]
        )
        machine.until(machine.cm(self.port), self.server)
        self.client = machine.start(client, self.asking())
        machine.until(lambda: self.client.has_said("begun"), self.client, 2 * DEADLINE_S)

    def asking(self, *options: str) -> list[str]:
        return [*ECHO, "ask", programs.address(self.server_host), str(self.port), *options]

    def ask_again(self, client: str) -> None:
        """Runs another client, which is answered."""
        told = self.machine.run(client, self.asking("--rounds", "50"))
        assert told.stdout.splitlines()[-1] == "50 rounds", told.describe()


def has_lost(program: Program) -> bool:
    return any(program.has_said(f"then {status}") for status in _LOST)


def await_loss(*observers: Program, since_s: float) -> None:
    """Waits until each of them has said that its connection failed: in the time that users are
    told."""
    while not all(has_lost(each) for each in observers):
        silent = [each for each in observers if not has_lost(each)]
        for each in silent:
            assert each.running, each.outcome().describe()
        passed_s = time.monotonic() - since_s
        assert passed_s < DEATH_S, "\n".join(Machine.said_by(each) for each in silent)
        select.select([each.pidfd for each in silent], [], [], TICK_S)


def test_peers_of_a_killed_guest_learn_of_it_and_go_on_when_it_is_back(machine: Machine) -> None:
    in_guest = Talk(machine, "host0", "host1", connections=2)
    here = Talk(machine, machine.here, "host1", connections=2)
    asker = Talk(machine, "host1", "host0")
    machine.signal("host1", signal.SIGKILL)
    await_loss(in_guest.server, here.server, asker.client, since_s=time.monotonic())
    machine.start_again("host1")
    in_guest.ask_again("host1")
    here.ask_again("host1")
    programs.perftest(machine, "host1", "host0", "ib_write_bw", "-s", "65536")


@pytest.mark.parametrize(
    ("command", "observer"), [("ib_write_bw", "client"), ("ib_send_bw", "server")]
)
def test_perftest_fails_when_the_guest_at_its_other_end_is_killed(
    machine: Machine, command: str, observer: str
) -> None:
    """A writer sees the death by its requests, a receiver by its receives."""
    port = str(new_port())
    argv = [programs.needs(command, "perftest"), "-F", "-D", "60", "-p", port]
    server_host, client_host = ("host1", "host0") if observer == "client" else ("host0", "host1")
    server = machine.start(server_host, argv)
    machine.until(machine.tcp(server_host, int(port)), server)
    client = machine.start(client_host, [*argv, server_host])
    sent = machine.traffic(client_host)
    machine.until(lambda: machine.traffic(client_host) > sent, client)
    machine.signal("host1", signal.SIGKILL)
    watched = client if observer == "client" else server
    outcome = machine.wait(watched, DEATH_S)
    assert not outcome.ok, outcome.describe()
    assert "ompletion with error" in outcome.stdout + outcome.stderr, outcome.describe()


def test_a_guest_that_stood_still_learns_that_it_was_taken_for_dead(machine: Machine) -> None:
    talk = Talk(machine, machine.here, "host1", connections=2)
    machine.signal("host1", signal.SIGSTOP)
    await_loss(talk.server, since_s=time.monotonic())
    machine.signal("host1", signal.SIGCONT)
    machine.until(lambda: has_lost(talk.client), talk.client)
    # Later requests work as before.
    talk.ask_again("host1")
    programs.perftest(machine, "host0", "host1", "ib_send_lat", "-s", "64")


def test_the_netdev_of_a_guest_that_was_killed_comes_back(machine: Machine) -> None:
    programs.net_up(machine, "host0", "host1")
    ping = ["ping", "-c", "1", "-W", "10"]
    machine.run("host0", [*ping, programs.address("host1")])
    machine.signal("host1", signal.SIGKILL)
    machine.start_again("host1")
    programs.net_up(machine, "host1")
    machine.run("host0", [*ping, programs.address("host1")])
    programs.iperf3(machine, "host0", "host1")
