# SPDX-License-Identifier: BSD-3-Clause
"""The switch of a fabric: a virtual switch for each host, and devices at its ports.

Knows how many of each there are; never what is bound: that is the manager's.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from nupa.cxl.dcd import DynamicCapacity, Policy
from nupa.cxl.endpoint import Type3
from nupa.cxl.extents import NO_TAG, Extent, Region
from nupa.cxl.fm.manager import Manager
from nupa.cxl.media import anonymous
from nupa.cxl.mld import MOST_LDS, Mld
from nupa.cxl.port import root_port
from nupa.cxl.root import HostBridge, RootComplex
from nupa.cxl.switch import Switch

_BRIDGE_BASE = 1 << 40  # of a host's memory map: above what its devices' windows need


class WillingCapacity(DynamicCapacity):
    """Of hosts without a driver: they accept what they are offered, and give back what is asked."""

    def add(
        self,
        number: int,
        index: int,
        size: int = 0,
        *,
        tag: UUID = NO_TAG,
        policy: Policy = Policy.FREE,
        extents: Sequence[tuple[int, int]] = (),
    ) -> list[Extent]:
        offer = super().add(number, index, size, tag=tag, policy=policy, extents=extents)
        self.accept(number, _places(offer))
        return offer

    def ask_back(self, number: int, extents: Sequence[tuple[int, int]] | UUID) -> list[Extent]:
        wanted = super().ask_back(number, extents)
        self.release(number, _places(wanted))
        return wanted


def _places(extents: Sequence[Extent]) -> list[tuple[int, int]]:
    return [(extent.dpa, extent.size) for extent in extents]


def _capacity(size: int) -> DynamicCapacity:
    """A region of one half, and one that hosts share.  DcdError: no multiple of 512 MiB."""
    half = size // 2
    regions = [Region(0, half), Region(half, size - half, shareable=True)]
    return WillingCapacity(anonymous(size), regions, hosts=MOST_LDS)


class Site:
    """*hosts* hosts, whose root complexes are `hosts`; devices of *slds* bytes, each a multiple of
    256 MiB, at the ports behind theirs, then multi-logical ones of *mlds* bytes, all of it free,
    each with *dynamic_bytes* of dynamic capacity.

    SwitchError, MldError, DcdError: more than there can be; ValueError: no multiple."""

    def __init__(
        self,
        hosts: int,
        slds: Sequence[int] = (),
        mlds: Sequence[int] = (),
        *,
        dynamic_bytes: int = 0,
        vppbs: int = 4,
        spare_ports: int = 0,
    ) -> None:
        downstream = len(slds) + len(mlds) + spare_ports
        self.switch = Switch(hosts=hosts, downstream=downstream, vppbs=vppbs)
        for number, size in enumerate(slds, hosts):
            self.switch.port(number).insert(Type3(size, serial=number, name=f"sld{number}"))
        for number, size in enumerate(mlds, hosts + len(slds)):
            mld = Mld(size, lds=MOST_LDS, serial=number, name=f"mld{number}")
            mld.dynamic = _capacity(dynamic_bytes) if dynamic_bytes else None
            self.switch.port(number).insert(mld)
        self.hosts = []
        for number in range(hosts):
            bridge = HostBridge(number, 0, _BRIDGE_BASE, ports=1)
            bridge.below[0] = root = root_port(0)
            self.switch.connect(number, root)
            self.hosts.append(RootComplex(bridge))
        self.manager = Manager(self.switch)
