# SPDX-License-Identifier: BSD-3-Clause
"""Tools that look at RDMA devices: infiniband-diags and ibverbs-utils; libfabric's programs."""

from __future__ import annotations

import re

import pytest

from nupa.programs.pair import free_port
from tests.programs.needs import needs

from .lab import Lab


def test_ibstat_shows_the_device_and_its_port(fabric: Lab) -> None:
    ibstat = needs("ibstat", "infiniband-diags")
    output = fabric.must(fabric.on("host0", ibstat))
    assert "CA 'nupa_rdma0'" in output
    said = dict(re.findall(r"^\s*(\S.*?): (\S.*?)$", output, re.MULTILINE))
    assert {name: said[name] for name in ("State", "Physical state", "Link layer", "Rate")} == {
        "State": "Active",
        "Physical state": "LinkUp",
        "Link layer": "Ethernet",
        "Rate": "100",
    }
    guid = fabric.must(fabric.on("host0", "cat", "/sys/class/infiniband/nupa_rdma0/node_guid"))
    assert said["Node GUID"] == "0x" + guid.strip().replace(":", "")


@pytest.mark.parametrize("fabric", ["infiniband"], indirect=True)
def test_ibstat_shows_the_lid_of_an_infiniband_port(fabric: Lab) -> None:
    output = fabric.must(fabric.on("host3", needs("ibstat", "infiniband-diags"), "-s"))
    assert "nupa_rdma0" in output
    whole = fabric.must(fabric.on("host3", needs("ibstat", "infiniband-diags"), "nupa_rdma0", "1"))
    assert re.search(r"Base lid: 4$", whole, re.MULTILINE)
    assert "Link layer: InfiniBand" in whole


def test_ibstatus_is_a_script_and_shows_the_port(fabric: Lab) -> None:
    output = fabric.must(fabric.on(None, needs("ibstatus", "infiniband-diags")))
    assert "Infiniband device 'nupa_rdma0' port 1 status:" in output
    assert re.search(r"state:\s+4: ACTIVE", output)


def test_ibv_devinfo_says_what_the_files_say(fabric: Lab) -> None:
    output = fabric.must(fabric.on(None, needs("ibv_devinfo", "ibverbs-utils"), "-v"))
    said = dict(re.findall(r"^\s*(\S.*?):\s+(\S.*?)\s*$", output, re.MULTILINE))
    device = "/sys/class/infiniband/nupa_rdma0"
    files = fabric.must(
        fabric.on(None, "cat", f"{device}/fw_ver", f"{device}/board_id", f"{device}/node_guid")
    )
    assert files.splitlines() == [said["fw_ver"], said["board_id"], said["node_guid"]]
    assert said["state"] == "PORT_ACTIVE (4)"


def test_libfabric_lists_the_device_for_connections_datagrams_and_reliable_datagrams(
    fabric: Lab,
) -> None:
    output = fabric.must(fabric.on(None, needs("fi_info", "libfabric-bin"), "-p", "verbs"))
    found = set(re.findall(r"domain: (\S+)\n.*\n\s+type: (\S+)", output))
    assert found >= {("nupa_rdma0", "FI_EP_MSG"), ("nupa_rdma0-dgram", "FI_EP_DGRAM")}


def sizes_pinged(fabric: Lab, hosts: tuple[str, str], *options: str) -> list[str]:
    """Returns the client's sizes: fi_pingpong checks its data (-c) and prints a line for each."""
    command = [needs("fi_pingpong", "libfabric-bin"), *options, "-c"]
    port = free_port()
    server, client = [*command, "-B", str(port)], [*command, "-P", str(port), "127.0.0.1"]
    result = fabric.pair(server, client, port=port, hosts=hosts).run().check()
    return re.findall(r"^(\S+)\s+10\s+=10\s", result.client.stdout, re.MULTILINE)


UP_TO_MTU = ["64", "256", "1k", "4k"]
UP_TO_MIB = [*UP_TO_MTU, "64k", "1m"]


# It connects where its control connection, TCP, went to; for other hosts see two_terminals.
@pytest.mark.parametrize(
    ("provider", "kind"), [("verbs", "msg"), ("verbs;ofi_rxm", "rdm"), ("verbs;ofi_rxd", "rdm")]
)
def test_libfabric_programs_of_one_host_exchange_all_sizes(
    fabric: Lab, provider: str, kind: str
) -> None:
    options = "-p", provider, "-e", kind
    assert sizes_pinged(fabric, ("host0", "host0"), *options) == UP_TO_MIB


@pytest.mark.parametrize(
    ("provider", "kind", "sizes"),
    [("verbs", "dgram", UP_TO_MTU), ("verbs;ofi_rxd", "rdm", UP_TO_MIB)],
)
def test_libfabric_datagrams_pass_between_hosts(
    fabric: Lab, provider: str, kind: str, sizes: list[str]
) -> None:
    before = fabric.moved_bytes()
    options = "-p", provider, "-e", kind, "-d", "nupa_rdma0-dgram"
    assert sizes_pinged(fabric, ("host0", "host1"), *options) == sizes
    assert all(fabric.moved_bytes()[host] > before[host] for host in ("host0", "host1"))


# qperf knows LIDs only, so it runs where the link layer is InfiniBand; a second for each test.
@pytest.mark.parametrize("fabric", ["infiniband"], indirect=True)
@pytest.mark.parametrize(
    "tests",
    [
        ["rc_lat", "rc_bw", "uc_lat", "uc_bw", "ud_lat", "ud_bw"],
        ["rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_rdma_write_bw"],
        ["rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add"],
    ],
)
def test_qperf_measures_over_infiniband_and_finds_its_atomics_right(
    fabric: Lab, tests: list[str]
) -> None:
    port = str(free_port())
    command = [needs("qperf", "qperf"), "-lp", port]
    client = [*command, "-t", "1", "127.0.0.1", *tests, "quit"]
    result = fabric.pair(command, client, port=int(port)).run().check()
    measured = re.findall(r"^(\w+):\n((?:    .* = .*\n)+)", result.client.stdout, re.MULTILINE)
    assert [name for name, _ in measured] == tests
