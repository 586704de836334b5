# SPDX-License-Identifier: BSD-3-Clause
"""Fabric.switch: a site of a fabric's hosts, whose memory other processes map as regions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.base.errors import LocalError
from nupa.cxl.device.expander import Expander
from nupa.cxl.device.mld import Mld
from nupa.cxl.host.bus import MemoryAccessError, RequestStatus
from nupa.cxl.host.host import Host
from nupa.cxl.media.parts import Memory, PartedMedia, SparseFile
from nupa.cxl.media.pool_store import PoolStore
from nupa.cxl.site.site import Site
from nupa.fabric import Fabric, FabricError, FabricManager  # type: ignore[attr-defined]
from nupa.topology.topology import LinkConfig, MemoryConfig, SegmentConfig, Topology, star

MIB = 1 << 20
STEP = 256 * MIB
MLD = 4  # its port, of a fabric with two hosts


def roomy() -> Topology:
    """Returns a fabric of two hosts with a pool that has room for all devices."""
    base = star(2)
    return Topology("roomy", base.switches, base.hosts, segment=SegmentConfig(pool_bytes=4 << 30))


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(topology=roomy()) as fabric:
        yield fabric


def tags(fabric: Fabric) -> list[str]:
    return sorted(region.tag for region in fabric.pool.regions())


def test_a_fabric_of_this_process_has_a_switch_with_a_device_for_each_host() -> None:
    with Fabric(hosts=3) as fabric:
        site = fabric.switch
        assert isinstance(site, Site)
        assert fabric.switch is site
        fm = FabricManager.of(site.manager)
        assert [port.device.name for port in site.switch.ports[3:] if port.device] == [
            "sld3",
            "sld4",
            "sld5",
            "mld6",
        ]
        for number in range(3):
            fm.bind(number, 0, 3 + number)
        fm.allocate(6, 0, [STEP])
        fm.bind(2, 1, 6, 0)
        host: Host = site.host(2)
        region = host.create_region(host.devices)  # of both, in turns
        region.write(0, b"interleaved" * 100)
        assert region.read(0, 1100) == b"interleaved" * 100
        assert isinstance(site.store, PoolStore)  # the default pool has room for all
    with pytest.raises(LocalError, match="closed"):
        region.read(0, 1)


def test_a_topology_says_which_devices_there_are() -> None:
    base = star(1)
    devices = (MemoryConfig(2 * STEP), MemoryConfig(STEP, logical=True, dynamic_bytes=2 * STEP))
    with Fabric(topology=Topology("own", base.switches, base.hosts, memory=devices)) as fabric:
        site = fabric.switch
        single, several = site.devices[1], site.devices[2]
        assert isinstance(single, Expander)
        assert isinstance(several, Mld)
        assert single.function.memory_bytes == 2 * STEP
        assert several.memory_bytes == STEP
        assert several.dynamic
        assert [region.size for region in several.dynamic.regions] == [STEP, STEP]


def test_memory_that_a_host_reaches_is_a_region_of_the_pool_until_it_is_unbound(
    fabric: Fabric,
) -> None:
    site, fm = fabric.switch, FabricManager.of(fabric.switch.manager)
    assert isinstance(site.store, PoolStore)
    host = site.host(0)
    fm.bind(0, 0, 2)
    assert tags(fabric) == []  # nothing is decoded yet
    region = host.create_region(host.devices)
    (row,) = fabric.pool.regions()
    assert (row.tag, row.size, row.owner.host) == (f"host0:{region.base:#x}", STEP, "host0")
    with fabric.host("host0").map(row) as window:
        window[0:4] = b"mine"
        assert region.read(0, 4) == b"mine"
        with pytest.raises(LocalError):
            fabric.host("host1").map(row)
        site.switch.port(2).remove()
        assert window.revoked
        assert window[0:4] == b"\xff" * 4
    assert tags(fabric) == []


def test_interleaved_devices_are_one_region_in_turns(fabric: Fabric) -> None:
    site = fabric.switch
    host = site.host(0)
    for vppb in (0, 1):
        site.bind(0, vppb, 2 + vppb)
    region = host.create_region(host.devices, granularity=16384)
    (row,) = fabric.pool.regions()
    assert (row.ways, row.granularity, row.size) == (2, 16384, 2 * STEP)
    with fabric.host("host0").map(row) as window:
        window[16378:16390] = b"over a turn."
    assert region.read(16378, 12) == b"over a turn."


def test_extents_are_regions_of_the_hosts_that_have_accepted_them(fabric: Fabric) -> None:
    site, fm = fabric.switch, FabricManager.of(fabric.switch.manager)
    host = site.host(1)
    fm.bind(1, 0, MLD, 5)
    region = host.create_dynamic_region(host.devices[0], 0)
    assert tags(fabric) == []
    fm.capacity(MLD).add(5, 0, 4 * MIB)
    (row,) = fabric.pool.regions()
    assert (row.size, row.owner.host) == (4 * MIB, "host1")
    with fabric.host("host1").map(row) as window:
        window[0:3] = b"dcd"
        assert region.read(0, 3) == b"dcd"
        fm.capacity(MLD).release(5, [(2 * STEP, 4 * MIB)], forced=True)
        assert window.revoked
    assert tags(fabric) == []


_CHILD = """
import sys
from nupa.fabric import Fabric
with Fabric.open(sys.argv[1]) as fabric:
    region = fabric.pool.find(sys.argv[2])
    with fabric.host("host0").map(region) as window:
        window[0:5] = bytes(window[0:5]).upper()
        print("mapped", flush=True)
        sys.stdin.readline()
        print(window.revoked, window[0:5] == b"\\xff" * 5, flush=True)
