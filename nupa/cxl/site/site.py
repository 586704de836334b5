# SPDX-License-Identifier: BSD-3-Clause
"""The switch of a fabric: a virtual switch for each host, and devices at its ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from nupa.base.closing import Closing
from nupa.cxl.device.expander import Expander
from nupa.cxl.device.mld import MOST_LDS, Mld
from nupa.cxl.fm.server.manager import Manager
from nupa.cxl.function import doe
from nupa.cxl.function.port import root_port
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.host import Host
from nupa.cxl.host.root import HostBridge, RootComplex
from nupa.cxl.link.wire import Wire
from nupa.cxl.media.cdat import TABLE_ACCESS, Cdat
from nupa.cxl.media.events import Log
from nupa.cxl.media.parts import PartedMedia, SparseFile, Store
from nupa.cxl.media.performance import switch_cdat
from nupa.cxl.site.site_capacity import WillingCapacity, halves
from nupa.cxl.switch.physical_port import Binding
from nupa.cxl.switch.stack import Stack
from nupa.cxl.switch.switch import Switch
from nupa.topology.topology import LinkConfig, Topology

_BRIDGE_BASE = 1 << 40  # above the windows of a host's memory map
_WINDOW_BASE = 1 << 36
_STEP = 256 << 20
_DEVICE_LINK = LinkConfig()


class Site(Closing):
    """A switch with *hosts* hosts, whose root complexes are `hosts`.

    The ports behind those of hosts have devices of *slds* bytes, then multi-logical devices of
    *mlds* bytes.  Each size is a multiple of 256 MiB.  Each multi-logical device has
    *dynamic_bytes* of dynamic capacity (a number, or one for each).  `devices` has them by port.

    With a *topology*, hosts are at the switches that it names; if there are several switches,
    requests pass them by `stack`.  Device n is at the switch of host n, modulo the number of hosts.
    Attribute tables have the speed of its links.  *store*(bytes) makes the memory of all devices.

    `lock` is held by every thread that changes or reads the model.

    SwitchError, MldError, DcdError, PbrError: more than there can be; ValueError: not a
    multiple."""

    def __init__(
        self,
        hosts: int | Topology,
        slds: Sequence[int] = (),
        mlds: Sequence[int] = (),
        *,
        dynamic_bytes: int | Sequence[int] = 0,
        vppbs: int = 4,
        spare_ports: int = 0,
        store: Callable[[int], Store] = SparseFile,
    ) -> None:
        topology = hosts if isinstance(hosts, Topology) else None
        count = len(topology.hosts) if topology else hosts if isinstance(hosts, int) else 0
        places = len(slds) + len(mlds) + spare_ports
        self.switch = Switch(hosts=count, downstream=places, vppbs=vppbs)
        self.manager = Manager(self.switch)
        self.lock = self.manager.lock
        self.stack: Stack | None = None
        self._links = [each.link for each in topology.hosts] if topology else [_DEVICE_LINK] * count
        if topology and len(topology.switches) > 1:
            nodes = [port.node for port in topology.ports[count : 2 * count]]
            places_at = [nodes[i % count] for i in range(places)]
            self.stack = Stack(topology, self.switch, places_at, self._wire)
        several = [dynamic_bytes] * len(mlds) if isinstance(dynamic_bytes, int) else dynamic_bytes
        dynamic = list(several)
        self.total_bytes = sum(slds) + sum(mlds) + sum(dynamic)
        self.store = store(max(self.total_bytes, _STEP))
        self.devices: dict[int, Expander | Mld] = {}
        self._running: dict[int, Host] = {}
        #: Called with each host whose driver starts, and after changes of its devices or capacity.
        self.on_host: list[Callable[[int, Host], None]] = []
        self.on_change: list[Callable[[int, Host], None]] = []
        for number, size in enumerate(slds, count):
            media = PartedMedia.of(self.store.take(size), size)
            link = self._links[(number - count) % count]
            sld = Expander(media, link, serial=number, name=f"sld{number}")
            self.switch.port(number).insert(sld.function)
            self.devices[number] = sld
        for number, (size, more) in enumerate(zip(mlds, dynamic, strict=True), count + len(slds)):
            mld = self._mld(number, size, more)
            self.switch.port(number).insert(mld)
            self.devices[number] = mld
        self.hosts = [self._host(number) for number in range(count)]

    def _mld(self, number: int, size: int, dynamic_bytes: int) -> Mld:
        memory = self.store.take(size + dynamic_bytes)
        link = self._links[(number - len(self._links)) % len(self._links)]
        dynamic = None
        if dynamic_bytes:
            dynamic = WillingCapacity(memory, halves(size, dynamic_bytes), hosts=MOST_LDS)
        mld = Mld(
            size, serial=number, name=f"mld{number}", link=link, memory=memory, dynamic=dynamic
        )
        if dynamic:
            dynamic.listens = lambda ld: mld.logical[ld].memory.is_heard(Log.DYNAMIC_CAPACITY)
        return mld

    def _host(self, number: int) -> RootComplex:
        bridge = HostBridge(number, 0, _BRIDGE_BASE, ports=1)
        bridge.below[0] = root = root_port(0)
        self.switch.port(number).wire = self._wire(number)
        self.switch.connect(number, root)
        upstream = self.switch.vcs(number).upstream
        answer = partial(self.speeds, number)
        doe.attach(upstream.config, {TABLE_ACCESS: lambda payload: answer().answer(payload)})
        return RootComplex(bridge, lock=self.lock)

    def _wire(self, _port: int) -> Wire:
        """Returns the link at a port, by its number in the topology, where the port of a host has
        the host's number."""
        return Wire()

    def speeds(self, number: int) -> Cdat:
        """Returns the attribute table of a virtual switch, by the links of its bound ports."""
        virtual = self.switch.vcs(number)
        links = dict.fromkeys(range(len(virtual.vppbs)), _DEVICE_LINK)
        trunks = {}
        for vppb, binding in virtual.bindings.items():
            links[vppb] = self.link(binding.port.number)
            if self.stack and binding.between() is not None:
                trunks[vppb] = self.stack.passage(number, binding.port.number).links
        return switch_cdat(self._links[number], links, trunks=trunks)

    def link(self, port: int) -> LinkConfig:
        """Returns the link of a physical port."""
        return self._links[port % len(self._links)]

    # Hosts and bindings

    def bind(self, host: int, vppb: int, port: int, ld: int | None = None) -> Binding:
        """Binds at once, as by the fabric manager's command.  SwitchError: as there."""
        with self.lock:
            binding = self.switch.bind(host, vppb, port, ld)
            binding.finish()
            return binding

    def windows(self, number: int) -> list[FixedWindow]:
        """Returns the fixed memory windows of a host, with room for all devices."""
        return [FixedWindow(_WINDOW_BASE, 2 * max(self.total_bytes, _STEP), (number,))]

    def host(self, number: int) -> Host:
        """Returns host *number* with its driver running; the first call enumerates.  IndexError: no
        such host."""
        with self.lock:
            if number not in self._running:
                self._running[number] = Host(
                    self.hosts[number], self.windows(number), changed=partial(self._changed, number)
                )
                for handler in self.on_host:
                    handler(number, self._running[number])
            return self._running[number]

    def _changed(self, number: int) -> None:
        if number in self._running:  # not during enumeration
            for handler in self.on_change:
                handler(number, self._running[number])

    def close(self) -> None:
        """Ends the hosts' drivers."""
        with self.lock:
            while self._running:
                self._running.popitem()[1].close()
            if isinstance(self.store, Closing):
                self.store.close()
