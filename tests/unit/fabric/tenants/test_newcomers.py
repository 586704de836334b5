# SPDX-License-Identifier: BSD-3-Clause
"""States of accelerators and devices, which the fabric keeps."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.accel.ualink import Pod
from nupa.base.errors import LocalError, RemoteError
from nupa.fabric import Fabric
from nupa.fabric.tenants.devices import objection
from nupa.fabric.tenants.newcomer import Newcomer, drain, fail, newcomers, remove
from nupa.fabric.tenants.onboarding import admit
from nupa.topology.admission import Admission
from nupa.topology.topology import star


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """Four hosts, two each of the tenants red and blue."""
    with Fabric(hosts=4) as fabric:
        for index in range(4):
            if index % 2 == 0:
                fabric.tenants.add(("red", "blue")[index // 2])
            fabric.tenants.get(("red", "blue")[index // 2]).assign(index)
        yield fabric


def test_states_are_kept_with_tenant_and_partitions(fabric: Fabric) -> None:
    fabric.partitions.add("training", kind="vpod", tenant="red").join("accelerator:12")
    fabric.partitions.add("shared").join("device:pool")
    fabric.partitions.get("training").join("device:pool")
    for kind, name in (("accelerator", "7"), ("accelerator", "12"), ("device", "disk")):
        admit(fabric, kind, name, {})
    assert newcomers(fabric) == [
        Newcomer("accelerator", "7", "ready"),
        Newcomer("accelerator", "12", "ready", ("red",), ("training",)),
        Newcomer("device", "disk", "ready"),
        Newcomer("device", "pool", "absent", ("red",), ("training", "shared")),
    ]
    shown = fabric.show(lists=False)
    assert [(each["name"], each["state"]) for each in shown["accelerators"]] == [
        ("accelerator:7", "ready"),
        ("accelerator:12", "ready"),
    ]
    assert shown["devices"][1] == {
        "name": "device:pool",
        "kind": "device",
        "state": "absent",
        "tenants": ["red"],
        "partitions": ["training", "shared"],
    }


def test_another_process_sees_them(folder: Path) -> None:
    assert folder.exists()
    with Fabric.create("lab", star(1)) as fabric, Fabric.open("lab") as other:
        fabric.accelerators.admit(3, {})
        assert [str(each) for each in other.accelerators] == ["accelerator:3"]
        drain(other, "accelerator", "03")
        assert fabric.accelerators.state(3) == "draining"
    Fabric.remove("lab")


def test_a_pod_refuses_requests_to_accelerators_that_are_not_ready(fabric: Fabric) -> None:
    vpod = fabric.partitions.add("training", kind="vpod")
    pod, memories = Pod(controller=fabric.accelerators), [bytearray(64), bytearray(64)]
    one, two = (pod.attach(number, memories[number]) for number in (0, 1))
    for number in (0, 1):
        vpod.join(f"accelerator:{number}")
    one.window(two).write(0, b"ready")
    drain(fabric, "accelerator", "1")
    with pytest.raises(RemoteError, match="no such accelerator"):
        one.window(two).write(0, b"drain")
    two.window(one).write(0, b"moved")  # its own requests have a route
    fail(fabric, "accelerator", "1", "memory errors")
    for source, peer in ((one, two), (two, one)):
        with pytest.raises(RemoteError, match="no such accelerator"):
            source.window(peer).write(0, b"fails")
    assert [bytes(memory[:5]) for memory in memories] == [b"moved", b"ready"]
    assert fabric.accelerators.vpod(1) is None
    kinds = [(event.kind, event.severity.name) for event in fabric.events.read()]
    assert ("accelerator.failed", "CRITICAL") in kinds
    fabric.accelerators.admit(1, {})
    vpod.join("accelerator:1")
    one.window(two).write(0, b"again")
    assert memories[1][:5] == b"again"


def test_a_newcomer_that_is_refused_is_failed(fabric: Fabric) -> None:
    with pytest.raises(LocalError, match="device disk is refused"):
        admit(fabric, "device", "disk", {}, Admission((), "refuse"))
    assert newcomers(fabric) == [Newcomer("device", "disk", "failed")]


def test_a_device_that_is_not_ready_is_for_no_host(fabric: Fabric) -> None:
    fabric.partitions.add("disks", tenant="red").join("device:disk")
    assert objection(fabric, 0, "disk") == ""
    admit(fabric, "device", "disk", {})
    assert objection(fabric, 0, "disk") == ""
    drain(fabric, "device", "disk")
    assert "disk is draining: `nupa host add`" in objection(fabric, 0, "disk")
    remove(fabric, "device", "disk")
    assert "disk is absent" in objection(fabric, 0, "disk")
    assert fabric.partitions.get("disks").members == []


def test_errors_name_the_newcomer(fabric: Fabric) -> None:
    admit(fabric, "device", "disk", {})
    with pytest.raises(LocalError, match=r"no accelerator:7: its accel.* are device:disk") as e:
        drain(fabric, "accelerator", "7")
    assert e.value.errno == errno.ENOENT
    remove(fabric, "device", "disk")
    with pytest.raises(LocalError, match=r"device disk of fabric .* is absent") as e:
        remove(fabric, "device", "disk")
    assert e.value.errno == errno.EALREADY
    with pytest.raises(LocalError, match="is absent: only one that is ready can drain"):
        drain(fabric, "device", "disk")
    for kind, name in (("accelerator", "1024"), ("accelerator", "x"), ("device", "n" * 32)):
        with pytest.raises(LocalError) as e:
            admit(fabric, kind, name, {})
        assert e.value.errno == errno.EINVAL
