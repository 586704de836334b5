# SPDX-License-Identifier: BSD-3-Clause
"""Ports of the fabric and of its CXL switch: one state, for both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nupa.cxl.host.bus import MemoryAccessError, RequestStatus
from nupa.cxl.host.host import Host
from nupa.cxl.host.root import RootComplex
from nupa.cxl.host.window import HostWindow
from nupa.cxl.link.bdf import Bdf
from nupa.cxl.registers.config import walk
from nupa.cxl.registers.pcie_tables import PCIE_ID
from nupa.cxl.site.fabric_switch import FabricSite
from nupa.cxl.switch.pbr import SwitchPort
from nupa.fabric import Fabric, FabricManager
from nupa.fabric.wiring import topology_of
from nupa.topology.file import load
from nupa.topology.topology import HostConfig as HostOf
from nupa.topology.topology import (
    MemoryConfig,
    SegmentConfig,
    SwitchConfig,
    Topology,
    TrunkConfig,
    star,
)

STEP = 256 << 20
ONES = b"\xff" * 4
ROOT = Bdf(0)


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    """A fabric of two hosts on one switch, with a bound device of 256 MiB each."""
    memory = (MemoryConfig(STEP), MemoryConfig(STEP))
    star_of = star(2)
    with Fabric(topology=Topology("two", star_of.switches, star_of.hosts, memory=memory)) as fabric:
        for number in range(2):
            fabric.switch.bind(number, 0, 2 + number)
        yield fabric


def window(host: Host) -> HostWindow:
    found = host.map(host.create_region(host.devices))
    if found[0:4] == bytes(4):
        found[0:4] = b"data"
    return found


def shown(fabric: Fabric, number: int) -> dict[str, bool]:
    """Return whether the link of a host is up, by each side."""
    site = fabric.switch
    name = fabric.hosts[number].name
    with FabricManager.of(site.manager) as fm:
        fm_says = fm.ports()[number].up
    return {
        "nupa show": next(h["state"] for h in fabric.show()["hosts"] if h["name"] == name)
        == "ACTIVE",
        "nupa fm ls": fm_says,
        "the root port": bool(pcie(site.hosts[number], 0x12) & 1 << 13),
        "the bus": site.hosts[number].config_read(Bdf(1), 0, 4) != 0xFFFFFFFF,
    }


def pcie(root: RootComplex, offset: int) -> int:
    return root.config_read(ROOT, _pcie(root) + offset, 2)


def _pcie(root: RootComplex) -> int:
    def read(at: int, size: int) -> int:
        return root.config_read(ROOT, at, size)

    return next(at for at, number in walk(read) if number == PCIE_ID)


def all_say(fabric: Fabric, number: int, up: bool) -> None:
    assert shown(fabric, number) == dict.fromkeys(shown(fabric, number), up)


def test_a_port_of_the_fabric_takes_device_memory_and_registers_with_it(fabric: Fabric) -> None:
    site = fabric.switch
    hosts = [site.host(number) for number in range(2)]
    mine, other = map(window, hosts)
    region = hosts[0].regions[0]
    fabric.set_port("host0", up=False)
    assert (mine[0:4], mine.revoked) == (ONES, True)
    with pytest.raises(MemoryAccessError) as refused:
        region.read(0, 4)
    assert refused.value.status == RequestStatus.LINK_DOWN
    assert region.lost
    assert hosts[0].devices == []
    assert site.hosts[0].bridges[0].below[0].config["aer"]["uncorrectable_status.surprise_down"]
    all_say(fabric, 0, up=False)
    all_say(fabric, 1, up=True)
    assert (other[0:4], other.revoked) == (b"data", False)
    fabric.set_port("host0", up=True)
    all_say(fabric, 0, up=True)
    assert mine.revoked
    assert window(hosts[0])[0:4] == b"data"


def test_a_port_of_the_switch_is_the_fabric_s(fabric: Fabric) -> None:
    site = fabric.switch
    with fabric.pool.alloc(4096, share=["host1"]) as region:
        pool = [fabric.host(number).map(region) for number in range(2)]
        pool[0][0:4] = b"data"
        site.host(0)
        with site.lock:
            site.switch.port(0).set_link(False)
        all_say(fabric, 0, up=False)
        assert {port.name for port in fabric.ports if port.state != "ACTIVE"} == {
            "host0/1",
            "switch0/1",
        }
        assert [each[0:4] for each in pool] == [ONES, b"data"]
        with site.lock:
            site.switch.port(0).set_link(True)
        all_say(fabric, 0, up=True)
        for each in pool:
            each.close()


def test_link_disable_of_the_root_port_takes_the_fabric_s_port_down(fabric: Fabric) -> None:
    root = fabric.switch.hosts[0]
    port: Any = root.bridges[0].below[0]
    fabric.switch.host(0)
    control = _pcie(root) + 0x10
    root.config_write(ROOT, control, 2, 1 << 4)  # PCIe 6.0 7.5.3.7: masked, CXL 3.1 8.1.5.2
    all_say(fabric, 0, up=True)
    root.config_write(ROOT, control, 2, 0)
    port.config["port_extensions"]["control.unmask_link_disable"] = 1
    root.config_write(ROOT, control, 2, 1 << 4)
    all_say(fabric, 0, up=False)
    fabric.set_port("host0", up=True)
    all_say(fabric, 0, up=True)
    assert not pcie(root, 0x10) & 1 << 4
    root.config_write(ROOT, control, 2, 1 << 4)
    root.config_write(ROOT, control, 2, 0)
    all_say(fabric, 0, up=True)


def test_a_port_that_is_down_when_the_switch_is_made_is_down_there() -> None:
    with Fabric(hosts=2) as fabric:
        fabric.set_port("host1", up=False)
        all_say(fabric, 1, up=False)
        host = fabric.switch.host(1)
        fabric.switch.bind(1, 0, 2)
        assert host.devices == []
        fabric.set_port("host1", up=True)
        assert len(host.devices) == 1
        all_say(fabric, 1, up=True)


def test_a_flap_between_two_looks_is_a_loss(fabric: Fabric) -> None:
    site = fabric.switch
    host = site.host(0)
    mine = window(host)
    with site.lock:  # no look in between
        for up in (False, True):
            fabric.set_port("host0", up=up, wait=False)
        assert not mine.revoked
        site.follow()
    assert mine.revoked
    assert len(host.devices) == 1
    assert host.regions[0].lost
    all_say(fabric, 0, up=True)


def test_the_thread_of_the_switch_follows_what_nobody_waits_for(fabric: Fabric) -> None:
    fabric.switch.host(0)
    fabric.set_port("host0", up=False, wait=False)
    fabric._segment.await_links()
    all_say(fabric, 0, up=False)


def test_the_thread_ends_with_the_switch() -> None:
    from threading import enumerate as threads

    with Fabric(hosts=2) as fabric:
        assert fabric.switch
        assert any(thread.name == "nupa-ports" for thread in threads())
    assert not any(thread.name == "nupa-ports" for thread in threads())


def far(name: str) -> Topology:
    """Returns a fabric with a host and a device on each of two switches."""
    hosts = (HostOf("a", "near"), HostOf("b", "far"))
    switches, trunks = (
        (SwitchConfig("near", 8), SwitchConfig("far", 8)),
        (TrunkConfig(("near", "far")),),
    )
    return Topology(name, switches, hosts, trunks, memory=(MemoryConfig(STEP), MemoryConfig(STEP)))


def test_a_trunk_takes_what_lies_behind_it_whoever_takes_it_down() -> None:
    with Fabric(topology=far("far")) as fabric:
        site: FabricSite = fabric.switch
        site.bind(0, 0, 2)
        site.bind(1, 0, 3)
        hosts = [site.host(0), site.host(1)]
        near, own = map(window, hosts)
        fabric.set_port("near-far", up=False)
        assert (near.revoked, own.revoked) == (False, False)
        fabric.set_port("near-far", up=True)
        site.switch.unbind(1, 0)
        site.bind(0, 1, 3)  # beyond the trunk
        beyond = hosts[0].map(hosts[0].create_region([hosts[0].devices[1]]))
        fabric.set_port("near-far", up=False)
        assert (near.revoked, beyond.revoked, beyond[0:4]) == (False, True, ONES)
        fabric.set_port("near-far", up=True)
        assert len(hosts[0].devices) == 2
        beyond = hosts[0].map(hosts[0].create_region([hosts[0].devices[1]]))
        assert site.stack
        with site.lock:
            site.stack.set_link(SwitchPort("far", 2), False)
        assert beyond.revoked
        assert {port.name for port in fabric.ports if port.state != "ACTIVE"} == {"near/2", "far/2"}


@pytest.mark.parametrize("name", ["pair", "rack24", "gpu24", "storage16"])
def test_the_wiring_of_a_fabric_is_its_topology(name: str) -> None:
    topology = load(name)
    with Fabric(topology=topology) as fabric:
        found = topology_of(name, fabric.hosts, fabric.ports)
    assert found.ports == topology.ports
    assert found.routes == topology.routes
    assert found.hosts == tuple(
        host._replace(port=found.ports[found.ports[i].peer].number)
        for i, host in enumerate(topology.hosts)
    )


@pytest.mark.parametrize("coherence", ["hardware", "software"])
def test_machines_that_share_a_fabric_have_its_ports_too(coherence: str) -> None:
    """No futex wakes them after a change: the thread looks ten times a second."""
    topology = star(2, "machines")
    topology.segment = SegmentConfig(segment_bytes=64 << 20, coherence=coherence)
    with Fabric(topology=topology) as fabric:
        site = fabric.switch
        site.host(0)
        fabric.set_port("host0", up=False)
        all_say(fabric, 0, up=False)
        with site.lock:
            site.switch.port(0).set_link(True)
        all_say(fabric, 0, up=True)
