# SPDX-License-Identifier: BSD-3-Clause
"""CXL memory of a host: devices, their decoders, and regions of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from nupa.base.errors import LocalError
from nupa.cxl.host.bus import Bus
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.driver import Driver
from nupa.cxl.host.enumerate import FoundFunction
from nupa.cxl.media.extents import DcRegion, Extent


class RegionError(LocalError):
    """A region that is not possible; nothing has changed."""


class Decoders:
    """The *count* HDM decoders of a host bridge, switch or device, at *base* of the host's memory;
    `regions` has the region of each."""

    def __init__(self, name: str, base: int, count: int) -> None:
        self.name = name
        self.base = base
        self.regions: list[CxlRegion | None] = [None] * count

    @property
    def used(self) -> int:
        """The number of committed decoders."""
        return sum(region is not None for region in self.regions)

    def free(self) -> int:
        """Returns the first free decoder.  RegionError: there is none."""
        if None not in self.regions:
            raise RegionError(f"{self.name}: all {len(self.regions)} decoders are in use")
        return self.regions.index(None)


@dataclass(eq=False, slots=True)
class CxlMemdev:
    """A device with CXL memory: `capacity` bytes, of which `used` belong to regions.

    *route* has the decoders on the way, each with the port number towards the device.  *driver* is
    None without a mailbox."""

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
    """A region of *size* bytes at *base*, interleaved over *devices*; *dynamic*: a region of
    dynamic capacity, of which only the extents can be accessed.  `lost` once a device was
    removed."""

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
        """Offset and size of the parts that can be accessed."""
        if self.dynamic is None:
            return [(0, self.size)]
        first, last = self.dynamic.dpa, self.dynamic.end
        listed = sorted(self.devices[0].extents)
        return [(each.dpa - first, each.size) for each in listed if first <= each.dpa < last]

    def read(self, offset: int, size: int) -> bytes:
        """Reads bytes.  MemoryAccessError as by `Bus.read`; LocalError: outside the region."""
        self._check(offset, size)
        return self.bus.read(self.base + offset, size)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Writes bytes.  Errors as by `read`."""
        self._check(offset, memoryview(data).nbytes)
        self.bus.write(self.base + offset, data)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise LocalError(f"{size} bytes at {offset:#x}: the region has {self.size:#x}")
