# SPDX-License-Identifier: BSD-3-Clause
"""Hosts by name and address: programs of `nupa run` meet by sockets of their machine."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

import pytest

from nupa.programs.pair import PairResult, Program, free_port
from tests.programs.needs import needs

from .lab import DEADLINE_S, Lab

SOURCES = Path(__file__).with_name("c")
MEETS = (sys.executable, str(Path(__file__).with_name("meets.py")))
IPV6 = "fd4e:5550:4100::2"
MACHINES = """
host = [{name = "host", count = 2, switch = "switch0"}]
switch = [{name = "switch0", ports = 4}]
segment = {segment_bytes = 67108864}
"""
HINT = "nupa: no program of `nupa run` on"


def server(fabric: Lab, host: str, *words: str) -> Program:
    """Starts a program of meets.py; returns it when it listens."""
    program = fabric.start(fabric.on(host, *MEETS, *words))
    program.wait_said("listens", DEADLINE_S)
    return program


def meet(fabric: Lab, serve: list[str], call: list[str]) -> tuple[list[str], list[str]]:
    """Runs a server on host1 and its client on host0; returns the addresses that each printed."""
    with server(fabric, "host1", *serve) as started:
        called = fabric.must(fabric.on("host0", *MEETS, *call)).split()
        return started.wait(DEADLINE_S).check().stdout.split()[1:], called


def test_every_call_of_libc_that_takes_a_name_finds_a_host(fabric: Lab) -> None:
    program = fabric.compile(SOURCES / "resolves.c")
    found = dict(
        line.split() for line in fabric.must(fabric.on(None, program, "host3")).splitlines()
    )
    assert found.pop("getaddrinfo_numeric") == "none"
    assert {call for call, to in found.items() if to == "fd4e:5550:4100::4"} == {
        call for call in found if call.endswith("6")
    }
    assert {to for call, to in found.items() if not call.endswith("6")} == {"10.0.0.4"}


def test_other_names_resolve_as_without_the_shim(fabric: Lab) -> None:
    program = fabric.compile(SOURCES / "resolves.c")
    for name in ("localhost", "127.0.0.1", "::1"):
        assert fabric.must(fabric.on(None, program, name)) == fabric.must([program, name])


@pytest.mark.parametrize(
    ("address", "bound"),
    [
        *((address, "0.0.0.0") for address in ("host1", "10.0.0.2", IPV6, "::ffff:10.0.0.2")),
        *((address, "::") for address in ("host1", IPV6)),
        *((address, address) for address in ("10.0.0.2", IPV6)),
    ],
)
def test_tcp_reaches_the_listener_of_the_host_and_both_see_hosts(
    fabric: Lab, address: str, bound: str
) -> None:
    port = str(free_port())
    own, other = "10.0.0.1", "10.0.0.2"
    if address == IPV6:
        own, other = "fd4e:5550:4100::1", IPV6
    served, called = meet(fabric, ["serve", bound, port], ["call", address, port])
    assert [word.removeprefix("::ffff:") for word in called] == [own, other]
    if bound == "0.0.0.0":
        own, other = "10.0.0.1", "10.0.0.2"
    assert [word.removeprefix("::ffff:") for word in served] == [own, own, other]


@pytest.mark.parametrize(
    ("way", "bound"),
    [("sendto", "0.0.0.0"), ("sendmsg", "0.0.0.0"), ("connect", "0.0.0.0"), ("sendto", "::")],
)
def test_datagrams_come_from_the_host_that_sent_them(fabric: Lab, way: str, bound: str) -> None:
    port = str(free_port())
    answered, asked = meet(fabric, ["answer", bound, port], ["ask", "10.0.0.2", port, way])
    assert answered[0].removeprefix("::ffff:") == "10.0.0.1"
    assert asked == ["10.0.0.2"]


def test_a_listener_of_another_host_is_not_reached_and_is_named(fabric: Lab) -> None:
    port = str(free_port())
    with server(fabric, "host1", "serve", "0.0.0.0", port):
        outcome = fabric.run(fabric.on("host0", *MEETS, "call", "10.0.0.3", port))
    assert outcome.returncode == 1
    assert f"[Errno {errno.ECONNREFUSED}]" in outcome.stderr
    (hint,) = [line for line in outcome.stderr.splitlines() if line.startswith("nupa: ")]
    assert hint.startswith(f"{HINT} host2 listens at TCP port {port} (but python")
    assert " on host1 does); " in hint


def test_a_listener_that_no_fabric_has_is_not_reached(fabric: Lab) -> None:
    port = str(free_port())
    with fabric.start([*MEETS, "serve", "0.0.0.0", port]) as outside:
        outside.wait_said("listens", DEADLINE_S)
        outcome = fabric.run(fabric.on("host0", *MEETS, "call", "10.0.0.2", port))
    assert f"[Errno {errno.ECONNREFUSED}]" in outcome.stderr
    assert f"{HINT} host1 listens at TCP port {port} (but python" in outcome.stderr


def test_a_guest_is_not_reached_and_the_way_is_named(lab: Lab) -> None:
    topology = lab.build / "machines.toml"
    topology.write_text(MACHINES)
    lab.nupa("up", "--topology", str(topology))
    outcome = lab.run(lab.on("host0", *MEETS, "call", "host1", str(free_port())))
    lab.nupa("down")
    assert f"[Errno {errno.ECONNREFUSED}]" in outcome.stderr
    assert (
        "nupa: host1 is a guest or another machine: TCP reaches it from `nupa run --net`, "
        "once `nupa net up` has run there\n" in outcome.stderr
    )


def test_a_server_that_writes_a_title_over_its_environment_is_reached(fabric: Lab) -> None:
    port = str(free_port())
    assert meet(fabric, ["titled", "0.0.0.0", port], ["call", "host1", port])[1]


def test_servers_of_two_hosts_have_the_same_port_at_their_own_addresses(fabric: Lab) -> None:
    port = str(free_port())
    with (
        server(fabric, "host1", "serve", "10.0.0.2", port) as one,
        server(fabric, "host2", "serve", "10.0.0.3", port) as two,
    ):
        for host in ("host1", "host2"):
            fabric.must(fabric.on("host0", *MEETS, "call", host, port))
        said = [found.wait(DEADLINE_S).check().stdout.split()[-1] for found in (one, two)]
    assert said == ["10.0.0.2", "10.0.0.3"]


def test_no_address_of_the_fabric_reaches_the_kernel(fabric: Lab) -> None:
    addresses = ["10.0.0.2", "10.0.0.77", "fd4e:5550:4100::2", "fd4e:5550:4100::99"]
    outcome = fabric.run(fabric.on("host0", *MEETS, "spray", *addresses)).check()
    assert outcome.stdout.splitlines() == [
        "10.0.0.2 sent ECONNREFUSED",
        "10.0.0.77 EHOSTUNREACH EHOSTUNREACH",
        "fd4e:5550:4100::2 sent ECONNREFUSED",
        "fd4e:5550:4100::99 EHOSTUNREACH EHOSTUNREACH",
    ]
    assert "nupa: 10.0.0.77 is no host of the fabric" in outcome.stderr
    assert outcome.stderr.count("nupa: ") == 2


def test_a_bound_datagram_socket_is_not_connected_in_vain(fabric: Lab) -> None:
    script = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 0));"
        "print(s.connect_ex(('host1', 9)))"
    )
    outcome = fabric.run(fabric.on("host0", sys.executable, "-c", script)).check()
    assert outcome.stdout.strip() == str(errno.ENETUNREACH)
    assert "nupa: a datagram socket that is bound to a port alone" in outcome.stderr


def run_pair(fabric: Lab, server: list[str], client: list[str], port: int) -> PairResult:
    return fabric.pair(server, client, port=port, hosts=("host1", "host0")).run().check()


def test_perftest_iperf3_and_curl_take_a_host_by_its_name(fabric: Lab) -> None:
    port = free_port()
    perftest = [needs("ib_write_bw", "perftest"), "-n", "100", "-p", str(port)]
    said = run_pair(fabric, perftest, [*perftest, "host1"], port).client.stdout
    assert " 65536      100 " in said

    iperf3 = [needs("iperf3", "iperf3"), "-p", str(port)]
    report = run_pair(
        fabric, [*iperf3, "-s", "-1"], [*iperf3, "-J", "-n", "1M", "-c", "host1"], port
    )
    (connected,) = json.loads(report.client.stdout)["start"]["connected"]
    assert (connected["local_host"], connected["remote_host"]) == ("10.0.0.1", "10.0.0.2")

    with fabric.start(fabric.on("host1", sys.executable, "-um", "http.server", str(port))) as web:
        web.wait_said("Serving", DEADLINE_S)
        ask = [needs("curl", "curl"), "-sSfo", "/dev/null", f"http://host1:{port}/"]
        fabric.must(fabric.on("host0", *ask))
