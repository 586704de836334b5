# SPDX-License-Identifier: BSD-3-Clause
"""A site as one machine: a manager binds devices, and hosts with drivers use them until they go."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from uuid import UUID

import pytest

from nupa.cxl.device.expander import Expander
from nupa.cxl.device.mld import Mld, MldError
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.function.cci import CommandError
from nupa.cxl.host.bus import MemoryAccessError, RequestStatus
from nupa.cxl.host.host import CxlMemdev, Host, RegionError
from nupa.cxl.media.cdat import LAST_ENTRY, DataType, Sslbis
from nupa.cxl.media.dcd import Policy
from nupa.cxl.media.parts import Memory
from nupa.cxl.registers.config import walk_extended
from nupa.cxl.registers.ext_tables import DOE_ID
from nupa.cxl.site.site import Site
from nupa.cxl.switch.physical_port import UnbindMode
from nupa.topology.topology import SPEEDS_MTPS, LinkConfig, SwitchConfig, Topology
from nupa.topology.topology import HostConfig as Place

MIB = 1 << 20
STEP = 256 * MIB
TAG = UUID(int=7)
OWN, SHARED = 0, 1
ONES = b"\xff" * 64


@pytest.fixture
def site() -> Iterator[Site]:
    """Two hosts, devices of 256 MiB at ports 2 and 3, an MLD of 1 GiB at 4 with as much of dynamic
    capacity."""
    with Site(2, [STEP, STEP], [4 * STEP], dynamic_bytes=4 * STEP) as site:
        yield site


@pytest.fixture
def fm(site: Site) -> FabricManager:
    return FabricManager.of(site.manager)


def status_of(call: object, *args: object) -> RequestStatus:
    with pytest.raises(MemoryAccessError) as failed:
        call(*args)  # type: ignore[operator]
    return failed.value.status


def logical(site: Site, fm: FabricManager, host: int, ld: int, steps: int = 0) -> CxlMemdev:
    """Bind LD *ld* of the MLD, and return it as its host has it."""
    if steps:
        site.switch.allocate(4, ld, [steps])
    fm.bind(host, 1, 4, ld)
    return site.host(host).devices[-1]


def test_a_device_that_is_bound_is_enumerated_and_used_until_it_is_unbound(
    site: Site, fm: FabricManager
) -> None:
    host, other = site.host(0), site.host(1)
    assert host.devices == []
    fm.bind(0, 2, 3)
    (device,) = host.devices
    assert (device.capacity, device.function.path[-2].bdf.device) == (STEP, 2)
    region = host.create_region([device])
    region.write(STEP - 5, b"bound")
    assert region.read(STEP - 5, 5) == b"bound"
    fm.unbind(0, 2, UnbindMode.SURPRISE)
    assert (host.devices, region.lost) == ([], True)
    assert status_of(region.read, 0, 64) is RequestStatus.LINK_DOWN
    fm.bind(1, 0, 3)
    assert other.create_region(other.devices).read(STEP - 5, 5) == b"bound"
    assert status_of(region.read, 0, 64) is RequestStatus.LINK_DOWN


def test_addresses_and_decoders_of_what_has_gone_are_free_again(
    site: Site, fm: FabricManager
) -> None:
    """They are used more often than there are decoders or addresses; a region beside stays."""
    host = site.host(0)
    fm.bind(0, 0, 2)
    kept = host.create_region(host.devices)
    for turn in range(12):
        fm.bind(0, 1, 3)
        region = host.create_region(host.devices[1:])
        region.write(0, bytes([turn]) * 64)
        kept.write(0, bytes([turn]) * 64)
        assert region.read(0, 64) == kept.read(0, 64) == bytes([turn]) * 64
        fm.unbind(0, 1, UnbindMode.SURPRISE)
    assert len(host.functions) == 1 + 1 + 4 + 1


def test_a_host_that_is_asked_lets_go_and_the_binding_ends(site: Site, fm: FabricManager) -> None:
    """PCIe 6.0 6.7.1.5: the attention button; the driver powers the slot off."""
    host = site.host(0)
    fm.bind(0, 0, 2)
    region = host.create_region(host.devices)
    assert site.switch.vcs(0).vppb(0).asks_host
    fm.unbind(0, 0, UnbindMode.MANAGED)
    assert (site.switch.bindings, host.devices, region.lost) == ([], [], True)
    aer = site.switch.vcs(0).vppb(0).config["aer"]
    assert not aer["uncorrectable_status.surprise_down"]
    fm.bind(0, 0, 2)  # its power is on again
    assert len(host.devices) == 1


def test_logical_devices_have_their_steps_and_nobody_else_s(site: Site, fm: FabricManager) -> None:
    one, two = logical(site, fm, 0, 0, 1), logical(site, fm, 1, 5, 2)
    assert (one.capacity, two.capacity) == (STEP, 2 * STEP)
    mine = site.host(0).create_region([one])
    theirs = site.host(1).create_region([two])
    mine.write(0, b"mine")
    theirs.write(STEP - 2, b"both")  # over two steps
    assert (mine.read(0, 4), theirs.read(STEP - 2, 4)) == (b"mine", b"both")
    mld = site.switch.mld(4)
    assert mld.memory.read(mld.media(0, 0), 4) == b"mine"
    assert mld.memory.read(mld.media(5, STEP), 2) == b"th"
    # The next owner of a step sees nothing of it.
    fm.unbind(0, 1, UnbindMode.SURPRISE)
    site.switch.allocate(4, 0, [0, 1])
    next_one = logical(site, fm, 0, 1)
    assert site.host(0).create_region([next_one]).read(0, 4) == bytes(4)


def test_each_device_answers_its_mailbox(site: Site, fm: FabricManager) -> None:
    fm.bind(0, 0, 2)
    logical(site, fm, 0, 3, 2)
    for device, steps in zip(site.host(0).devices, (1, 2), strict=True):
        assert device.driver
        identity = device.driver.mail.send(0x4000)
        assert int.from_bytes(identity[16:24], "little") == steps
        labels = device.driver.mail.send(0x4102, bytes(4) + (16).to_bytes(4, "little"))
        assert labels == bytes(16)
    assert [len(each.driver.regions) for each in site.host(0).devices if each.driver] == [0, 2]


def test_a_driver_takes_what_it_is_offered_and_reads_all_ones_elsewhere(
    site: Site, fm: FabricManager
) -> None:
    device = logical(site, fm, 0, 0)
    assert (device.capacity, device.extents) == (0, [])
    region, capacity = site.host(0).create_dynamic_region(device, OWN), fm.capacity(4)
    assert status_of(region.read, 0, 64) is RequestStatus.NO_MEMORY
    capacity.add(0, OWN, 64 * MIB)
    assert [(each.dpa, each.size) for each in device.extents] == [(4 * STEP, 64 * MIB)]
    assert region.extents == [(0, 64 * MIB)]
    region.write(64 * MIB - 64, b"last" * 16)
    assert status_of(region.write, 64 * MIB, bytes(64)) is RequestStatus.NO_MEMORY
    region.bus.raises = False
    assert region.read(64 * MIB - 64, 128) == b"last" * 16 + ONES
    capacity.release(0, [(4 * STEP, 2 * MIB)])
    assert region.extents == [(2 * MIB, 62 * MIB)]
    assert region.read(0, 64) == ONES
    assert region.read(64 * MIB - 64, 64) == b"last" * 16


def test_hosts_share_an_extent_and_a_forced_release_takes_it_from_one(
    site: Site, fm: FabricManager
) -> None:
    hosts, capacity = [site.host(0), site.host(1)], fm.capacity(4)
    devices = [logical(site, fm, number, number) for number in (0, 1)]
    regions = [
        host.create_dynamic_region(device, SHARED)
        for host, device in zip(hosts, devices, strict=True)
    ]
    capacity.add(0, SHARED, 4 * MIB, tag=TAG)
    capacity.add(1, SHARED, tag=TAG, policy=Policy.SHARED)
    for i, region in enumerate(regions):
        region.write(64 * i, bytes([i + 1]) * 64)
    assert regions[0].read(0, 128) == regions[1].read(0, 128) == b"\x01" * 64 + b"\x02" * 64
    capacity.release(0, TAG, forced=True)
    assert (regions[0].extents, regions[1].extents) == ([], [(0, 4 * MIB)])
    assert status_of(regions[0].read, 0, 64) is RequestStatus.NO_MEMORY
    assert regions[1].read(0, 64) == b"\x01" * 64


def test_only_a_host_without_a_driver_is_willing(site: Site, fm: FabricManager) -> None:
    capacity = fm.capacity(4)
    capacity.add(2, OWN, 2 * MIB)  # no driver is there
    device = logical(site, fm, 0, 2)
    assert device.extents == capacity.extents(2) != []  # its driver finds them
    taken: list[object] = []
    assert device.driver
    device.driver.look = lambda: taken.append(1)  # type: ignore[method-assign]
    capacity.add(2, OWN, 2 * MIB)
    assert taken
    assert len(capacity.extents(2)) == 1
    assert len(site.switch.mld(4).dynamic.hosts[2].offers) == 1  # type: ignore[union-attr]


def test_an_offer_of_many_extents_is_answered_in_several_commands(
    site: Site, fm: FabricManager
) -> None:
    device = logical(site, fm, 0, 0)
    dynamic = site.switch.mld(4).dynamic
    assert dynamic
    first = 4 * STEP
    with site.lock:
        dynamic.add(
            0,
            OWN,
            policy=Policy.PRESCRIPTIVE,
            extents=[(first + 4 * i * MIB, 2 * MIB) for i in range(60)],
        )
    assert len(device.extents) == len(dynamic.hosts[0].accepted) == 60
    with pytest.raises(CommandError):  # its log has no room for so many records
        dynamic.add(
            0,
            OWN,
            policy=Policy.PRESCRIPTIVE,
            extents=[(first + (4 * i + 2) * MIB, 2 * MIB) for i in range(65)],
        )
    assert dynamic.hosts[0].offers == []


def test_dynamic_regions_lie_behind_a_device_s_own_memory(site: Site, fm: FabricManager) -> None:
    device = logical(site, fm, 0, 0, 2)
    host = site.host(0)
    own, dynamic = host.create_region([device]), host.create_dynamic_region(device, SHARED)
    fm.capacity(4).add(0, SHARED, 2 * MIB, tag=TAG)
    own.write(2 * STEP - 4, b"own.")
    dynamic.write(0, b"dyn.")
    memory = site.switch.mld(4).memory
    assert memory.read(4 * STEP + 2 * STEP, 4) == b"dyn."
    assert own.read(2 * STEP - 4, 4) == b"own."
    with pytest.raises(RegionError, match="below"):
        host.create_dynamic_region(device, OWN)
    host.destroy_region(dynamic)
    host.destroy_region(own)
    host.create_dynamic_region(device, OWN)
    with pytest.raises(RegionError, match="behind its own memory"):
        host.create_region([device], size=STEP)
    with pytest.raises(RegionError, match="has no dynamic capacity region 2"):
        host.create_dynamic_region(device, 2)


def test_tables_of_speed_follow_the_links_of_what_is_bound() -> None:
    slow, fast = LinkConfig(4, SPEEDS_MTPS["gen4"]), LinkConfig(16)
    topology = Topology(
        "pair", (SwitchConfig("s", 4),), (Place("a", "s", link=fast), Place("b", "s", link=slow))
    )
    with Site(topology, [STEP, STEP]) as site:
        before = site.speeds(0)
        site.bind(0, 0, 3)
        assert isinstance(site.devices[3], Expander)
        after = site.speeds(0)
        found = [
            {x.data: x.base * x.pairs[0].value for x in table.structures if isinstance(x, Sslbis)}
            for table in (before, after)
        ]
        assert found[1][DataType.ACCESS_LATENCY] > found[0][DataType.ACCESS_LATENCY]
        assert found[1][DataType.ACCESS_BANDWIDTH] < found[0][DataType.ACCESS_BANDWIDTH]
        doe = site.switch.vcs(0).upstream.config["doe"]
        for dword in (0x1E98 | 2 << 16, 3, 0):
            doe.write(0x10, 4, dword)
        doe.write(0x08, 4, 1 << 31)
        assert doe["status.object_ready"] == 1


def table_of(host: Host, device: CxlMemdev) -> list[tuple[int, bytes]]:
    """Return type and bytes of each entry of a device's CDAT, by its DOE mailbox (CXL 3.1
    8.1.11)."""
    read = partial(host.root.config_read, device.function.bdf)
    write = partial(host.root.config_write, device.function.bdf)
    at = next(at for at, number in walk_extended(read) if number == DOE_ID)
    found, handle = [], 0
    while handle != LAST_ENTRY:
        for dword in (0x1E98 | 2 << 16, 3, handle << 16):
            write(at + 0x10, 4, dword)
        write(at + 0x08, 4, 1 << 31)
        dwords = []
        while read(at + 0x0C, 4) >> 31:
            dwords.append(read(at + 0x14, 4))
            write(at + 0x14, 4, 0)
        entry = b"".join(each.to_bytes(4, "little") for each in dwords[3:])
        handle = dwords[2] >> 16
        found.append((entry[0], entry))
    return found[1:]


def test_a_logical_device_tells_of_its_memory_and_of_dynamic_capacity(
    site: Site, fm: FabricManager
) -> None:
    device = logical(site, fm, 0, 1, 2)
    entries = table_of(site.host(0), device)
    ranges = [struct.unpack_from("<BBxxQQ", entry, 4) for kind, entry in entries if kind == 0]
    dynamic, shareable = 1 << 5, 1 << 3
    assert ranges == [
        (0, 0, 0, 2 * STEP),
        (1, dynamic, 4 * STEP, 2 * STEP),
        (2, dynamic | shareable, 6 * STEP, 2 * STEP),
    ]
    latencies = [entry for kind, entry in entries if kind == 1]
    assert {entry[4] for entry in latencies} == {0, 1, 2}
    assert device.driver
    assert [region.dsmad_handle for region in device.driver.regions] == [1, 2]


def test_dynamic_capacity_has_a_place_of_its_own() -> None:
    memory = Memory.anonymous(2 * STEP)
    with Site(1, [], [2 * STEP], dynamic_bytes=2 * STEP) as site:
        dynamic = site.switch.mld(1).dynamic
    with pytest.raises(MldError, match="begins below"):
        Mld(4 * STEP, dynamic=dynamic)
    with pytest.raises(MldError, match="bytes given"):
        Mld(2 * STEP, dynamic=dynamic, memory=memory)
