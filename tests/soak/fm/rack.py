# SPDX-License-Identifier: BSD-3-Clause
"""The managed rack: a switch with three hosts, SLDs and MLDs, dynamic capacity."""

from __future__ import annotations

from nupa.cxl.device.expander import Expander
from nupa.cxl.device.mld import Mld
from nupa.cxl.fm.server.manager import Manager
from nupa.cxl.function.port import root_port
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.root import HostBridge, RootComplex
from nupa.cxl.media.dcd import DynamicCapacity
from nupa.cxl.media.extents import DcRegion
from nupa.cxl.media.parts import Memory, PartedMedia, SparseFile
from nupa.cxl.switch.switch import Switch
from nupa.topology.topology import LinkConfig

from .ledger import Ledger

STEP = 256 << 20
HOSTS, LDS, VPPBS = 3, 4, 4
SLD_PORTS, MLD_PORTS, EMPTY_PORT = (3, 4), (5, 6), 7
DCD_PORT = 5
OWN, SHARED = 0, 1
BLOCK = 2 << 20
MLD_STEPS = 6
WINDOW_BASE = 16 << 30
_STORE_STEPS = len(SLD_PORTS) + len(MLD_PORTS) * MLD_STEPS + 2
_SPAN = 1 << 40  # of each memory's line numbers


class Rack:
    """`where`(memory, offset) names a line for the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._numbers: dict[Memory, int] = {}
        self.ledger = ledger
        self._store = SparseFile(_STORE_STEPS * STEP)
        self.switch = Switch(hosts=HOSTS, downstream=5, vppbs=VPPBS)
        for port in SLD_PORTS:
            media = PartedMedia.of(self._memory(STEP), STEP)
            sld = Expander(media, LinkConfig(), serial=port, name=f"sld{port}")
            self.switch.port(port).insert(sld.function)
        self.capacity = self._dynamic()
        self.mlds = {}
        for port in MLD_PORTS:
            dynamic = self.capacity if port == DCD_PORT else None
            mld = self.mlds[port] = Mld(
                MLD_STEPS * STEP,
                lds=LDS,
                serial=port,
                name=f"mld{port}",
                memory=self._media if dynamic else self._memory(MLD_STEPS * STEP),
                dynamic=dynamic,
            )
            mld.allocate(0, [1] * LDS)
            self.switch.port(port).insert(mld)
        self.manager = Manager(self.switch)
        self.windows = [FixedWindow(WINDOW_BASE, 64 * STEP, (0,))]
        self.roots = []
        for number in range(HOSTS):
            bridge = HostBridge(0, 0, 1 << 46, ports=1)
            bridge.below[0] = root = root_port(0)
            self.switch.connect(number, root)
            self.roots.append(RootComplex(bridge, lock=self.manager.lock))

    def _memory(self, size: int) -> Memory:
        memory = self._store.take(size)
        number = self._numbers[memory] = len(self._numbers)
        clear = memory.clear

        def cleared(dpa: int, length: int) -> None:
            clear(dpa, length)
            self.ledger.cleared(number * _SPAN + dpa, length)

        vars(memory)["clear"] = cleared
        return memory

    def _dynamic(self) -> DynamicCapacity:
        first = MLD_STEPS * STEP
        regions = [
            DcRegion(first, STEP, BLOCK, sanitize=True),
            DcRegion(first + STEP, STEP, BLOCK, shareable=True),
        ]
        self._media = self._memory(first + 2 * STEP)
        return DynamicCapacity(self._media, regions, hosts=LDS, extents_max=64, tags_max=16)

    def where(self, memory: Memory, offset: int) -> int:
        return self._numbers[memory] * _SPAN + offset

    def tidy(self) -> None:
        """Release everything."""
        with self.manager.lock:
            for port in self.switch.ports[HOSTS:]:
                port.in_reset = False
                port.set_link(True)
            for vcs, vppb, _ in self.switch.bindings:
                self.switch.unbind(vcs, vppb)
            self.capacity.references.clear()
            for number in range(LDS):
                self.capacity.drop(number)

    def close(self) -> None:
        self._store.close()

    def leaks(self) -> list[str]:
        """Return what is left after `tidy`."""
        found = [f"{each} is bound" for each in self.switch.bindings]
        found += [f"port {port.number}: {port.bound}" for port in self.switch.ports if port.bound]
        for index, region in enumerate(self.capacity.regions):
            if self.capacity.free(index) != [(region.dpa, region.size)]:
                found.append(f"region {index}: only {self.capacity.free(index)} are free")
        if (self.capacity.extents_left, self.capacity.tags_left) != (64, 16):
            found.append(f"{self.capacity.extents_left} extents, {self.capacity.tags_left} tags")
        devices = {port.device for port in self.switch.ports if port.device}
        if len(devices) != len(SLD_PORTS) + len(MLD_PORTS):
            found.append(f"{len(devices)} devices")
        for mld in self.mlds.values():
            steps = [step for ld in mld._steps for step in ld] + mld._free
            if sorted(steps) != list(range(MLD_STEPS)):
                found.append(f"{mld.name}: steps {sorted(steps)}")
        return found