"""


def test_another_process_maps_what_a_host_reaches_until_it_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    with Fabric.create("rack", roomy()) as fabric:
        site = fabric.switch
        site.bind(0, 0, 2)
        region = site.host(0).create_region(site.host(0).devices)
        region.write(0, b"hello")
        argv = [sys.executable, "-c", _CHILD, "rack", tags(fabric)[0]]
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdin
            assert child.stdout
            assert child.stdout.readline() == "mapped\n"
            assert region.read(0, 5) == b"HELLO"
            site.switch.unbind(0, 0)
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "True True\n"
        assert child.returncode == 0
    Fabric.remove("rack", force=True)


def test_devices_cost_the_pool_nothing_until_they_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    with Fabric.create("rack", roomy()) as fabric:
        site = fabric.switch
        used = Path(fabric.path).stat().st_blocks
        host = site.host(0)
        site.bind(0, 0, 2)
        device = site.devices[2]
        assert isinstance(device, Expander)
        memory = device.media.parts[0].memory
        assert memory.read(STEP - 64, 64) == bytes(64)
        memory.clear(0, STEP)
        assert Path(fabric.path).stat().st_blocks == used
        memory.write(5 * MIB, b"x")
        assert memory.read(4 * MIB - 1, 1 * MIB + 3)[-2:] == b"x\0"
        assert 0 < Path(fabric.path).stat().st_blocks - used <= 4 * MIB // 512
        memory.clear(0, STEP)
        assert memory.read(5 * MIB, 1) == b"\0"
        host.create_region(host.devices)
        assert Path(fabric.path).stat().st_blocks - used >= STEP // 512
    Fabric.remove("rack", force=True)


def test_memory_that_cannot_be_backed_is_not_there() -> None:
    """Requests end without memory, and without SIGBUS."""

    class Full(Memory):
        def back(self, offset: int, size: int) -> None:  # noqa: ARG002
            raise FabricError("no room", 28)

    with Site(1, [STEP]) as site:
        full = Full(bytearray(4096))
        device = Expander(PartedMedia(STEP), LinkConfig(), name="full")
        site.switch.port(1).remove()
        site.switch.port(1).insert(device.function)
        site.bind(0, 0, 1)
        region = site.host(0).create_region(site.host(0).devices)
        device.media.set_parts([(part := PartedMedia.of(full, 4096).parts[0])])
        assert part.size == 4096
        with pytest.raises(MemoryAccessError) as failed:
            region.read(0, 64)
        assert failed.value.status is RequestStatus.NO_MEMORY


def test_a_store_gives_out_no_more_than_it_has(fabric: Fabric) -> None:
    with PoolStore(fabric, 4 * MIB) as store, SparseFile(4 * MIB) as file:
        for each in (store, file):
            each.take(4 * MIB)
            with pytest.raises(LocalError, match="bytes at"):
                each.take(64)
