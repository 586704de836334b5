# SPDX-License-Identifier: BSD-3-Clause
"""Machines with two cables: the trunks meet whatever their devices are called, and use those that
the cluster file names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.programs.pair import Program
from nupa.trunk.library import candidates
from tests.programs.needs import needs
from tests.trunk.lab import Cluster, Machine, cluster

pytestmark = pytest.mark.timeout(240)

PORT = 18518
MESSAGES, BYTES = 100, 1 << 20


@pytest.fixture
def rails(tmp_path: Path) -> Iterator[Cluster]:
    """Two machines that are joined by both of their cables, with the UCX of the Python package."""
    pytest.importorskip("libucx", reason="there is no libucx here: pip install 'nupa[trunk]'")
    settings = f'devices = "eth0,eth1"\nlibrary = "{candidates("")[-1]}"\n'
    with cluster(tmp_path, trunk=settings, cables=2) as lab:
        lab.up().check()
        yield lab


def order(machine: Machine) -> list[str]:
    """Returns its devices as the kernel lists them, which differs in each namespace."""
    return machine.space.must("ls", "-U", "/sys/class/net").split()


def list_second(machine: Machine, *, first: bool) -> None:
    """Renames the device of its second cable until the kernel lists it before eth0, or behind.

    Names are listed by their hashes: of n names, eth0 is listed as the first once in n times.
    """
    name = "eth1"
    for number in range(2, 10_000):
        listed = order(machine)
        if (listed.index(name) < listed.index("eth0")) is first:
            return
        machine.space.must("ip", "link", "set", name, "down")
        machine.space.must("ip", "link", "set", name, "name", f"eth{number}")
        name = f"eth{number}"
        machine.space.must("ip", "link", "set", name, "up")
    raise AssertionError(f"{machine.name} lists {order(machine)}")


def carried(machine: Machine) -> list[int]:
    """Returns the bytes that each cable of it has carried."""
    counters = (
        [f"/sys/class/net/eth{cable}/statistics/{way}_bytes" for way in ("tx", "rx")]
        for cable in (0, 1)
    )
    return [sum(map(int, machine.space.must("cat", *paths).split())) for paths in counters]


def stream(lab: Cluster, *options: str) -> tuple[Program, Program]:
    """Starts to write from beta's host2 to alpha's host0; returns server and client."""
    needs("ib_write_bw", "perftest")
    words = ["ib_write_bw", "-s", str(BYTES), "-p", str(PORT), "-F", *options]
    server = lab.start(lab[0].on("host0", *words))
    lab[0].await_listener(server, PORT)
    return server, lab.start(lab[1].on("host2", *words, lab[0].space.ipv4))


def test_machines_that_list_their_devices_differently_join(tmp_path: Path) -> None:
    with cluster(tmp_path, cables=2) as lab:
        list_second(lab[0], first=True)
        list_second(lab[1], first=False)
        lab.up().check()
        assert lab[0].states()["beta"] == "up"


def test_both_devices_that_the_file_names_carry_bulk(rails: Cluster) -> None:
    before = carried(rails[0])
    server, client = stream(rails, "-n", str(MESSAGES))
    client.wait(60).check()
    server.wait(60).check()
    moved = [now - was for now, was in zip(carried(rails[0]), before, strict=True)]
    assert sum(moved) > MESSAGES * BYTES
    assert min(moved) > sum(moved) / 4, moved


@pytest.mark.parametrize("cable", [0, 1])
def test_either_cable_that_is_out_for_a_moment_costs_time_alone(rails: Cluster, cable: int) -> None:
    programs = stream(rails, "-D", "600")
    before = rails.moved(1, "host2")
    rails.await_moved(1, "host2", before + (4 << 20), programs)
    for _ in range(3):
        rails[0].space.cable(cable, plugged=False)
        rails[0].space.cable(cable, plugged=True)
    before = rails.moved(1, "host2")
    rails.await_moved(1, "host2", before + (32 << 20), programs)
