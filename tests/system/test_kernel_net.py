# SPDX-License-Identifier: BSD-3-Clause
"""The kernel's network interface: between two kernels, and with the pump of this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system import frames

from . import programs
from .machine import PLAIN, Machine, booted, new_port

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]

WAYS = [("host0", "host1"), ("host2", "host0"), ("host1", "host2")]
ENDS = [sys.executable, "-P", frames.__file__]
SLOW_S = 200.0


@pytest.fixture(scope="module", params=["cxl", pytest.param("ivshmem", marks=pytest.mark.long)])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with booted(2, request.param, "--modules") as machine:
        programs.net_up(machine, machine.here)
        yield machine
        assert [machine.warnings(host) for host in machine.hosts] == [[], []]
        # Modules that are loaded are no users that keep it up.
        machine.nupa("net", "down", "--fabric", machine.name).check()
        machine.nupa("vm", "down").check()


def link(machine: Machine, host: str) -> dict[str, Any]:
    (found,) = json.loads(
        machine.plain(host, ["ip", "-d", "-j", "link", "show", "nupa_net0"]).stdout
    )
    return found


def ping(machine: Machine, host: str, *options: str) -> str:
    return machine.plain(host, ["ping", "-c", "3", "-W", "10", *options]).stdout


def test_it_is_up_from_the_start_with_the_addresses_of_its_host(machine: Machine) -> None:
    found = link(machine, "host1")
    assert [found["linkinfo"]["info_kind"], found["address"], found["mtu"]] == [
        "nupa",
        "02:00:0a:00:00:02",
        65280,
    ]
    shown = json.loads(machine.plain("host1", ["ip", "-j", "addr", "show", "nupa_net0"]).stdout)
    assert {each["local"] for each in shown[0]["addr_info"]} == {
        "10.0.0.2",
        "fe80::aff:fe00:2",
        "fd4e:5550:4100::2",
    }


@pytest.mark.parametrize(("server", "client"), WAYS)
def test_bytes_and_datagrams_arrive_as_they_were_sent(
    machine: Machine, server: str, client: str
) -> None:
    port = new_port()
    first = machine.on_net(server, [*ENDS, "serve", str(port)])
    second = machine.on_net(client, [*ENDS, "ask", programs.address(server), str(port)])
    _, told = machine.talk(
        (server, first), (client, second), machine.tcp(server, port), deadline_s=SLOW_S
    )
    assert told.stdout.splitlines()[1:] == [
        f"{frames.STREAM_BYTES} bytes",
        "1 of 1 bytes",
        "1 of 1472 bytes",
        "1 of 60000 bytes",
        "64 of 1000 bytes",
        "64 of 200 bytes",
    ]


@pytest.mark.parametrize(("server", "client"), WAYS)
def test_iperf3(machine: Machine, server: str, client: str) -> None:
    programs.iperf3(machine, server, client)


def test_ipv6_finds_its_neighbours(machine: Machine) -> None:
    for address in ("fd4e:5550:4100::2", "fd4e:5550:4100::3"):
        assert " 0% packet loss" in ping(machine, "host0", address)


def test_frames_are_no_longer_than_its_mtu(machine: Machine) -> None:
    machine.plain("host0", ["ip", "link", "set", "nupa_net0", "mtu", "1500"])
    try:
        assert " 0% packet loss" in ping(machine, "host0", "-M", "do", "-s", "1472", "10.0.0.2")
        told = machine.attempt(
            "host0", [*PLAIN, "ping", "-c", "1", "-M", "do", "-s", "1473", "10.0.0.2"]
        )
        assert "message too long" in told.stdout + told.stderr
        # A frame of the other's larger MTU is dropped, and counted.
        before = link_counters(machine, "host0")["dropped"]
        long = [*PLAIN, "ping", "-c", "1", "-W", "1", "-s", "3000", "10.0.0.1"]
        assert " 0 received" in machine.attempt("host1", long).stdout
        assert link_counters(machine, "host0")["dropped"] == before + 1
    finally:
        machine.plain("host0", ["ip", "link", "set", "nupa_net0", "mtu", "65280"])


def link_counters(machine: Machine, host: str) -> dict[str, int]:
    shown = machine.plain(host, ["ip", "-s", "-j", "link", "show", "nupa_net0"]).stdout
    found: dict[str, int] = json.loads(shown)[0]["stats64"]["rx"]
    return found


def carrier(machine: Machine, host: str) -> bool:
    return "LOWER_UP" in link(machine, host)["flags"]


def test_its_carrier_is_the_port(machine: Machine) -> None:
    assert carrier(machine, "host1")
    machine.nupa("port", "host1", "down", "--fabric", machine.name).check()
    with machine.program(machine.argv("host0", ["sleep", "600"])) as anchor:
        machine.until(lambda: not carrier(machine, "host1"), anchor)
        machine.nupa("port", "host1", "up", "--fabric", machine.name).check()
        machine.until(lambda: carrier(machine, "host1"), anchor)
    assert " 0% packet loss" in ping(machine, "host0", "10.0.0.2")


def test_net_up_leaves_it_to_the_kernel(machine: Machine) -> None:
    said = machine.run("host0", [*programs.NUPA, "net", "up"], deadline_s=programs.NET_UP_S).stdout
    assert said == "vm: nupa_net0 is this kernel's own (module nupa_net); nothing to do\n"
    listed = machine.run("host0", [*programs.NUPA, "net", "ls"], deadline_s=programs.NET_UP_S)
    assert "`ip addr show nupa_net0`" in listed.stdout
    other = [*programs.NUPA, "net", "up", "--mtu", "9000"]
    told = machine.attempt("host0", other, deadline_s=programs.NET_UP_S)
    assert told.returncode == 1
    assert "`ip link set nupa_net0 mtu BYTES` changes it" in told.stderr


def test_a_host_has_one_interface_which_may_be_made_again(machine: Machine) -> None:
    second = [*PLAIN, "ip", "link", "add", "nupa_net1", "type", "nupa"]
    assert "Device or resource busy" in machine.attempt("host0", second).stderr
    for command in (
        "link del nupa_net0",
        "link add nupa_net0 type nupa",
        "addr add 10.0.0.1/24 dev nupa_net0",
        "link set nupa_net0 up",
    ):
        machine.plain("host0", ["ip", *command.split()])
    assert " 0% packet loss" in ping(machine, "host0", "10.0.0.2")
    assert " 0% packet loss" in ping(machine, "host0", "10.0.0.3")
