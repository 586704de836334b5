# SPDX-License-Identifier: BSD-3-Clause
"""UDP datagrams arrive as they were sent: all bytes, boundaries, in order.

The pump makes bursts of small ones into segmented frames where it finds several waiting: it does
so always after a SIGSTOP.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nupa.programs.pair import Program
from tests.net.lab import DEADLINE_S, Net, ip
from tests.net.real import ping_all, script

PORT = 7000
GROUP = "239.1.2.3"
UNIQUE_LOCAL = ("fd4e:5550:4100::1", "fd4e:5550:4100::2")
IPV4 = (ip(0), ip(1))
BOTH_FAMILIES = pytest.mark.parametrize("ends", [IPV4, UNIQUE_LOCAL])


def receiver(
    net: Net, count: int, *options: str, address: str = ip(1), host: str = "host1"
) -> Program:
    """Returns a receiver that is ready."""
    program = net.start(host, script(net, "datagrams", "receive", address, PORT, count, *options))
    program.wait_said("ready", DEADLINE_S)
    return program


def send(net: Net, to: str, sizes: str, window: int, *options: str, source: str = ip(0)) -> None:
    """Sends from host0, until all are sent, and received where *window* is not 0."""
    net.exec("host0", script(net, "datagrams", "send", source, to, PORT, sizes, window, *options))


def acquainted(net: Net, to: str) -> None:
    """Makes host0's kernel learn the link address.  Otherwise later packets may overtake those that
    wait for it."""
    ping_all(net, "host0", to, 1)


@contextmanager
def pumps_stopped(net: Net) -> Iterator[None]:
    """Stops all pumps; frames sent meanwhile wait in the interfaces."""
    pumps = {entry["pump"] for entry in net.ls()}
    for pid in pumps:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pumps:
            os.kill(pid, signal.SIGCONT)


def most_at_once(receiver: Program) -> int:
    """Returns how many it took at once, after it has got all."""
    return int(receiver.wait(DEADLINE_S).check().stdout.split("up to ")[1].split()[0])


@BOTH_FAMILIES
def test_datagrams_of_all_sizes_arrive_as_they_are(net: Net, ends: tuple[str, str]) -> None:
    source, to = ends
    acquainted(net, to)
    small = receiver(net, 2199, "answer", address=to)
    send(net, to, "1:2200:1:1", 50, source=source)
    small.wait(DEADLINE_S).check()
    # To beyond what a frame takes: the last ones come in fragments.
    large = receiver(net, len(range(2200, 65500, 100)), "answer", address=to)
    send(net, to, "2200:65500:100:1", 2, source=source)
    large.wait(DEADLINE_S).check()


@BOTH_FAMILIES
@pytest.mark.parametrize("gro", [(), ("gro",)])
def test_bursts_of_equal_datagrams_arrive_as_they_are(
    net: Net, ends: tuple[str, str], gro: tuple[str, ...]
) -> None:
    source, to = ends
    acquainted(net, to)
    program = receiver(net, 20 * 200, "answer", *gro, address=to)
    send(net, to, "100:2100:100:200", 60, source=source)
    program.wait(DEADLINE_S).check()


def test_bursts_of_each_user_arrive_as_they_are(net_by_user: Net) -> None:
    acquainted(net_by_user, ip(1))
    program = receiver(net_by_user, 2000, "answer")
    send(net_by_user, ip(1), "64:65:1:2000", 60)
    program.wait(DEADLINE_S).check()


@BOTH_FAMILIES
def test_what_waits_for_the_pump_comes_in_few_frames_to_who_can_take_them(
    net: Net, ends: tuple[str, str]
) -> None:
    source, to = ends
    acquainted(net, to)
    program = receiver(net, 128, "gro", address=to)
    with pumps_stopped(net):
        send(net, to, "64:65:1:128", 0, source=source)
    assert most_at_once(program) > 1


@pytest.mark.parametrize(
    "sizes",
    ["64:65:1:150", "300:150:-1:1", "150:300:1:1", "1:2:1:150", "2048:2049:1:60", "400:100:-30:7"],
)
@pytest.mark.parametrize("gro", [(), ("gro",)])
def test_what_waits_for_the_pump_keeps_boundaries_and_order(
    net: Net, sizes: str, gro: tuple[str, ...]
) -> None:
    first, end, step, copies = map(int, sizes.split(":"))
    acquainted(net, ip(1))
    program = receiver(net, len(range(first, end, step)) * copies, *gro)
    with pumps_stopped(net):
        send(net, ip(1), sizes, 0)
    program.wait(DEADLINE_S).check()


@BOTH_FAMILIES
def test_segments_that_the_sender_gives_to_its_kernel_at_once_arrive(
    net: Net, ends: tuple[str, str]
) -> None:
    source, to = ends
    acquainted(net, to)
    for gro in ((), ("gro",)):
        program = receiver(net, 40, "answer", *gro, address=to)
        send(net, to, "1400:1401:1:40", 40, "gso", source=source)
        program.wait(DEADLINE_S).check()


@pytest.fixture
def four(down: Net) -> list[str]:
    """The names of four hosts with interfaces up."""
    down.ok("up", "--topology", "rack24", "--name", "default")
    down.ok("net", "up", *(word for host in "0123" for word in ("--host", host)))
    return [entry["host"] for entry in down.ls()]


def test_a_group_reaches_those_who_joined_it_and_nobody_else(down: Net, four: list[str]) -> None:
    sizes = "1200:1201:1:60"
    _, *others = four
    joined = [
        receiver(down, 60, "group", GROUP, ip(host), address=GROUP, host=four[host])
        for host in (1, 2)
    ]
    stranger = receiver(down, 1, address="0.0.0.0", host=others[-1])
    with pumps_stopped(down):
        down.exec(four[0], script(down, "datagrams", "send", ip(0), GROUP, PORT, sizes, 0))
    for program in joined:
        program.wait(DEADLINE_S).check()
    # The first datagram is not of the group: it has another size.
    down.exec(four[0], script(down, "datagrams", "send", ip(0), ip(3), PORT, "7:8:1:1", 0))
    stranger.wait(DEADLINE_S).check()


@pytest.mark.parametrize("to", ["10.0.0.255", "255.255.255.255"])
def test_a_broadcast_reaches_everybody(down: Net, four: list[str], to: str) -> None:
    everybody = [receiver(down, 60, address="0.0.0.0", host=host) for host in four[1:]]
    with pumps_stopped(down):
        command = script(down, "datagrams", "send", ip(0), to, PORT, "200:260:1:1", 0)
        down.exec(four[0], command)
    for program in everybody:
        program.wait(DEADLINE_S).check()
