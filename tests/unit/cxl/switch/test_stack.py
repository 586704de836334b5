# SPDX-License-Identifier: BSD-3-Clause
"""Stacked switches: requests pass from edge port to edge port by PIDs of 12 bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.host.bus import MemoryAccessError, RequestStatus
from nupa.cxl.host.host import CxlRegion
from nupa.cxl.media.cdat import DataType, Sslbis
from nupa.cxl.media.performance import SWITCH_PS
from nupa.cxl.site.site import Site
from nupa.cxl.switch.pbr import PIDS, PbrError, SwitchPort
from nupa.cxl.switch.stack import Stack
from nupa.topology.topology import HostConfig, SwitchConfig, Topology, TrunkConfig
from tests.unit.cxl.witness import Witness

STEP = 256 << 20
#: Of a line of three, the middle one is between; the ends have a link of their own, too.
LINE = (("s0", "s1"), ("s1", "s2"))
RING = (*LINE, ("s0", "s2"))


def site_of(trunks: tuple[tuple[str, str], ...]) -> Site:
    """Make a site with a host and a device of 256 MiB at each of three switches: ports 3, 4 and
    5."""
    topology = Topology(
        "three",
        tuple(SwitchConfig(f"s{i}", 4) for i in range(3)),
        tuple(HostConfig(f"host{i}", f"s{i}") for i in range(3)),
        tuple(TrunkConfig(pair) for pair in trunks),
    )
    return Site(topology, [STEP] * 3)


@pytest.fixture
def line() -> Iterator[Site]:
    with site_of(LINE) as site:
        yield site


def stack_of(site: Site) -> Stack:
    assert site.stack
    return site.stack


def region_of(site: Site, host: int, port: int) -> CxlRegion:
    site.bind(host, 0, port)
    return site.host(host).create_region(site.host(host).devices)


def test_a_request_passes_three_switches_and_their_ports_count_it(line: Site) -> None:
    stack = stack_of(line)
    region = region_of(line, 0, 5)
    region.write(4096, b"far away")
    assert region.read(4096, 8) == b"far away"
    passage = stack.passage(0, 5)
    assert (passage.spid, passage.dpid) == (stack.pids[0], stack.pids[5])
    assert passage.spid != passage.dpid < PIDS
    assert [port.name for port in passage.ports] == ["s0/2", "s1/2", "s1/3", "s2/2"]
    for port in passage.ports:
        assert region.bus.counters(port).reads == region.bus.counters(port).partial_writes == 1
    routes = [stack.fabric.table(f"s{i}")[passage.dpid] for i in range(3)]
    assert routes[:2] == [2, 3]


def test_hosts_at_all_switches_use_devices_at_others_beside_each_other(line: Site) -> None:
    regions = [region_of(line, number, 3 + (number + 1) % 3) for number in range(3)]
    for number, region in enumerate(regions):
        region.write(0, bytes([number]) * 4096)
    assert [region.read(4095, 1)[0] for region in regions] == [0, 1, 2]


def test_a_broken_link_is_a_lost_device_and_only_for_whom_it_is_on_the_way(line: Site) -> None:
    stack = stack_of(line)
    far, near = region_of(line, 0, 5), region_of(line, 1, 3)
    with Witness(near) as witness:
        stack.set_link(SwitchPort("s1", 3), False)
        with pytest.raises(MemoryAccessError) as failed:
            far.read(0, 64)
        assert failed.value.status is RequestStatus.LINK_DOWN
        assert line.switch.vcs(0).vppb(0).config["aer"]["uncorrectable_status.surprise_down"] == 1
        assert line.host(0).devices == []
        witness.goes_on()
        with pytest.raises(PbrError, match="no way"):
            stack.passage(0, 5)
        stack.set_link(SwitchPort("s2", 2), True)
        again = line.host(0).create_region(line.host(0).devices)
        again.write(0, b"back")
        assert again.read(0, 4) == b"back"


def test_where_another_way_leads_requests_take_it_and_nothing_is_lost() -> None:
    with site_of(RING) as site:
        stack, region = stack_of(site), region_of(site, 0, 5)
        direct = [port.name for port in stack.passage(0, 5).ports]
        with Witness(region) as witness:
            stack.set_link(SwitchPort("s0", int(direct[0][-1])), False)
            witness.goes_on()
            way = stack.passage(0, 5)
            assert {port.name[:2] for port in way.ports} == {"s0", "s1", "s2"}
            assert region.bus.counters(way.ports[0]).reads > 0
        assert not region.lost


def test_tables_of_speed_have_the_switches_on_the_way(line: Site) -> None:
    line.bind(0, 0, 3)
    line.bind(0, 1, 5)
    (latency,) = [
        each
        for each in line.speeds(0).structures
        if isinstance(each, Sslbis) and each.data == DataType.ACCESS_LATENCY
    ]
    near, far = (pair.value * latency.base for pair in latency.pairs[:2])
    assert far - near >= 2 * SWITCH_PS


def test_a_manager_binds_over_switches_as_if_they_were_one(line: Site) -> None:
    fm = FabricManager.of(line.manager)
    fm.bind(2, 1, 3)
    (device,) = line.host(2).devices
    assert line.host(2).create_region([device]).read(0, 8) == bytes(8)
    fm.unbind(2, 1)
    assert line.host(2).devices == []


def test_a_trunk_that_is_not_there_is_refused(line: Site) -> None:
    with pytest.raises(PbrError, match="no link"):
        stack_of(line).set_link(SwitchPort("s0", 1), False)
    with pytest.raises(PbrError, match="no link"):
        stack_of(line).fabric.peer(SwitchPort("s9", 0))
