# SPDX-License-Identifier: BSD-3-Clause
"""A port that goes down, a pump that dies: what programs see of it, and that open connections go
on afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.net.lab import DEADLINE_S, Net, ip
from tests.net.real import (
    carrier_becomes,
    has_carrier,
    hears_nothing,
    link,
    ping_all,
    received,
    script,
)

PORT = 2222
UNIQUE_LOCAL = "fd4e:5550:4100::2"


class Session:
    """From host0 to host1; both sides count what comes."""

    def __init__(self, net: Net, to: str = ip(1)) -> None:
        self.server = net.start("host1", script(net, "session", "serve", to, PORT))
        self.server.wait_said("ready", DEADLINE_S)
        self.client = net.start("host0", script(net, "session", "connect", to, PORT))
        self.hundreds = 0
        self.goes_on()

    def goes_on(self) -> None:
        """Waits until each side has got a hundred messages more."""
        self.hundreds += 1
        while self.server.has_said(f"has {self.hundreds + 1}00."):
            self.hundreds += 1
        for side in (self.server, self.client):
            side.wait_said(f"has {self.hundreds}00.", DEADLINE_S)

    def end(self) -> None:
        """Ends in order; none of the messages is lost."""
        os.kill(self.client.pid, signal.SIGTERM)  # which hands it on
        for side in (self.client, self.server):
            assert "ended: " in side.wait(DEADLINE_S).check().stdout


@contextmanager
def session(net: Net, to: str = ip(1)) -> Iterator[Session]:
    """Yields one that sees what the test does in between, and goes on afterwards."""
    it = Session(net, to)
    yield it
    it.goes_on()
    it.goes_on()
    it.end()


@pytest.mark.parametrize("to", [ip(1), UNIQUE_LOCAL])
def test_a_session_goes_on_when_the_port_is_up_again(net_by_user: Net, to: str) -> None:
    net = net_by_user
    with session(net, to):
        net.ok("port", "host1", "down")
        carrier_becomes(net, "host1", False)
        assert net.state_of("host1") == "port down"
        before = received(net, "host1")
        hears_nothing(net, "host0", to)
        assert received(net, "host1") == before
        net.ok("port", "host1", "up")
        carrier_becomes(net, "host1", True)
        assert net.state_of("host1") == "up"


def test_a_session_goes_on_through_many_short_outages(net: Net) -> None:
    with session(net) as through:
        for _ in range(5):
            net.ok("port", "host0", "down")
            net.ok("port", "host0", "up")
            carrier_becomes(net, "host0", True)
            through.goes_on()


def test_only_the_host_whose_port_is_down_has_no_carrier(net: Net) -> None:
    net.ok("port", "host0", "down")
    carrier_becomes(net, "host0", False)
    assert link(net, "host0")["operstate"] == "DOWN"
    assert has_carrier(net, "host1")
    hears_nothing(net, "host1", ip(0))
    net.ok("port", "host0", "up")
    carrier_becomes(net, "host0", True)
    ping_all(net, "host1", ip(0), 3, "-i", "0.01")


def pump_of(net: Net, host: str) -> int:
    return next(int(entry["pump"]) for entry in net.ls() if entry["host"] == host)


def test_a_session_outlives_the_pump_of_all_hosts(net_by_user: Net) -> None:
    net = net_by_user
    with session(net):
        dead = pump_of(net, "host0")
        assert pump_of(net, "host1") == dead
        os.kill(dead, signal.SIGKILL)
        for host in ("host0", "host1"):
            carrier_becomes(net, host, False)
            assert net.state_of(host) == "no pump"
        assert "healed" in net.ok("net", "up").stdout
        for host in ("host0", "host1"):
            carrier_becomes(net, host, True)
            assert net.state_of(host) == "up"
            assert pump_of(net, host) != dead


@pytest.fixture
def two_pumps(down: Net) -> Net:
    """Two hosts, each with a pump of its own."""
    down.ok("up")
    down.ok("net", "up", "--host", "host0")
    down.ok("net", "up", "--host", "host1")
    assert pump_of(down, "host0") != pump_of(down, "host1")
    return down


def test_a_session_outlives_the_pump_of_its_server_alone(two_pumps: Net) -> None:
    net = two_pumps
    with session(net):
        os.kill(pump_of(net, "host1"), signal.SIGKILL)
        carrier_becomes(net, "host1", False)
        assert has_carrier(net, "host0")
        hears_nothing(net, "host0", ip(1))
        net.ok("net", "up")
        carrier_becomes(net, "host1", True)
        ping_all(net, "host0", ip(1), 3, "-i", "0.01")


def test_a_port_that_went_down_while_its_pump_was_dead_is_seen_by_the_next(net: Net) -> None:
    os.kill(pump_of(net, "host1"), signal.SIGKILL)
    carrier_becomes(net, "host1", False)
    net.ok("port", "host1", "down")
    net.ok("net", "up")
    carrier_becomes(net, "host0", True)
    assert not has_carrier(net, "host1")
    net.ok("port", "host1", "up")
    carrier_becomes(net, "host1", True)
    ping_all(net, "host0", ip(1), 3, "-i", "0.01")
