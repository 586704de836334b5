# SPDX-License-Identifier: BSD-3-Clause
"""A memory expander: a type 3 device with commands, memory and an attribute table."""

from __future__ import annotations

from collections.abc import Callable

from nupa.cxl.commands.memory import Capacity
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.device.mailbox_cci import MailboxCci
from nupa.cxl.function import doe
from nupa.cxl.media.cdat import TABLE_ACCESS, Cdat, Flags
from nupa.cxl.media.dcd import DynamicCapacity
from nupa.cxl.media.parts import PartedMedia
from nupa.cxl.media.performance import MediaSpeed, Range, device_cdat
from nupa.cxl.media.poison import PoisonSource
from nupa.cxl.registers.pcie_tables import PcieLink
from nupa.topology.topology import SPEEDS_MTPS, LinkConfig

_CODES = {mtps: code for code, mtps in enumerate(SPEEDS_MTPS.values(), 3)}  # PCIe 6.0 7.5.3.6


class Expander:
    """A device with *media* behind *link*, of which *memory_bytes* are its own (None: all).
    *dynamic*: beside that, the dynamic capacity of host N.

    `function` is plugged into a bus, `memory` has events, poison and health, `cdat` is the
    attribute table.  *interrupt* is as MailboxCci's, by default MSI-X."""

    def __init__(
        self,
        media: PartedMedia,
        link: LinkConfig,
        *,
        memory_bytes: int | None = None,
        dynamic: tuple[DynamicCapacity, int] | None = None,
        speed: MediaSpeed | None = None,
        serial: int = 0,
        name: str = "type3",
        interrupt: Callable[[int], None] | None = None,
    ) -> None:
        own = media.size if memory_bytes is None else memory_bytes
        pcie_link = PcieLink(_CODES[link.speed_mtps], link.width_lanes)
        self.media = media
        self.function = Type3(own, serial=serial, link=pcie_link, name=name, dpa_bytes=media.size)
        self.memory = MailboxCci(
            self.function.device,
            media,
            capacity=Capacity(own, own),
            interrupt=interrupt or self.function.msix.send,
            dynamic=dynamic,
        )
        self.memory.poison.mirror(media.set_poison, media.is_poisoned)
        self.function.media = media
        self.function.poison_read = self.memory.poison_read
        ranges = _ranges(own, dynamic[0] if dynamic else None, speed or MediaSpeed())
        self.cdat: Cdat = device_cdat(ranges, link)
        doe.attach(self.function.config, {TABLE_ACCESS: self.cdat.answer})

    def poison(self, dpa: int) -> None:
        """Poisons the line at *dpa*.  CommandError: no such line."""
        self.memory.poison.add(dpa, PoisonSource.INTERNAL, self.memory.timestamp.now_ns())

    def fail(self) -> None:
        """Fails with an uncorrected error (nupa/cxl/device/viral.py)."""
        self.memory.fail()
        self.function.viral.fail()


def _ranges(own: int, dynamic: DynamicCapacity | None, speed: MediaSpeed) -> list[Range]:
    found = [Range(0, own, speed=speed)] if own else []
    for region in dynamic.regions if dynamic else ():
        flags = Flags.DYNAMIC | Flags.SHAREABLE * region.shareable
        handle = region.dsmad_handle
        found.append(Range(region.dpa, region.size, flags, speed=speed, handle=handle))
    return found
