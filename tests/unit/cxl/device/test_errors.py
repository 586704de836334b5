# SPDX-License-Identifier: BSD-3-Clause
"""Errors of memory: poison, viral devices, links that go down, surprise removal.

The host that reads is told, registers and logs record them, and other hosts are not affected.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from nupa.cxl.device.expander import Expander
from nupa.cxl.device.mld import Mld
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.function.port import Port
from nupa.cxl.host.bus import MemoryAccessError, RequestStatus
from nupa.cxl.host.host import CxlRegion, Host
from nupa.cxl.media.events import RECORD_BYTES, Log, Transaction
from nupa.cxl.site.site import Site
from tests.unit.cxl.witness import Reader, Witness

STEP = 256 << 20
ONES = b"\xff" * 64


class Machine:
    """Hosts 0 and 1 with a region each, of LDs 0 and 1 of one device.  Host 0 has a second region,
    of its own device at port 2."""

    def __init__(self, site: Site) -> None:
        self.site = site
        site.switch.allocate(3, 0, [1, 1])
        site.bind(0, 0, 2)
        for number in (0, 1):
            site.bind(number, 1, 3, number)
        self.host: Host = site.host(0)
        single, self.ld = self.host.devices
        assert single.driver
        self.driver = single.driver
        self.region: CxlRegion = self.host.create_region([single])
        self.shared: CxlRegion = self.host.create_region([self.ld])
        other = site.host(1)
        self.witness = Witness(other.create_region(other.devices))
        device = site.devices[2]
        assert isinstance(device, Expander)
        self.device = device
        self.root: Port = self.host.root.bridges[0].below[0]  # type: ignore[assignment]
        self.vppb = site.switch.vcs(0).vppb(0)
        self.region.write(0, b"fine" * 32)

    def fails(self, region: CxlRegion, status: RequestStatus, at: int = 0) -> None:
        """Check that reads raise, or are all ones, as the host has chosen; writes have no
        effect."""
        for call, what in ((region.read, 64), (region.write, bytes(64))):
            with pytest.raises(MemoryAccessError) as failed:
                call(at, what)  # type: ignore[operator]
            assert (failed.value.status, failed.value.hpa) == (status, region.base + at)
        region.bus.raises = False
        assert region.read(at, 64) == ONES
        region.bus.raises = True

    def records(self, log: Log) -> list[bytes]:
        return [record for where, record in self.driver.events if where is log]


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Site(2, [STEP], [4 * STEP]) as site:
        machine = Machine(site)
        with machine.witness:
            yield machine
            machine.witness.goes_on()


def media_record(record: bytes) -> tuple[int, int]:
    """Return address and transaction of a media event (8.2.9.2.1.1)."""
    assert len(record) == RECORD_BYTES
    dpa, _descriptor, _kind, transaction = struct.unpack_from("<QBBB", record, 0x30)
    return dpa, transaction


def test_poison_that_a_driver_injects_is_read_and_logged(machine: Machine) -> None:
    machine.driver.mail.send(0x4301, (64).to_bytes(8, "little"))
    (injected,) = machine.records(Log.INFORMATIONAL)
    assert media_record(injected) == (64, Transaction.HOST_INJECT)
    with pytest.raises(MemoryAccessError) as failed:
        machine.region.read(0, 256)
    assert (failed.value.status, failed.value.hpa) == (
        RequestStatus.POISON,
        machine.region.base + 64,
    )
    (read,) = machine.records(Log.FAILURE)
    assert media_record(read) == (64, Transaction.HOST_READ)
    ras = machine.root.component["ras"]
    assert (ras["uncorrectable_status.poison_received"], ras["control.first_error"]) == (1, 10)
    machine.region.bus.raises = False
    assert machine.region.read(0, 192) == b"fine" * 16 + ONES + bytes(64)
    assert len(machine.records(Log.FAILURE)) == 2  # for all readers
    machine.region.bus.raises = True
    machine.driver.mail.send(0x4302, (64).to_bytes(8, "little") + b"good" * 16)
    assert machine.region.read(0, 128) == b"fine" * 16 + b"good" * 16


def test_poison_that_a_manager_injects_is_read_by_the_host_that_gets_the_memory() -> None:
    """The manager uses the mailbox of an LD that is not bound: LD CXL.io requests (7.6.7.3)."""
    with Site(1, [], [STEP]) as site:
        fm, bar = FabricManager.of(site.manager), 0xD000_0000
        fm.allocate(1, 0, [STEP])
        for offset, word in ((0x18, bar), (0x1C, 0), (0x04, 1 << 1)):
            fm.ld_config_write(1, 0, offset, word)
        mailbox = bar + site.switch.mld(1).lds[0].device.offset_of("mailbox")
        for offset, word in ((0x20, 128), (0x24, 0), (8, 8 << 16 | 0x4301), (0xC, 0), (4, 1)):
            fm.ld_write(1, 0, mailbox + offset, word.to_bytes(4, "little"))
        fm.bind(0, 0, 1, 0)
        (device,) = site.host(0).devices
        region = site.host(0).create_region([device])
        with pytest.raises(MemoryAccessError) as failed:
            region.read(0, 192)
        assert (failed.value.hpa, failed.value.status) == (region.base + 128, RequestStatus.POISON)
        assert device.driver
        records = [media_record(record) for _, record in device.driver.events]
        assert records == [(128, Transaction.HOST_INJECT), (128, Transaction.HOST_READ)]


def test_poison_may_be_a_corrected_error_of_the_root_port(machine: Machine) -> None:
    """CXL 3.1 8.2.4.17.6, Poison Enabled."""
    ras = machine.root.component["ras"]
    ras["control.poison_enabled"] = 0
    machine.device.poison(128)
    with pytest.raises(MemoryAccessError):
        machine.region.read(128, 1)
    assert ras["correctable_status.mem_poison_received"] == 1
    assert ras["uncorrectable_status.poison_received"] == 0
    machine.region.write(128, bytes(64))  # a whole line: it is gone from the list, too
    assert machine.region.read(128, 64) == bytes(64)
    assert len(machine.device.memory.poison) == 0


def test_poison_of_shared_memory_is_seen_by_every_host_that_reads_it(machine: Machine) -> None:
    """Poison is in the memory, not in a host: LD 0 lists it once its host has read it."""
    mld = machine.site.devices[3]
    assert isinstance(mld, Mld)
    machine.shared.write(0, bytes(64))
    mld.memory.set_poison(mld.media(0, 0))
    with pytest.raises(MemoryAccessError):
        machine.shared.read(0, 64)
    assert 0 in mld.logical[0].memory.poison
    assert 0 not in mld.logical[1].memory.poison


def test_a_viral_device_is_contained_until_it_is_reset(machine: Machine) -> None:
    extensions = machine.root.config["port_extensions"]
    extensions["control.viral_enable"] = 1
    machine.device.fail()
    machine.fails(machine.region, RequestStatus.VIRAL)
    function = machine.device.function
    ras = function.component["ras"]
    assert (ras["uncorrectable_status.internal"], ras["control.first_error"]) == (1, 14)
    assert function.config["aer"]["uncorrectable_status.internal"] == 1
    assert function.config["device"]["status.viral"] == 1
    assert function.device["memory"]["status.fatal"] == 1
    assert extensions["status.viral"] == 1
    assert len(machine.records(Log.FATAL)) == 1
    assert machine.shared.read(0, 64) == bytes(64)  # of another device
    function.reset(hot=True)
    assert not function.viral.active
    assert function.config["device"]["status.viral"] == 1  # sticky: 8.1.3.3
    machine.site.switch.port(2).set_link(False)
    machine.site.switch.port(2).set_link(True)
    again = machine.host.create_region(machine.host.devices[-1:])
    assert again.read(0, 4) == b"fine"


def test_a_cxl_reset_leaves_a_device_viral(machine: Machine) -> None:
    """12.4; so does a function level reset."""
    machine.device.fail()
    function = machine.device.function
    function.config["pcie"].write(0x08, 2, 1 << 15)
    assert function.viral.active
    function.config["device"].write(0x10, 2, 1 << 2)
    assert function.config["device"]["status_2.reset_complete"] == 1
    assert function.viral.active
    function.reset()
    assert not function.viral.active


def test_a_root_port_isolates_itself_until_software_lets_it_go_on(machine: Machine) -> None:
    """12.3: after a request without an answer, all requests end at the port."""
    isolation = machine.root.component["isolation"]
    isolation["control.mem_timeout"] = isolation["control.mem_isolation"] = 1
    machine.site.switch.port(2).set_link(False)
    assert isolation["status.mem_isolation"] == 0
    machine.fails(machine.region, RequestStatus.LINK_DOWN)
    assert (isolation["status.mem_isolation"], isolation["status.mem_isolation_link_down"]) == (
        1,
        0,
    )
    machine.fails(machine.shared, RequestStatus.LINK_DOWN)
    isolation.write(0x0C, 4, 1 << 8)
    assert machine.shared.read(0, 64) == bytes(64)


def test_a_root_port_whose_link_goes_down_is_isolated(machine: Machine) -> None:
    isolation = machine.root.component["isolation"]
    isolation["control.mem_isolation"] = 1
    machine.site.switch.disconnect(0)
    assert (isolation["status.mem_isolation"], isolation["status.mem_isolation_link_down"]) == (
        1,
        1,
    )
    assert isolation["status.mem_timeout"] == 0
    machine.fails(machine.region, RequestStatus.LINK_DOWN)


def test_an_error_is_not_contained_where_software_has_not_asked(machine: Machine) -> None:
    machine.device.function.config["device"]["control.viral_enable"] = 0
    machine.device.fail()
    assert machine.region.read(0, 4) == b"fine"
    assert machine.device.function.component["ras"]["uncorrectable_status.internal"] == 1


def test_a_broken_link_ends_what_goes_that_way_and_is_in_the_registers(machine: Machine) -> None:
    isolation = machine.root.component["isolation"]
    isolation["control.mem_timeout"] = 1
    machine.site.switch.port(2).set_link(False)
    machine.fails(machine.region, RequestStatus.LINK_DOWN)
    for port in (machine.vppb, machine.site.switch.port(2).ppb):
        assert port.config["aer"]["uncorrectable_status.surprise_down"] == 1
        assert port.component["ras"]["correctable_status.physical_layer"] == 1
        assert port.config["pcie"]["link_status.active"] == 0
    assert isolation["status.mem_timeout"] == 1  # 8.2.4.24.3
    assert machine.region.lost
    assert machine.shared.read(0, 64) == bytes(64)
    machine.site.switch.port(2).set_link(True)
    again = machine.host.create_region(machine.host.devices[-1:])
    assert again.read(0, 4) == b"fine"


def test_a_link_that_its_host_disables_is_down_and_nobody_is_surprised(machine: Machine) -> None:
    """PCIe 6.0 7.5.3.7, once it is unmasked (CXL 3.1 8.1.5.2)."""
    machine.vppb.config["port_extensions"].write(0x0C, 2, 1 << 1)
    pcie = machine.vppb.config["pcie"]
    pcie.write(0x10, 2, 1 << 4)
    machine.fails(machine.region, RequestStatus.LINK_DOWN)
    assert machine.vppb.config["aer"]["uncorrectable_status.surprise_down"] == 0
    pcie.write(0x10, 2, 0)
    assert machine.host.create_region(machine.host.devices[-1:]).read(0, 4) == b"fine"


def test_a_device_that_is_pulled_out_while_it_is_used_disturbs_nobody(machine: Machine) -> None:
    device = machine.site.switch.port(2).remove()
    machine.fails(machine.region, RequestStatus.LINK_DOWN)
    assert machine.vppb.config["aer"]["uncorrectable_status.surprise_down"] == 1
    assert (machine.region.lost, len(machine.host.devices)) == (True, 1)
    machine.witness.goes_on()
    machine.site.switch.port(2).insert(device)
    assert machine.host.create_region(machine.host.devices[-1:]).read(0, 4) == b"fine"


def test_a_multi_logical_device_that_is_pulled_out_is_lost_to_all_its_hosts() -> None:
    with Site(2, [STEP], [4 * STEP]) as site:
        machine = Machine(site)
        with Witness(machine.region) as other:
            site.switch.port(3).remove()
            machine.fails(machine.shared, RequestStatus.LINK_DOWN)
            host = site.host(1)
            assert (host.devices, [region.lost for region in host.regions]) == ([], [True])
            other.goes_on()


def test_a_host_that_is_unplugged_has_no_link(machine: Machine) -> None:
    machine.site.switch.disconnect(0)
    machine.fails(machine.region, RequestStatus.LINK_DOWN)


def test_requests_under_way_end_before_memory_is_another_s() -> None:
    """A reader sees the old bytes, or all ones, but not those of the next host."""
    with Site(2, [STEP]) as site:
        for turn in range(10):
            site.bind(0, 0, 2)
            mine = site.host(0).create_region(site.host(0).devices)
            mine.write(0, bytes([turn]) * 65536)
            mine.bus.raises = False
            seen: set[int] = set()
            with Reader(mine, seen):
                site.switch.unbind(0, 0)
                site.bind(1, 0, 2)
                theirs = site.host(1).create_region(site.host(1).devices)
                theirs.write(0, b"\xee" * 65536)
            assert turn in seen <= {turn, 0xFF}
            site.switch.unbind(1, 0)
