# SPDX-License-Identifier: BSD-3-Clause
"""Tools that look at RDMA devices: infiniband-diags, ibverbs-utils, libfabric."""

from __future__ import annotations

import re

import pytest

from .lab import Lab, needs


def test_ibstat_shows_the_device_and_its_port(fabric: Lab) -> None:
    ibstat = needs("ibstat", "infiniband-diags")
    output = fabric.must(fabric.on("host0", ibstat))
    assert "CA 'nupa_rdma0'" in output
    said = dict(re.findall(r"^\s*(\S.*?): (\S.*?)$", output, re.MULTILINE))
    assert {name: said[name] for name in ("State", "Physical state", "Link layer", "Rate")} == {
        "State": "Active",
        "Physical state": "LinkUp",
        "Link layer": "Ethernet",
        "Rate": "128",
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
