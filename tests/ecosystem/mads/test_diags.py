# SPDX-License-Identifier: BSD-3-Clause
"""infiniband-diags: what they find in a subnet, and what they change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nupa.programs.pair import free_port
from tests.ecosystem.lab import Lab
from tests.programs.needs import needs

from .subnet import TRUNK, Subnet, guid


def fields(output: str) -> dict[str, str]:
    """Returns what a tool lists as `Name:.......value`."""
    return dict(re.findall(r"^([\w ]+):\.+(.*)$", output, re.MULTILINE))


def test_the_topology_is_found_without_a_subnet_manager(subnet: Subnet) -> None:
    found = subnet.diag(0, "ibnetdiscover")
    links = re.findall(r'^\[\d\].*# +"(\S+?)[ "].* lid (\d+) (\S+)$', found, re.MULTILINE)
    assert sorted(set(links[:6])) == [
        ("host0", "1", "4xEDR"),
        ("host1", "2", "4xEDR"),
        ("host2", "3", "4xEDR"),
        ("host3", "4", "4xEDR"),
        ("switch0", "5", "4xEDR"),
        ("switch1", "6", "4xEDR"),
    ]
    node = fields(subnet.diag(3, "smpquery", "nodeinfo", "-D", "0"))
    assert node["NodeType"] == "Channel Adapter"
    assert node["PortGuid"] == guid(3)
    assert fields(subnet.diag(3, "smpquery", "nodeinfo", "-D", "0,1,3"))["NodeType"] == "Switch"
    assert guid(2) in subnet.diag(1, "smpquery", "nodeinfo", "3")
    assert "GID fe80::aff:fe00:3 LID start 0x3 end 0x3" in subnet.diag(2, "ibaddr")
    # Nobody answers for a subnet manager: a timeout, as on hardware.
    assert "failed: query" in subnet.try_diag(1, "sminfo", "-t", "100").stdout


def test_links_and_paths_are_shown(subnet: Subnet) -> None:
    links = subnet.diag(3, "iblinkinfo", "-l")
    assert links.count("25.78125 Gbps Active/  LinkUp") == 10
    way = subnet.diag(3, "ibtracert", "4", "1")
    assert re.findall(r'"(\S+?)[ "]', way) == ["host3", "switch1", "switch0", "host0", "host0"]


def test_a_port_that_is_disabled_is_down_for_all(subnet: Subnet) -> None:
    subnet.diag(0, "ibportstate", *TRUNK, "disable")
    states = {port["name"]: port["state"] for port in subnet.lab.show()["ports"]}
    assert states["switch0/3"].lower() == "down"
    assert "Down/Disabled" in subnet.diag(1, "iblinkinfo", "-l")
    assert not subnet.try_diag(0, "smpquery", "-t", "100", "nodeinfo", "-D", "0,1,3").ok
    subnet.diag(1, "ibportstate", *TRUNK, "enable")
    assert fields(subnet.diag(0, "smpquery", "portinfo", *TRUNK))["LinkState"] == "Active"
    counters = fields(subnet.diag(2, "perfquery", *TRUNK))
    assert counters["LinkDownedCounter"] == "1"
    assert subnet.counters("switch0/3")["link_downed"] == 1


def test_counters_are_those_of_nupa_show(subnet: Subnet) -> None:
    port = free_port()
    write = [needs("ib_write_bw", "perftest"), "-s", "65536", "-n", "20", "-p", str(port)]
    pair = subnet.lab.pair(write, [*write, "localhost"], port=port, hosts=("host0", "host2"))
    pair.run().check()
    names = {"PortXmitData": "port_xmit_data", "PortRcvData": "port_rcv_data"}
    for lid, number, name in [
        ("1", "1", "host0/1"),
        ("5", "3", "switch0/3"),
        ("6", "1", "switch1/1"),
    ]:
        read = fields(subnet.diag(1, "perfquery", "-x", lid, number))
        shown = subnet.counters(name)
        assert {ours: int(read[theirs]) for theirs, ours in names.items()} == {
            ours: shown[ours] for ours in names.values()
        }
        assert max(shown.values()) >= 20 * 65536 // 4
    # A reset is one for readers of MADs.
    subnet.diag(1, "perfquery", "-x", "-R", *TRUNK)
    again = fields(subnet.diag(1, "perfquery", "-x", *TRUNK))
    assert (again["PortXmitData"], again["PortRcvData"]) == ("0", "0")
    assert subnet.counters("switch0/3")["port_rcv_data"] > 0


def test_ibping_is_answered_by_the_program_of_another_host(subnet: Subnet) -> None:
    ibping = needs("ibping", "infiniband-diags")
    with subnet.lab.start(subnet.on(2, ibping, "-S")) as server:
        # Its registration is not said anywhere; a request before it is lost.
        pinged = subnet.try_diag(3, "ibping", "-c", "1", "-t", "500", "3")
        while not pinged.ok or " 0% packet loss" not in pinged.stdout:
            assert server.running, server.outcome().describe()
            pinged = subnet.try_diag(3, "ibping", "-c", "1", "-t", "500", "3")
        assert "Pong from" in pinged.stdout
    # A process that was killed has no registration.
    lost = subnet.try_diag(3, "ibping", "-c", "1", "-t", "200", "3")
    assert "100% packet loss" in lost.stdout


def test_a_roce_port_has_management_datagrams_but_no_subnet_management(fabric: Lab) -> None:
    listed = fabric.must(fabric.on("host0", "ls", "/dev/infiniband", "/sys/class/infiniband_mad"))
    assert "umad0" in listed
    assert "issm0" not in listed
    refused = fabric.run(
        fabric.on("host0", needs("smpquery", "infiniband-diags"), "nodeinfo", "-D", "0")
    )
    assert not refused.ok


@pytest.mark.parametrize("seed", [1, 2])
def test_a_program_that_writes_nonsense_is_refused_and_disturbs_nobody(
    subnet: Subnet, seed: int
) -> None:
    source = Path(__file__).parents[1] / "c" / "umad_nonsense.c"
    nonsense = subnet.lab.compile(source)
    said = subnet.lab.must(subnet.on(1, nonsense, str(seed)))
    assert re.fullmatch(r"refused [1-9]\d*, taken [1-9]\d*, read [1-9]\d*\n", said), said
    assert guid(1) in subnet.diag(1, "smpquery", "nodeinfo", "-D", "0")
