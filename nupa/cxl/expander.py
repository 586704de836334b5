# SPDX-License-Identifier: BSD-3-Clause
"""A memory expander that works: a type 3 device, its commands and its attribute table.

Knows how these are put together; never a fabric's topology beyond the device's own link.
"""

from __future__ import annotations

from collections.abc import Callable

from nupa.cxl import doe
from nupa.cxl.cdat import TABLE_ACCESS, Cdat
from nupa.cxl.endpoint import Type3
from nupa.cxl.media import Media
from nupa.cxl.memory_device import MemoryDevice
from nupa.cxl.pcie_tables import Link as PcieLink
from nupa.cxl.performance import MediaSpeed, Range, device_cdat
from nupa.fabric.topology import SPEEDS_MTPS, Link

_CODES = {mtps: code for code, mtps in enumerate(SPEEDS_MTPS.values(), 3)}  # PCIe 6.0 7.5.3.6


class Expander:
    """*media* behind *link*: `function` is what a bus takes, `memory` has its events, poison and
    health, `cdat` is what software reads of its speed.  *interrupt* is as MemoryDevice's."""

    def __init__(
        self,
        media: Media,
        link: Link,
        *,
        speed: MediaSpeed | None = None,
        serial: int = 0,
        name: str = "type3",
        interrupt: Callable[[int], None] | None = None,
    ) -> None:
        pcie_link = PcieLink(_CODES[link.speed_mtps], link.width_lanes)
        self.media = media
        self.function = Type3(media.size, serial=serial, link=pcie_link, name=name)
        self.memory = MemoryDevice(self.function.device, media, interrupt=interrupt)
        self.cdat: Cdat = device_cdat([Range(0, media.size, speed=speed or MediaSpeed())], link)
        doe.attach(self.function.config, {TABLE_ACCESS: self.cdat.answer})
