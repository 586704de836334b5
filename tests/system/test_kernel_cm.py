# SPDX-License-Identifier: BSD-3-Clause
"""Programs that meet by the RDMA CM, of the kernel at one end or at both: connections with READs,
WRITEs and atomics, UC, and datagram services (SIDR)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.needs import needs
from tests.system import upper

from . import programs, verbs
from .machine import Machine, new_port

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1800)]

ROUNDS = 50
#: udaddy has no option for it.
UDADDY_PORT = 7174
#: Of IPv4 and IPv6, before the number of the host.
NETWORKS = ("10.0.0.", "fd4e:5550:4100::")
PERFTEST = [
    ("ib_send_bw", "-s", "8192"),
    ("ib_atomic_lat",),
    ("ib_atomic_bw", "-A", "CMP_AND_SWAP"),
]
#: Its server listens twice, and its client does not wait for the second time.  An emulated server
#: with the drop-in libraries is too slow for a kernel.
PERFTEST_WAYS = [way for way in verbs.WAYS if way != "to drop-in libraries"]
#: Of two programs with UC, as perftest's refuse it.
_UC = Path(upper.__file__).with_name("uc_by_cm.c")
Way = tuple[tuple[str, str], tuple[str, ...]]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with verbs.booted_for_programs() as machine:
        yield machine


@pytest.fixture(autouse=True)
def _no_warnings(machine: Machine) -> Iterator[None]:
    yield
    assert [machine.warnings(host) for host in machine.hosts] == [[], []]


@pytest.fixture(params=verbs.WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return verbs.WAYS[request.param]


@pytest.fixture(scope="module")
def uc_by_cm(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = str(tmp_path_factory.mktemp("uc") / "uc_by_cm")
    command = [needs("gcc", "gcc"), "-O2", "-Wall", "-D_GNU_SOURCE", str(_UC), "-o", program]
    subprocess.run([*command, "-lrdmacm", "-libverbs"], check=True)
    return program


def test_rping_checks_what_it_reads_and_writes(machine: Machine, way: Way) -> None:
    at, port = programs.address(way[0][0]), new_port()
    command = [needs("rping", "rdmacm-utils"), "-p", str(port), "-a", at, "-C", "5", "-v", "-V"]
    told = verbs.by_rdma_cm(machine, *way, [*command, "-s"], [*command, "-c"], port)
    assert "ping data: rdma-ping-4:" in told.stdout


def test_ucmatose_connects(machine: Machine, way: Way) -> None:
    at, port = programs.address(way[0][0]), new_port()
    command = [needs("ucmatose", "rdmacm-utils"), "-p", str(port), "-c", "2", "-C", "5"]
    told = verbs.by_rdma_cm(machine, *way, [*command, "-b", at], [*command, "-s", at], port)
    assert "return status 0" in told.stdout


def test_uc_returns_messages_and_writes(machine: Machine, way: Way, uc_by_cm: str) -> None:
    at, port = programs.address(way[0][0]), new_port()
    server, client = ([uc_by_cm, role, at, str(port), str(port)] for role in ("server", "client"))
    told = verbs.by_rdma_cm(machine, *way, server, client, port, "ib")
    assert told.stdout == "16 messages came back\n"


@pytest.mark.parametrize("network", NETWORKS)
def test_udaddy_asks_for_a_service_and_exchanges_datagrams(
    machine: Machine, way: Way, network: str
) -> None:
    """Its server makes address handles of the headers of the datagrams that it receives."""
    at = f"{network}{int(way[0][0].removeprefix('host')) + 1}"
    command = [needs("udaddy", "rdmacm-utils"), "-c", "2", "-C", "5"]
    server, client = [*command, "-b", at], [*command, "-s", at]
    told = verbs.by_rdma_cm(machine, *way, server, client, UDADDY_PORT, "udp")
    assert "data transfers complete" in told.stdout
    assert "return status 0" in told.stdout


@pytest.mark.parametrize("name", PERFTEST_WAYS)
@pytest.mark.parametrize("options", PERFTEST, ids=" ".join)
def test_perftest_connects(machine: Machine, name: str, options: tuple[str, ...]) -> None:
    hosts, plain = verbs.WAYS[name]
    at, port = programs.address(hosts[0]), new_port()
    command = [needs(options[0], "perftest"), "-R", "-F", "-n", str(ROUNDS), "-p", str(port)]
    command += options[1:]
    told = verbs.by_rdma_cm(machine, hosts, plain, command, [*command, at], port)
    assert re.search(rf"^ *\d+ +{ROUNDS} +[\d.]+ ", told.stdout, re.MULTILINE), told.describe()
