# SPDX-License-Identifier: BSD-3-Clause
"""Two guests and the machine beneath them, three hosts of one fabric, by either kind of memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.needs import needs

from . import programs
from .machine import Machine, booted, new_port

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(600)]

#: Server and client: guest to guest, guest to machine, machine to guest.
WAYS = [("host0", "host1"), ("host0", "host2"), ("host2", "host1")]
KINDS_OF_TRAFFIC = [
    ("ib_send_lat", "-s", "64"),
    ("ib_send_lat", "-c", "UD"),
    ("ib_send_bw", "-s", "8192"),
    ("ib_write_lat", "-s", "8"),
    ("ib_write_bw", "-s", "65536"),
    ("ib_read_lat", "-s", "4096"),
    ("ib_read_bw", "-s", "65536"),
    ("ib_atomic_lat",),
    ("ib_atomic_bw",),
]


@pytest.fixture(scope="module", params=["cxl", "ivshmem"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with booted(2, request.param) as machine:
        yield machine


@pytest.fixture(scope="module")
def networked(machine: Machine) -> Machine:
    """The same, with nupa_net0 on each of its three hosts."""
    programs.net_up(machine, *machine.hosts, machine.here)
    return machine


@pytest.mark.parametrize(("server", "client"), WAYS)
@pytest.mark.parametrize("command", KINDS_OF_TRAFFIC, ids=" ".join)
def test_perftest(machine: Machine, command: tuple[str, ...], server: str, client: str) -> None:
    programs.perftest(machine, server, client, *command)


@pytest.mark.parametrize("name", ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"])
def test_examples_of_libibverbs_check_what_they_receive(machine: Machine, name: str) -> None:
    programs.pingpong(machine, "host0", "host1", name)


@pytest.mark.parametrize(("server", "client"), WAYS)
def test_rping_checks_what_it_reads_and_writes(machine: Machine, server: str, client: str) -> None:
    programs.rping(machine, server, client)


def test_a_program_of_plain_nupa_run_is_on_the_host_of_this_machine(machine: Machine) -> None:
    outcome = machine.nupa("run", "--", "sh", "-c", "echo $NUPA_HOST").check()
    assert outcome.stdout == f"{machine.here}\n"


@pytest.mark.parametrize(("server", "client"), WAYS)
def test_a_file_arrives_as_it_was_sent(
    machine: Machine, server: str, client: str, tmp_path: Path
) -> None:
    programs.copy_file(machine, server, client, 32 << 20, tmp_path)


@pytest.mark.parametrize(("server", "client"), WAYS)
def test_a_program_in_python_talks_to_another(machine: Machine, server: str, client: str) -> None:
    """Messages of all sizes, WRITE, READ and atomics, each checked by the one who asked."""
    port = new_port()
    echo = [sys.executable, "-P", str(programs.ECHO)]
    _, told = machine.talk(
        (server, [*echo, "serve", str(port), "--connections", "1"]),
        (client, [*echo, "ask", programs.address(server), str(port), "--rounds", "200"]),
        machine.cm(port),
    )
    assert told.stdout == "begun\n200 rounds\n", told.describe()


@pytest.mark.parametrize(("server", "client"), WAYS)
def test_iperf3_runs_over_the_netdev(networked: Machine, server: str, client: str) -> None:
    programs.iperf3(networked, server, client)


def test_guests_see_each_other_in_the_netdev_by_ipv6(networked: Machine) -> None:
    ping = ["ping", "-c", "3", "-W", "10"]
    networked.run("host0", [*ping, "fd4e:5550:4100::2"])
    networked.run("host1", [*ping, "fd4e:5550:4100::3"])


def test_a_program_of_run_net_reaches_a_guest_by_tcp(networked: Machine) -> None:
    outcome = networked.nupa(
        "run", "--net", "--", needs("ping", "iputils-ping"), "-c", "3", "host0"
    )
    assert " 0% packet loss" in outcome.check().stdout
