# SPDX-License-Identifier: BSD-3-Clause
"""ibv_devices and ibv_devinfo: the device that programs find, and what it promises."""

from __future__ import annotations

import re

import pytest

from tests.programs.stage import Stage

#: Issue 2, section 4: limits as a real HCA's.
LEAST = {
    "max_qp": 65_536,
    "max_qp_wr": 16_384,
    "max_sge": 16,
    "max_cqe": 1_048_576,
    "max_mr": 1_048_576,
}


def devinfo(stage: Stage, host: str) -> dict[str, str]:
    outcome = stage.run(stage.nupa_run(["ibv_devinfo", "-v"], host)).check()
    return dict(re.findall(r"^\s*(\S.*?):\s+(\S.*?)\s*$", outcome.stdout, re.MULTILINE))


def test_the_device_of_a_host_is_listed(by_user: Stage) -> None:
    outcome = by_user.run(by_user.nupa_run(["ibv_devices"])).check()
    assert re.search(r"^\s*nupa_rdma0\s+[0-9a-f]{16}$", outcome.stdout, re.MULTILINE)


def test_the_device_promises_what_a_real_one_does(by_user: Stage) -> None:
    info = devinfo(by_user, "host0")
    assert info["hca_id"] == "nupa_rdma0"
    assert {name: limit for name, limit in LEAST.items() if int(info[name]) < limit} == {}


def test_the_port_is_active_and_speaks_roce_v2_with_the_address_of_its_host(stage: Stage) -> None:
    info = devinfo(stage, "host1")
    assert (info["state"], info["link_layer"]) == ("PORT_ACTIVE (4)", "Ethernet")
    assert (info["max_mtu"], info["active_mtu"]) == ("4096 (5)", "4096 (5)")
    assert info["GID[  0]"].startswith("fe80::")
    assert info["GID[  1]"] == "::ffff:10.0.0.2, RoCE v2"


@pytest.mark.parametrize(
    ("direction", "state"), [("down", "PORT_DOWN (1)"), ("up", "PORT_ACTIVE (4)")]
)
def test_the_port_is_as_nupa_port_sets_it(stage: Stage, direction: str, state: str) -> None:
    for command in ("up",), ("port", "host0", direction):
        stage.ok(*command)
    assert devinfo(stage, "host0")["state"] == state
    assert stage.run(stage.nupa("down")).ok
