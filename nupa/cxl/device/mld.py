# SPDX-License-Identifier: BSD-3-Clause
"""A multi-logical device: up to 16 logical devices, and one of the fabric manager's own.

CXL 3.1 2.4, 7.6.7.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from nupa.base.errors import LocalError
from nupa.cxl.device.endpoint import DEVICE_ID, Type3
from nupa.cxl.device.expander import Expander
from nupa.cxl.function.function import Function
from nupa.cxl.media.dcd import DynamicCapacity
from nupa.cxl.media.parts import Memory, Part, PartedMedia
from nupa.cxl.registers import dvsec_tables as dvsec
from nupa.cxl.registers.config import ConfigSpace
from nupa.cxl.registers.pci_tables import CLASS_CXL_MEMORY, type0
from nupa.cxl.registers.pcie_tables import PCIE_BYTES, PortType, pcie
from nupa.topology.topology import LinkConfig

MOST_LDS = 16  # CXL 3.1 2.4
FM_LD = 0xFFFF  # CXL 3.1 2.4.1: the LD-ID of the fabric manager's own LD
DEFAULT_LINK = LinkConfig()
#: The code of each memory granularity (CXL 3.1 7.6.7.4.2).
GRANULARITIES = {256 << 20: 0, 512 << 20: 1, 1 << 30: 2}


class MldError(LocalError):
    """No such logical device, an allocation that does not fit, or a setting out of range; nothing
    has changed."""


@dataclass(frozen=True, slots=True)
class Qos:
    """Quality of service settings, with the defaults of CXL 3.1 7.6.7.4.4."""

    telemetry: int = 0  # bit 0: egress port congestion; bit 1: temporary throughput reduction
    moderate_percent: int = 10
    severe_percent: int = 25
    sample_interval: int = 8
    request_basis: int = 0
    completion_interval: int = 64

    def check(self) -> None:
        """Raises MldError if a value is out of range."""
        ranges = {
            "telemetry": (0, 3),
            "moderate_percent": (1, 100),
            "severe_percent": (1, 100),
            "sample_interval": (0, 15),
            "request_basis": (0, 0xFFFF),
            "completion_interval": (0, 0xFF),
        }
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise MldError(f"{name} is {getattr(self, name)}: choose {least} to {most}")


class Mld:
    """A device with *memory_bytes* of memory for *lds* logical devices, allocated in steps of
    *granularity_bytes*.  `logical[n]` is LD n, `lds[n]` its function, `allocated` the number of
    steps of each.  An LD keeps its steps when others change theirs.

    *dynamic* is dynamic capacity.  It lies behind the own memory in each LD's addresses, and its
    host N is LD N.  *memory* is all memory, by these addresses."""

    def __init__(
        self,
        memory_bytes: int,
        *,
        lds: int = MOST_LDS,
        granularity_bytes: int = 256 << 20,
        serial: int = 0,
        name: str = "mld",
        link: LinkConfig = DEFAULT_LINK,
        memory: Memory | None = None,
        dynamic: DynamicCapacity | None = None,
    ) -> None:
        if not 1 <= lds <= MOST_LDS:
            raise MldError(f"{lds} logical devices: choose 1 to {MOST_LDS}")
        if granularity_bytes not in GRANULARITIES:
            raise MldError(f"granularity {granularity_bytes:#x}: choose 256, 512 or 1024 MiB")
        if memory_bytes % granularity_bytes or memory_bytes <= 0:
            raise MldError(f"{memory_bytes:#x} bytes are not a multiple of {granularity_bytes:#x}")
        regions = dynamic.regions if dynamic else []
        if any(region.dpa < memory_bytes for region in regions):
            raise MldError(f"dynamic capacity begins below {memory_bytes:#x}, the LDs' end")
        if dynamic and len(dynamic.hosts) < lds:
            raise MldError(f"{lds} LDs: dynamic capacity has {len(dynamic.hosts)} hosts")
        self.name = name
        self.serial = serial
        self.link = link
        self._end = max([memory_bytes, *(region.end for region in regions)])
        self.memory = memory or Memory.anonymous(self._end)
        if self.memory.size < self._end:
            raise MldError(f"{self.memory.size:#x} bytes given: {name} needs {self._end:#x}")
        self.memory_bytes = memory_bytes
        self.granularity_bytes = granularity_bytes
        self._free = list(range(memory_bytes // granularity_bytes))
        self._steps: list[list[int]] = [[] for _ in range(lds)]
        self.dynamic = dynamic
        #: Called when an LD has sent ERR_FATAL (true) or ERR_NONFATAL; set by its port.
        self.on_error: Callable[[bool], None] = _ignore
        self.logical = [self._make(number) for number in range(lds)]
        self.qos = Qos()
        #: Of each LD, in 1/256 of the device's bandwidth (CXL 3.1 7.6.7.4.7, 7.6.7.4.9).
        self.bandwidth = [0] * lds
        self.bandwidth_limit = [0] * lds
        config = ConfigSpace(type0(dvsec.VENDOR_ID, DEVICE_ID, CLASS_CXL_MEMORY, []))
        config.add_capability("pcie", pcie(PortType.ENDPOINT), PCIE_BYTES)
        part = dvsec.mld(lds)
        config.add_extended(part.name, part.rows, part.bytes)
        config[part.name].on_write("hot_reset", self._hot_reset)
        self.fm_ld = Function(f"{name}.fm", config, {})

    @property
    def lds(self) -> list[Type3]:
        return [each.function for each in self.logical]

    def _make(self, number: int) -> Expander:
        own = len(self._steps[number]) * self.granularity_bytes
        media = PartedMedia(self._end if self.dynamic else own)
        dynamic = (self.dynamic, number) if self.dynamic else None
        name = f"{self.name}.ld{number}"
        ld = Expander(
            media, self.link, memory_bytes=own, dynamic=dynamic, serial=self.serial, name=name
        )
        ld.function.config["device"].preset("capability.mld", 1)
        ld.function.ld_id = number
        ld.function.viral.on_message(lambda fatal: self.on_error(fatal))
        self._supply(number, media)
        if self.dynamic:
            self.dynamic.host(number).watch(partial(self._supply, number, media))
        return ld

    def _supply(self, number: int, media: PartedMedia) -> None:
        """Updates an LD's memory: its steps, and the extents that its host has accepted."""
        size = self.granularity_bytes
        parts = [
            Part(i * size, size, self.memory, step * size)
            for i, step in enumerate(self._steps[number])
        ]
        for extent in self.dynamic.host(number).accepted if self.dynamic else ():
            shared = extent.sequence > 0
            parts.append(Part(extent.dpa, extent.size, self.memory, extent.dpa, shared))
        media.set_parts(parts)

    def _hot_reset(self, written: int, _old: int) -> None:
        for number, ld in enumerate(self.lds):
            if written >> number & 1:
                ld.reset(hot=True)

    def reset(self, *, hot: bool = False) -> None:
        """Resets all functions: `Registers.reset`."""
        for function in (*self.lds, self.fm_ld):
            function.reset(hot=hot)

    def function(self, ld: int) -> Function:
        """Returns the function that answers configuration requests with this LD-ID.  MldError:
        there is none."""
        if ld == FM_LD:
            return self.fm_ld
        return self.lds[self.check(ld)]

    def check(self, ld: int) -> int:
        """Returns *ld*.  MldError: there is no such LD."""
        if not 0 <= ld < len(self.lds):
            raise MldError(f"LD {ld}: {self.name} has {len(self.lds)}, from 0 on")
        return ld

    @property
    def allocated(self) -> list[int]:
        """The number of steps of each LD."""
        return [len(steps) for steps in self._steps]

    @property
    def usable(self) -> set[int]:
        """The LDs that have memory, or may get dynamic capacity."""
        return {n for n, steps in enumerate(self._steps) if steps or self.dynamic}

    def media(self, ld: int, dpa: int) -> int:
        """Translates *dpa* of an LD into an address of the device's memory.  MldError: outside the
        LD."""
        steps = self._steps[self.check(ld)]
        index, rest = divmod(dpa, self.granularity_bytes)
        if not 0 <= index < len(steps):
            raise MldError(f"LD {ld} has no memory at {dpa:#x}: it has {len(steps)} steps")
        return steps[index] * self.granularity_bytes + rest

    def allocate(self, first: int, steps: Sequence[int]) -> None:
        """Allocates steps to LDs *first*….  An LD whose number of steps changes is reset as after
        power on.  MldError: no such LD, no such memory."""
        if not steps:
            raise MldError("name at least one LD")
        self.check(first)
        self.check(first + len(steps) - 1)
        wanted = dict(enumerate(steps, first))
        total = sum(wanted.get(n, len(had)) for n, had in enumerate(self._steps))
        if min(steps) < 0 or total > self.memory_bytes // self.granularity_bytes:
            raise MldError(
                f"{total} steps of {self.granularity_bytes:#x} bytes: {self.name} has "
                f"{self.memory_bytes // self.granularity_bytes} of them"
            )
        size = self.granularity_bytes
        for number, count in wanted.items():  # free steps first, then take some
            for step in self._steps[number][count:]:
                self.memory.clear(step * size, size)  # the next owner must not see the data
                self._free.append(step)
        self._free.sort()
        for number, count in wanted.items():
            had = self._steps[number]
            if count != len(had):
                more = max(0, count - len(had))
                self._steps[number] = had[:count] + self._free[:more]
                del self._free[:more]
                self.logical[number] = self._make(number)

    def set_qos(self, **changes: int) -> Qos:
        """Changes settings, and returns all.  MldError: a value is out of range."""
        qos = replace(self.qos, **changes)
        qos.check()
        self.qos = qos
        return qos

    def set_bandwidth(self, first: int, parts: Sequence[int], *, limit: bool = False) -> None:
        """Sets the bandwidth of LDs *first*…, in 1/256.  MldError: no such LD; the sum exceeds the
        whole."""
        if not parts:
            raise MldError("name at least one LD")
        self.check(first)
        self.check(first + len(parts) - 1)
        now = list(self.bandwidth_limit if limit else self.bandwidth)
        now[first : first + len(parts)] = parts
        if min(parts) < 0 or max(parts) > 0xFF:
            raise MldError("the bandwidth of an LD is 0/256 to 255/256")
        if limit:
            self.bandwidth_limit = now
        elif sum(now) > 256:
            raise MldError(f"{sum(now)}/256 of the bandwidth: LDs share 256/256")
        else:
            self.bandwidth = now


def _ignore(_fatal: bool) -> None:
    """Does nothing: the device is not in a port."""
