# SPDX-License-Identifier: BSD-3-Clause
"""Windows and ports: which windows a link takes away, their errors, and mapping them again."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from nupa.fabric import Fabric, FabricError, LocalError
from nupa.memory import atomic_fetch_add
from nupa.memory.window import Window, WindowError
from nupa.topology.topology import (
    HostConfig,
    SegmentConfig,
    SwitchConfig,
    Topology,
    TrunkConfig,
    star,
)
from nupa.verbs import Context

ONES = b"\xff" * 4
HOSTS = ("near0", "near1", "far0", "far1")


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """Two hosts on each of two switches."""
    hosts = tuple(HostConfig(name, f"{name[:-1]}-switch") for name in HOSTS)
    switches = (SwitchConfig("near-switch", 8), SwitchConfig("far-switch", 8))
    trunks = (TrunkConfig(("near-switch", "far-switch")),)
    with Fabric(topology=Topology("two", switches, hosts, trunks)) as fabric:
        yield fabric


def mapped(fabric: Fabric, stack: ExitStack, owner: str) -> dict[str, Window]:
    """Returns a region that each host has a window on, and its data."""
    region = stack.enter_context(fabric.pool.alloc(4096, owner, share="all", host=owner))
    found = {name: stack.enter_context(fabric.host(name).map(region)) for name in HOSTS}
    found[owner][0:4] = b"data"
    return found


def lost(windows: dict[str, Window]) -> set[str]:
    for window in windows.values():
        assert window[0:4] == (ONES if window.revoked else b"data")
    return {name for name, window in windows.items() if window.revoked}


@pytest.mark.parametrize("port", ["far0", "far0/1", "far-switch/1", "far0-far-switch"])
def test_a_link_of_a_host_takes_its_windows_by_whatever_name(fabric: Fabric, port: str) -> None:
    with ExitStack() as stack:
        windows = mapped(fabric, stack, "near0"), mapped(fabric, stack, "far0")
        fabric.set_port(port, up=False)
        assert [lost(each) for each in windows] == [{"far0"}, {"far0"}]


def test_a_trunk_takes_the_far_side_from_each_side(fabric: Fabric) -> None:
    with ExitStack() as stack:
        near, far = mapped(fabric, stack, "near0"), mapped(fabric, stack, "far0")
        fabric.set_port("near-switch-far-switch", up=False)
        assert lost(near) == {"far0", "far1"}
        assert lost(far) == {"near0", "near1"}
        with pytest.raises(FabricError, match="a link between host 2 and its memory is down"):
            fabric.host("far0").map(fabric.pool.find("near0"))
        with fabric.host("near1").map(fabric.pool.find("near0")) as again:
            assert again[0:4] == b"data"


def test_a_region_says_at_whose_switch_its_memory_is(fabric: Fabric) -> None:
    with fabric.pool.alloc(4096, host="near0", share=["far0"]) as region:
        assert region.info().home == fabric.host("near0").index
        assert region.as_dict()["home"] == "near0"


def test_up_again_the_same_bytes_are_mapped_anew(fabric: Fabric) -> None:
    with ExitStack() as stack:
        windows = mapped(fabric, stack, "near0")
        fabric.set_port("near0", up=False)
        with pytest.raises(FabricError, match="`nupa port` takes one up") as refused:
            fabric.host("near0").map(fabric.pool.find("near0"))
        assert refused.value.errno == errno.ENETDOWN
        fabric.set_port("near0", up=True)
        assert lost(windows) == {"near0"}
        with fabric.host("near0").map(fabric.pool.find("near0")) as again:
            assert again[0:4] == b"data"


def test_calls_raise_or_give_ones_as_was_asked_for(fabric: Fabric) -> None:
    with (
        fabric.pool.alloc(4096, host="far1") as region,
        fabric.host("far1").map(region) as ones,
        fabric.host("far1").map(region, on_loss="raise") as raises,
    ):
        fabric.set_port("far1", up=False)
        assert ones.read(0, 4) == ONES
        ones.write(0, b"lost")
        assert atomic_fetch_add(ones, 8, 1) == 2**64 - 1
        for call in (lambda: raises.read(0, 4), lambda: raises.write(0, b"lost"), raises.flush):
            with pytest.raises(WindowError, match="a link between its host and its memory"):
                call()
        assert raises[0:4] == ONES


def test_a_link_that_there_is_not_is_refused(fabric: Fabric) -> None:
    with pytest.raises(LocalError, match="no port, host or link is named 'near9'"):
        fabric.set_port("near9", up=False)


def test_on_machines_a_link_takes_windows_too() -> None:
    topology = star(2, "machines")
    topology.segment = SegmentConfig(segment_bytes=64 << 20)
    with Fabric(topology=topology) as fabric, Context(fabric=fabric, host="host1"):
        region = fabric.pool.alloc(4096, "mine", host="host1")
        with fabric.host("host1").map(region) as window:
            window[0:4] = b"data"
            fabric.set_port("host1", up=False)
            assert window[0:4] == ONES
