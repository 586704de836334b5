# SPDX-License-Identifier: BSD-3-Clause
"""A switch with two hosts: single devices at ports 2 and 3, a multi-logical device at 4, none at
5."""

from __future__ import annotations

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.device.mld import Mld
from nupa.cxl.function.port import root_port
from nupa.cxl.host.root import HostBridge, RootComplex
from nupa.cxl.switch.switch import Switch
from nupa.cxl.switch.vppb import Vppb
from tests.unit.cxl.walk import Walk

STEP = 256 << 20


class Rack:
    def __init__(self) -> None:
        self.switch = Switch(hosts=2, downstream=4, vppbs=3)
        self.singles = [Type3(STEP, serial=i, name=f"type3.{i}") for i in range(2)]
        self.mld = Mld(8 * STEP, lds=4)
        self.mld.allocate(0, [1, 2, 3])
        for port, device in enumerate(self.singles, 2):
            self.switch.port(port).insert(device)
        self.switch.port(4).insert(self.mld)
        self.hosts = []
        for number in range(2):
            bridge = HostBridge(number, 0, 1 << 32, ports=1)
            root = root_port(0)
            bridge.below[0] = root
            self.switch.connect(number, root)
            self.hosts.append(RootComplex(bridge))

    def bind(self, vcs: int, vppb: int, port: int, ld: int | None = None) -> Vppb:
        self.switch.bind(vcs, vppb, port, ld).finish()
        return self.switch.vcs(vcs).vppb(vppb)

    def devices(self, host: int) -> list[int]:
        """Return the device numbers, on the bus of a host's switch, behind which memory is
        found."""
        walk = Walk(self.hosts[host], 0, 0xFE00_0000)
        read = self.hosts[host].config_read
        buses = {read(bdf, 0x19, 1): bdf.device for bdf in walk.found if bdf.bus == 2}
        return [buses[bdf.bus] for bdf in walk.found if read(bdf, 0x08, 4) >> 8 == 0x050210]

    def bound(self) -> list[tuple[int, int, int, int | None]]:
        """Return virtual switch, vPPB, port and LD of all bindings."""
        return [(vcs, vppb, b.port.number, b.ld) for vcs, vppb, b in self.switch.bindings]
