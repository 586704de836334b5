# SPDX-License-Identifier: BSD-3-Clause
"""Regions and tenants: windows and allocations of another tenant's hosts are refused."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator

import pytest

from nupa.base.errors import LocalError
from nupa.fabric import Fabric
from nupa.topology.file import load

SIZE = 1 << 16
_WAIT_S = 20.0


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """red: host0, host1; blue: host2, host3; host4 and host5 have no tenant."""
    with Fabric(topology=load("tenants")) as fabric:
        for host in ("host4", "host5"):
            fabric.set_host_state(host, "ready")
            fabric.set_port(host, True)
        yield fabric


def await_so(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + _WAIT_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


def refused(fabric: Fabric, host: str, region: object) -> None:
    with pytest.raises(LocalError, match="it belongs to another tenant than host") as error:
        fabric.host(host).map(region)  # type: ignore[arg-type]
    assert error.value.errno == errno.EACCES


def test_a_region_is_for_hosts_of_its_owners_tenant(fabric: Fabric) -> None:
    with fabric.pool.alloc(SIZE, "log", share="all", host="host0") as region:
        with fabric.host("host0").map(region) as own, fabric.host("host1").map(region) as other:
            own.write(0, b"red")
            assert other.read(0, 3) == b"red"
        for host in ("host2", "host3", "host4"):
            refused(fabric, host, region)
    with fabric.pool.alloc(SIZE, share="all", host="host4") as region:
        fabric.host("host5").map(region).close()
        refused(fabric, "host0", region)


def test_a_tag_in_a_partition_is_for_hosts_of_its_tenant(fabric: Fabric) -> None:
    fabric.partitions.get("red-data").join("device:weights")
    with fabric.pool.alloc(SIZE, "weights", share="all", host="host4") as region:
        for host in ("host0", "host1", "host4"):
            fabric.host(host).map(region).close()
        for host in ("host2", "host5"):
            refused(fabric, host, region)
    fabric.pool.alloc(SIZE, "weights", host="host0").free()
    with pytest.raises(LocalError, match="its tag is a device of another tenant's part") as error:
        fabric.pool.alloc(SIZE, "weights", host="host2")
    assert error.value.errno == errno.EACCES
    assert fabric.pool.quota("host2").used == 0


def test_a_tag_of_two_tenants_is_for_both(fabric: Fabric) -> None:
    for name in ("red-data", "blue-data"):
        fabric.partitions.get(name).join("device:both")
    with fabric.pool.alloc(SIZE, "both", share="all", host="host0") as region:
        for host in ("host1", "host2"):
            fabric.host(host).map(region).close()
        refused(fabric, "host4", region)


def test_windows_are_lost_when_the_tenant_changes(fabric: Fabric) -> None:
    with (
        fabric.pool.alloc(SIZE, "log", share="all", host="host0") as region,
        fabric.host("host0").map(region) as own,
        fabric.host("host1").map(region) as window,
    ):
        own.write(0, b"before")
        assert window.read(0, 6) == b"before"
        fabric.tenants.get("red").release("host1")
        await_so(lambda: window.revoked)
        assert window.read(0, 6) == b"\xff" * 6
        window.write(0, b"late")
        assert own.read(0, 6) == b"before"
        refused(fabric, "host1", region)


def test_windows_are_lost_when_the_tag_gets_a_tenant(fabric: Fabric) -> None:
    with (
        fabric.pool.alloc(SIZE, "weights", share="all", host="host4") as region,
        fabric.host("host5").map(region) as window,
    ):
        assert not window.revoked
        fabric.partitions.get("red-data").join("device:weights")
        await_so(lambda: window.revoked)
        fabric.partitions.get("red-data").leave("device:weights")
        fabric.host("host5").map(region).close()


def test_a_group_is_of_hosts_of_one_tenant(fabric: Fabric) -> None:
    with fabric.group(["host0", "host1"], SIZE) as group:
        group.map("host0").close()
    with pytest.raises(LocalError, match="another tenant"):
        fabric.group(["host0", "host2"], SIZE)


def test_a_region_is_not_shared_with_a_host_of_another_tenant(fabric: Fabric) -> None:
    with pytest.raises(LocalError, match="host0 cannot be shared with host2: it is of ano") as e:
        fabric.pool.alloc(SIZE, host="host0", share=["host1", "host2"])
    assert e.value.errno == errno.EACCES
    assert fabric.pool.quota("host0").used == 0
    with fabric.pool.alloc(SIZE, host="host0", share=["host1"]) as region:
        with pytest.raises(LocalError, match="cannot be shared with host3"):
            region.share = ("host3",)
        assert region.share == ("host1",)
        region.share = "all"
    for name in ("red-data", "blue-data"):
        fabric.partitions.get(name).join("device:weights")
    with fabric.pool.alloc(SIZE, "weights", host="host0", share=["host2"]) as region:
        assert region.share == ("host2",)
