# SPDX-License-Identifier: BSD-3-Clause
"""What a host has of CXL memory: devices, their decoders, and regions of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from nupa.base.errors import LocalError
from nupa.cxl.host.bus import Bus
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.driver import Driver
from nupa.cxl.host.enumerate import FoundFunction
from nupa.cxl.media.extents import DcRegion, Extent


class RegionError(LocalError):
    """A region that cannot be: nothing has changed."""


class Decoders:
    """The *count* HDM decoders of a host bridge, switch or device, at *base* of the host's memory;
    `regions` has whose each of them is."""

    def __init__(self, name: str, base: int, count: int) -> None:
        self.name = name
        self.base = base
        self.regions: list[CxlRegion | None] = [None] * count

    @property
    def used(self) -> int:
        """How many are committed."""
        return sum(region is not None for region in self.regions)

    def free(self) -> int:
        """The first one.  RegionError: none is."""
        if None not in self.regions:
            raise RegionError(f"{self.name}: all {len(self.regions)} decoders are in use")
        return self.regions.index(None)


@dataclass(eq=False, slots=True)
class CxlMemdev:
    """A device with CXL memory: `capacity` bytes of it, of which `used` belong to regions; *route*
    has the decoders on the way, each with the port number that leads on to the device.  Without a
    mailbox it has no *driver*."""

    function: FoundFunction
    uid: int  # of its host bridge
    capacity: int
    decoders: Decoders = field(repr=False)
    route: list[tuple[Decoders, int]] = field(repr=False)
    driver: Driver | None = field(default=None, repr=False)

    @property
    def used(self) -> int:
        own = (each for each in self.decoders.regions if each and each.dynamic is None)
        return sum(each.size // len(each.devices) for each in own)

    @property
    def extents(self) -> list[Extent]:
        """The dynamic capacity that it has now."""
        return list(self.driver.extents) if self.driver else []

    @property
    def name(self) -> str:
        return str(self.function.bdf)


@dataclass(eq=False, slots=True)
class CxlRegion:
    """*size* bytes at *base*, of *devices* in turn; *dynamic*: they are where a device has dynamic
    capacity, and only its extents can be accessed.  `lost` once a device has gone."""

    bus: Bus = field(repr=False)
    window: FixedWindow = field(repr=False)
    base: int
    size: int
    devices: tuple[CxlMemdev, ...]
    granularity: int
    dynamic: DcRegion | None = None
    lost: bool = False
    committed: list[tuple[Decoders, int]] = field(default_factory=list, repr=False)

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def extents(self) -> list[tuple[int, int]]:
        """Offset and size of what can be accessed."""
        if self.dynamic is None:
            return [(0, self.size)]
        first, last = self.dynamic.dpa, self.dynamic.end
        listed = sorted(self.devices[0].extents)
        return [(each.dpa - first, each.size) for each in listed if first <= each.dpa < last]

    def read(self, offset: int, size: int) -> bytes:
        """MemoryAccessError as by `Bus.read`; LocalError: it is not inside."""
        self._check(offset, size)
        return self.bus.read(self.base + offset, size)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """As `read`."""
        self._check(offset, memoryview(data).nbytes)
        self.bus.write(self.base + offset, data)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise LocalError(f"{size} bytes at {offset:#x}: the region has {self.size:#x}")
