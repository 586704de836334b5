# SPDX-License-Identifier: BSD-3-Clause
"""The site behind `Fabric.switch`: devices for the hosts of a fabric, with memory in its pool."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nupa.base.errors import FabricError, LocalError
from nupa.cxl.host.host import Host
from nupa.cxl.host.memory import RegionError
from nupa.cxl.link.wire import Wire
from nupa.cxl.media.parts import SparseFile, Store
from nupa.cxl.media.pool_store import PoolStore
from nupa.cxl.site.fabric_ports import FabricWire, Follower
from nupa.cxl.site.publish import Publisher
from nupa.cxl.site.site import Site
from nupa.cxl.site.tenancy import keep_apart
from nupa.topology.topology import MEMORY_STEP_BYTES, MemoryConfig

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric
    from nupa.topology.topology import Topology

_log = logging.getLogger(__name__)
_STEP = MEMORY_STEP_BYTES


class FabricSite(Site):
    """The site of *fabric* with the devices *memory*, or those of *topology*.  By default it has a
    device of 256 MiB for each host, and a multi-logical device.  The latter has 256 MiB for each
    host, and 512 MiB of dynamic capacity.

    The ports of hosts and between switches are those of the fabric: both sides see each change.
    The memory of devices is in the fabric's pool if the pool has room for all of it.  Then the
    memory that hosts reach is published there.  Otherwise it is a file of this process alone."""

    def __init__(
        self,
        fabric: Fabric,
        topology: Topology | None,
        memory: Sequence[MemoryConfig] = (),
        *,
        vppbs: int = 4,
        spare_ports: int = 0,
    ) -> None:
        self._fabric = fabric
        self._publishers: list[Publisher] = []
        hosts = len(fabric.hosts)
        memory = (
            memory
            or (topology.memory if topology else ())
            or (
                *[MemoryConfig(_STEP)] * hosts,
                MemoryConfig(_STEP * hosts, logical=True, dynamic_bytes=2 * _STEP),
            )
        )
        several = [each for each in memory if each.logical]
        super().__init__(
            topology or hosts,
            [each.size_bytes for each in memory if not each.logical],
            [each.size_bytes for each in several],
            dynamic_bytes=[each.dynamic_bytes for each in several],
            vppbs=vppbs,
            spare_ports=spare_ports,
            store=self._store,
        )
        for virtual, host in zip(self.switch.virtual, fabric.hosts, strict=True):
            virtual.name = host.name
        keep_apart(self, fabric)
        self.on_host.append(self._publish)
        self._follower = Follower(fabric, self.lock, self._follow)
        self._follower.follow()

    @property
    def is_published(self) -> bool:
        """Whether other processes can map the memory that hosts reach."""
        return isinstance(self.store, PoolStore)

    def use(self) -> None:
        """Starts all hosts; each makes a region of each device that it gets, and of its dynamic
        capacity."""
        self.on_host.append(_use)
        self.on_change.append(_use)
        for number in range(len(self.hosts)):
            self.host(number)

    def follow(self) -> None:
        """Catches up with the fabric's ports."""
        self._follower.follow()

    def _follow(self) -> None:
        for port in self.switch.ports[: len(self.hosts)]:
            port.follow()
        if self.stack:
            self.stack.follow()

    def _settle(self) -> None:
        self.follow()
        self._fabric.await_links()

    def _wire(self, port: int) -> Wire:
        return FabricWire(self._fabric, port, self._settle)

    def _store(self, size: int) -> Store:
        try:
            return PoolStore(self._fabric, size)
        except (FabricError, LocalError):
            return SparseFile(size)

    def _publish(self, number: int, host: Host) -> None:
        if self.is_published:
            self._publishers.append(Publisher(self._fabric, number, host.bus))

    def close(self) -> None:
        """Ends the hosts' drivers, and revokes the published regions."""
        self._follower.close()
        with self.lock:
            while self._publishers:
                self._publishers.pop().close()
        super().close()


def _use(_number: int, host: Host) -> None:
    for device in host.devices:
        try:
            if device.used < device.capacity:
                host.create_region([device])
            has = {region.dynamic for region in host.regions if device in region.devices}
            for index, dynamic in enumerate(device.driver.regions if device.driver else ()):
                if dynamic not in has:
                    host.create_dynamic_region(device, index)
        except RegionError as error:
            _log.warning("%s is not used: %s", device.name, error)
