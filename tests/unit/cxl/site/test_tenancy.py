# SPDX-License-Identifier: BSD-3-Clause
"""Devices and dynamic capacity of a tenant are for its hosts."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from nupa.base.errors import NupaError
from nupa.cxl.media.dcd import Policy
from nupa.fabric import Fabric, FabricManager  # type: ignore[attr-defined]
from nupa.fabric.tenants.devices import objection, tag_name
from nupa.topology.topology import MemoryConfig, Topology, star

MIB = 1 << 20
STEP = 256 * MIB
SLD, MLD = 2, 4  # their ports, of a fabric with two hosts
TAG = UUID(int=0x1234)


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """host0 is red's, host1 blue's; LD 0 is host0's, LD 1 host1's."""
    topology = star(2)
    memory = (
        MemoryConfig(STEP),
        MemoryConfig(STEP),
        MemoryConfig(2 * STEP, logical=True, dynamic_bytes=2 * STEP),
    )
    with Fabric(topology=Topology("t", topology.switches, topology.hosts, memory=memory)) as fabric:
        for number, name in enumerate(("red", "blue")):
            fabric.tenants.add(name).assign(number)
            fabric.partitions.add(f"{name}-data", tenant=name)
        yield fabric


def test_a_tags_name_fits_a_member() -> None:
    names = {tag_name(UUID(int=1 << n)) for n in range(128)}
    assert len(names) == 128
    assert {len(name) for name in names} == {30}


def test_a_device_is_for_hosts_of_its_tenants(fabric: Fabric) -> None:
    assert objection(fabric, 1, "sld2") == ""
    red, blue = fabric.partitions.get("red-data"), fabric.partitions.get("blue-data")
    red.join("device:sld2")
    assert objection(fabric, 0, "sld2") == ""
    assert objection(fabric, 1, "sld2") == (
        "sld2 is a member of red-data, and host1 is of tenant blue"
    )
    blue.join("device:sld2")
    assert objection(fabric, 1, "sld2") == ""
    fabric.tenants.get("blue").release("host1")
    assert objection(fabric, 1, "sld2").endswith("red-data, blue-data, and host1 is of no tenant")


def test_a_device_is_not_bound_to_a_host_of_another_tenant(fabric: Fabric) -> None:
    fabric.partitions.get("red-data").join("device:sld2")
    fm = FabricManager.of(fabric.switch.manager)
    with pytest.raises(NupaError):
        fm.bind(1, 0, SLD)
    with pytest.raises(NupaError, match="host1 cannot have port 2: sld2 is a member of red-data"):
        fabric.switch.bind(1, 0, SLD)
    fm.bind(0, 0, SLD)
    fm.bind(1, 0, SLD + 1)


def test_capacity_of_a_tag_is_for_hosts_of_its_tenants(fabric: Fabric) -> None:
    site = fabric.switch
    fm = FabricManager.of(site.manager)
    fm.bind(0, 0, MLD, 0)
    fm.bind(1, 0, MLD, 1)
    fabric.partitions.get("red-data").join(f"device:{tag_name(TAG)}")
    capacity = site.devices[MLD].dynamic
    capacity.add(0, 1, 4 * MIB, tag=TAG)
    for policy, size in ((Policy.SHARED, 0), (Policy.FREE, 4 * MIB)):
        with pytest.raises(NupaError, match=f"the tag {TAG} is a member of red-data, and host1"):
            capacity.add(1, int(policy is Policy.SHARED), size, tag=TAG, policy=policy)
    assert [len(capacity.host(ld).accepted) for ld in (0, 1)] == [1, 0]
    capacity.add(1, 0, 4 * MIB)
    capacity.add(1, 0, 4 * MIB, tag=UUID(int=7))


def test_an_ld_with_a_tag_is_not_bound_to_a_host_of_another_tenant(fabric: Fabric) -> None:
    site = fabric.switch
    fabric.partitions.get("red-data").join(f"device:{tag_name(TAG)}")
    site.devices[MLD].dynamic.add(0, 1, 4 * MIB, tag=TAG)
    with pytest.raises(NupaError, match="host1 cannot have port 4: the tag 00000000-"):
        site.bind(1, 0, MLD, 0)
    site.bind(0, 0, MLD, 0)
