# SPDX-License-Identifier: BSD-3-Clause
"""The switch of a fabric: a virtual switch for each host, and devices at its ports.

Knows how many of each there are; never what is bound: that is the manager's.
"""

from __future__ import annotations

from collections.abc import Sequence

from nupa.cxl.endpoint import Type3
from nupa.cxl.fm.manager import Manager
from nupa.cxl.mld import MOST_LDS, Mld
from nupa.cxl.port import root_port
from nupa.cxl.root import HostBridge, RootComplex
from nupa.cxl.switch import Switch

_BRIDGE_BASE = 1 << 40  # of a host's memory map: above what its devices' windows need


class Site:
    """*hosts* hosts, whose root complexes are `hosts`; devices of *slds* bytes, each a multiple of
    256 MiB, at the ports behind theirs, then multi-logical ones of *mlds* bytes, all of it free.

    SwitchError, MldError: more than there can be; ValueError: no multiple."""

    def __init__(
        self,
        hosts: int,
        slds: Sequence[int] = (),
        mlds: Sequence[int] = (),
        *,
        vppbs: int = 4,
        spare_ports: int = 0,
    ) -> None:
        downstream = len(slds) + len(mlds) + spare_ports
        self.switch = Switch(hosts=hosts, downstream=downstream, vppbs=vppbs)
        for number, size in enumerate(slds, hosts):
            self.switch.port(number).insert(Type3(size, serial=number, name=f"sld{number}"))
        for number, size in enumerate(mlds, hosts + len(slds)):
            mld = Mld(size, lds=MOST_LDS, serial=number, name=f"mld{number}")
            self.switch.port(number).insert(mld)
        self.hosts = []
        for number in range(hosts):
            bridge = HostBridge(number, 0, _BRIDGE_BASE, ports=1)
            bridge.below[0] = root = root_port(0)
            self.switch.connect(number, root)
            self.hosts.append(RootComplex(bridge))
        self.manager = Manager(self.switch)
