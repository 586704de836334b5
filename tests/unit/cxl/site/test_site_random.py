# SPDX-License-Identifier: BSD-3-Clause
"""Random acts of managers, drivers and hands at the ports: hosts see the memory that is bound to
them, and no other byte."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from uuid import UUID

import pytest

from nupa.base.errors import LocalError
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.function.cci import CommandError
from nupa.cxl.host.bus import MemoryAccessError
from nupa.cxl.host.host import CxlRegion
from nupa.cxl.media.dcd import Policy
from nupa.cxl.registers.pcie_tables import PortType
from nupa.cxl.site.site import Site
from nupa.cxl.switch.physical_port import Device, UnbindMode

MIB = 1 << 20
STEP = 256 * MIB
HOSTS, LDS, VPPBS = 2, 3, 2
SINGLES, MLD = (2, 3), 4
HOW = (UnbindMode.MANAGED, UnbindMode.SURPRISE)


class Play:
    """Random acts, and the invariants after each."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.random = Random(seed)
        self.fm = FabricManager.of(site.manager)
        self.hosts = [site.host(number) for number in range(HOSTS)]
        self.pulled: dict[int, Device] = {}
        often = (self.bind, self.add, self.share, self.create)
        rarely = (self.unbind, self.allocate, self.release, self.destroy, self.pull, self.link)
        self.acts = (*often * 6, *rarely)

    def begin(self) -> None:
        """Give each host a device, and an LD with memory; both share an extent."""
        self.fm.allocate(MLD, 0, [STEP, STEP])
        capacity = self.fm.capacity(MLD)
        for number, host in enumerate(self.hosts):
            self.fm.bind(number, 0, SINGLES[number])
            self.fm.bind(number, 1, MLD, number)
            host.create_region(host.devices[:1])
            host.create_dynamic_region(host.devices[1], 1)
        capacity.add(0, 1, 4 * MIB, tag=UUID(int=1))
        capacity.add(1, 1, tag=UUID(int=1), policy=Policy.SHARED)

    def number(self, below: int) -> int:
        return self.random.randrange(below)

    def bind(self) -> None:
        port = self.random.choice((*SINGLES, MLD))
        ld = self.number(LDS) if port == MLD else None
        self.fm.bind(self.number(HOSTS), self.number(VPPBS), port, ld)

    def unbind(self) -> None:
        self.fm.unbind(self.number(HOSTS), self.number(VPPBS), self.random.choice(HOW))

    def allocate(self) -> None:
        self.fm.allocate(MLD, self.number(LDS), [self.number(3) * STEP])

    def add(self) -> None:
        tag = UUID(int=self.number(3))
        self.fm.capacity(MLD).add(self.number(LDS), self.number(2), 2 * MIB, tag=tag)

    def share(self) -> None:
        tag = UUID(int=1 + self.number(2))
        self.fm.capacity(MLD).add(self.number(LDS), 1, tag=tag, policy=Policy.SHARED)

    def release(self) -> None:
        forced = self.random.random() < 0.5
        self.fm.capacity(MLD).release(self.number(LDS), UUID(int=self.number(3)), forced=forced)

    def create(self) -> None:
        host = self.random.choice(self.hosts)
        for device in self.random.sample(host.devices, min(1, len(host.devices))):
            if self.random.random() < 0.5:
                host.create_region([device], size=STEP)
            else:
                host.create_dynamic_region(device, self.number(2))

    def destroy(self) -> None:
        host = self.random.choice(self.hosts)
        for region in host.regions[-1:]:
            host.destroy_region(region)

    def pull(self) -> None:
        port = self.random.choice((*SINGLES, MLD))
        if port in self.pulled:
            self.site.switch.port(port).insert(self.pulled[port])
            del self.pulled[port]
        else:
            self.pulled[port] = self.site.switch.port(port).remove()

    def link(self) -> None:
        port = self.random.choice((*SINGLES, MLD))
        self.site.switch.port(port).set_link(self.random.random() < 0.8)

    # Invariants

    def check(self) -> None:
        for number, host in enumerate(self.hosts):
            virtual = self.site.switch.vcs(number)
            there = sum(bool(vppb.below) for vppb in virtual.vppbs)
            kinds = [function.kind for function in host.functions]
            assert kinds.count(PortType.ENDPOINT) == there
        spots = [
            spot for host in self.hosts for region in host.regions for spot in spots_of(region)
        ]
        for mark, (region, at, place) in enumerate(spots):
            region.write(at, bytes([mark % 251]) * 64)
            same = [other for other in spots if other[2] == place]
            assert all(other.read(offset, 64)[0] == mark % 251 for other, offset, _ in same)
        last = {place: mark for mark, (_, _, place) in enumerate(spots)}
        for region, at, place in spots:  # no host has written over another's bytes
            assert region.read(at, 64) == bytes([last[place] % 251]) * 64
        for host in self.hosts:
            for region in host.regions:
                if region.lost:
                    with pytest.raises(MemoryAccessError):
                        region.read(0, 64)


def spots_of(region: CxlRegion) -> list[tuple[CxlRegion, int, tuple[int, int]]]:
    """Return the first line of each extent, and its line and memory."""
    found = []
    for at, _ in [] if region.lost else region.extents:
        there = region.bus.find(region.base + at)
        assert there
        ((memory, offset, _),) = region.bus.media(there[0]).pieces(there[1], 64)
        found.append((region, at, (id(memory), offset)))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_hosts_see_what_is_bound_and_no_byte_of_others(seed: int) -> None:
    done = 0
    with Site(HOSTS, [STEP] * 2, [4 * STEP], dynamic_bytes=2 * STEP, vppbs=VPPBS) as site:
        play = Play(site, seed)
        play.begin()
        play.check()
        for _ in range(120):
            with suppress(CommandError, LocalError):  # impossible acts are refused
                play.random.choice(play.acts)()
                done += 1
            play.check()
    assert done > 30
