# SPDX-License-Identifier: BSD-3-Clause
"""Programs as a new user types them: plain `nupa run` in two terminals, and 127.0.0.1.

Each is on a host of its own, and loopback means the machine.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from nupa.programs.pair import PairResult, ProgramOutcome, ProgramPair, free_port
from tests.ecosystem.lab import DEADLINE_S, Lab
from tests.programs.needs import needs

SERVED = (
    "7174"  #: The port of rping and udaddy; others are told.  Fabrics are apart, and so are ports.
)


def end_of_client(pair: ProgramPair) -> ProgramOutcome:
    """Waits for the client of a server that runs for ever, which must still do so."""
    outcome = pair.client.wait(pair.deadline_s).check()
    assert pair.server.running, pair.server.outcome().describe()
    return outcome


@pytest.mark.parametrize("to", ["127.0.0.1", "127.8.9.10", "::1", "0.0.0.0"])
def test_rping_reaches_the_server_of_the_other_terminal(fabric: Lab, to: str) -> None:
    rping = [needs("rping", "rdmacm-utils"), "-C", "3", "-v"]
    bind = ["-a", "::"] if ":" in to else []
    with fabric.meet([*rping, "-s", *bind], [*rping, "-c", "-a", to], port=int(SERVED)) as pair:
        result = pair.wait().check()
    assert result.client.stdout.count("ping data: rdma-ping-") == 3
    assert all(fabric.moved_bytes()[host] > 0 for host in ("host0", "host1"))


def test_the_machines_own_address_means_the_machine(fabric: Lab) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # the address on the way there; sends nothing
        except OSError as error:
            pytest.skip(f"this machine has no address but loopback: {error}")
        address = probe.getsockname()[0]
    rping = [needs("rping", "rdmacm-utils"), "-C", "1", "-v"]
    with fabric.meet([*rping, "-s"], [*rping, "-c", "-a", address], port=int(SERVED)) as pair:
        assert "rdma-ping-0" in pair.wait().check().client.stdout


@pytest.mark.parametrize(
    ("server", "client", "space"),
    [
        (["ucmatose", "-p", SERVED], ["ucmatose", "-p", SERVED, "-s", "127.0.0.1"], "tcp"),
        (
            ["ucmatose", "-p", SERVED, "-b", "127.0.0.1"],
            ["ucmatose", "-p", SERVED, "-s", "127.0.0.1"],
            "tcp",
        ),
        (["udaddy"], ["udaddy", "-s", "127.0.0.1"], "udp"),
        (["rdma_server", "-p", SERVED], ["rdma_client", "-p", SERVED], "tcp"),
        (["rdma_xserver", "-p", SERVED], ["rdma_xclient", "-p", SERVED], "tcp"),
        (["rstream", "-p", SERVED, "-S", "5000", "-C", "40", "-I", "5"],) * 2 + ("tcp",),
        (["riostream", "-p", SERVED, "-S", "5000", "-C", "40", "-I", "5"],) * 2 + ("tcp",),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_program_of_rdmacm_utils_reaches_its_partner(
    fabric: Lab, server: list[str], client: list[str], space: str
) -> None:
    needs(server[0], "rdmacm-utils")
    if server[0].endswith("stream"):
        client = [*client, "-s", "127.0.0.1"]
    with fabric.meet(server, client, port=int(SERVED), space=space) as pair:
        pair.wait().check()


def test_mckey_receives_what_is_sent_to_its_group(lab: Lab) -> None:
    """Also without a fabric that was made before: the first `nupa run` makes one for both."""
    mckey = [needs("mckey", "rdmacm-utils"), "-m", "239.192.0.1"]
    sender = lab.on(None, *mckey, "-s")  # it waits three seconds, as for a subnet manager
    pair = ProgramPair(lab.on(None, *mckey), sender, env=lab.env, deadline_s=DEADLINE_S)
    result = pair.run().check()
    assert "data transfers complete" in result.server.stdout
    assert "data transfers complete" in result.client.stdout


def test_cmtime_connects_a_hundred_times(fabric: Lab) -> None:
    cmtime = [needs("cmtime", "rdmacm-utils"), "-p", SERVED, "-c", "100"]
    with fabric.meet(cmtime, [*cmtime, "-s", "127.0.0.1"], port=int(SERVED)) as pair:
        assert re.search(r"^connect\b.*\d", end_of_client(pair).stdout, re.MULTILINE)


def test_rcopy_copies_a_file(fabric: Lab, tmp_path: Path) -> None:
    data, copy = os.urandom(1 << 20), tmp_path / "copy"
    (tmp_path / "data").write_bytes(data)
    rcopy = needs("rcopy", "rdmacm-utils")
    client = [rcopy, str(tmp_path / "data"), f"127.0.0.1:{copy}", "-p", SERVED]
    with fabric.meet([rcopy, "-p", SERVED], client, port=int(SERVED)) as pair:
        end_of_client(pair)
    assert copy.read_bytes() == data


def by_tcp(fabric: Lab, server: Sequence[str], client: Sequence[str], port: int) -> PairResult:
    """Runs programs to their ends that have one address and port for TCP and for rdma_cm."""
    return fabric.pair(server, client, port=port, hosts=(None, None)).run().check()


def test_qperf_connects_by_rdma_cm(fabric: Lab) -> None:
    port = free_port()
    server = [needs("qperf", "qperf"), "-lp", str(port)]
    client = [*server, "-cm", "1", "-t", "1", "127.0.0.1", "rc_bw", "rc_lat", "quit"]
    said = by_tcp(fabric, server, client, port).client.stdout
    assert re.findall(r"^(\w+):\n    (?:bw|latency)  =", said, re.MULTILINE) == ["rc_bw", "rc_lat"]


@pytest.mark.parametrize("name", ["ib_write_bw", "ib_read_lat", "ib_send_bw"])
def test_perftest_connects_by_rdma_cm(fabric: Lab, name: str) -> None:
    port = free_port()
    command = [needs(name, "perftest"), "-R", "-n", "200", "-p", str(port)]
    with fabric.meet(command, [*command, "127.0.0.1"], port=port) as pair:
        assert re.search(r"^ \d+ +200 ", pair.wait().check().client.stdout, re.MULTILINE)


@pytest.mark.parametrize(("provider", "kind"), [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")])
def test_libfabric_connects_to_the_address_of_its_tcp_connection(
    fabric: Lab, provider: str, kind: str
) -> None:
    port = free_port()
    command = [needs("fi_pingpong", "libfabric-bin"), "-p", provider, "-e", kind, "-c"]
    server, client = [*command, "-B", str(port)], [*command, "-P", str(port), "127.0.0.1"]
    said = by_tcp(fabric, server, client, port).client.stdout
    sizes = re.findall(r"^(\S+)\s+10\s+=10\s", said, re.MULTILINE)
    assert sizes == ["64", "256", "1k", "4k", "64k", "1m"]


@pytest.mark.parametrize("verb", ["write", "read"])
def test_fio_writes_and_reads(fabric: Lab, verb: str) -> None:
    port = free_port()
    fio = [
        needs("fio", "fio"),
        "--thread",
        "--ioengine=rdma",
        f"--port={port}",
        "--bs=64k",
        "--size=8m",
    ]
    server = [*fio, "--name=server", "--rw=read"]
    client = [*fio, "--name=client", "--hostname=127.0.0.1", f"--verb={verb}", "--rw=write"]
    with fabric.meet(server, client, port=port) as pair:
        said = pair.wait().check().client.stdout
    assert "io=8192KiB" in said
