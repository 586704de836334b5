# SPDX-License-Identifier: BSD-3-Clause
"""The tree that `nupa vm up` describes to QEMU, made of our ports and devices."""

from __future__ import annotations

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.port import downstream_port, root_port, upstream_port
from nupa.cxl.host.root import HostBridge, RootComplex

MEMORY_BYTES = 256 << 20
BRIDGE_BASE = 0x1_0000_0000
BUS = 12


class Tree:
    """Two root ports, a switch with two downstream ports behind one, and a device behind one of
    these."""

    def __init__(self) -> None:
        self.bridge = HostBridge(BUS, BUS, BRIDGE_BASE, ports=2)
        self.roots = [root_port(i, slot=i) for i in range(2)]
        self.upstream = upstream_port()
        self.downs = [downstream_port(i, slot=2 + i) for i in range(2)]
        self.device = Type3(MEMORY_BYTES, serial=7)
        for i, port in enumerate(self.roots):
            self.bridge.below[i << 3] = port
        self.roots[0].attach(self.upstream)
        for i, port in enumerate(self.downs):
            self.upstream.attach(port, i << 3)
        self.downs[0].attach(self.device)
        self.root = RootComplex(self.bridge)
