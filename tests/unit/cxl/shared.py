# SPDX-License-Identifier: BSD-3-Clause
"""Hosts with a device each, with the same memory behind them."""

from __future__ import annotations

from nupa.cxl.cache.coherence import CacheShape
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.interleave import Interleave
from nupa.cxl.function.port import root_port
from nupa.cxl.host.bus import Bus
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.root import HostBridge, RootComplex
from nupa.cxl.media.parts import Memory, PartedMedia
from tests.unit.cxl.host_model import BASE, STEP, commit


def shared_bus(memory: Memory, cache: CacheShape | None) -> Bus:
    """Make a host with *memory*, of 256 MiB, at BASE."""
    bridge, port, device = HostBridge(10, 0, 0, ports=1), root_port(1), Type3(STEP)
    bridge.below[0] = port
    port.attach(device)
    device.component["hdm"].write(4, 4, 2)
    device.config["device"].write(0x0C, 2, 1 << 2)
    assert commit(bridge.decoders, 0, BASE, STEP, Interleave(), (1,))
    assert commit(device.decoders, 0, BASE, STEP, Interleave())
    return Bus(
        RootComplex(bridge),
        [FixedWindow(BASE, STEP, (10,))],
        memory=lambda _device: PartedMedia.of(memory, STEP),
        cache=cache,
    )
