# SPDX-License-Identifier: BSD-3-Clause
"""A CXL switch: physical ports, virtual switches, and the rules of binding (CXL 3.1 7.1, 7.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from nupa.cxl.device.mld import Mld
from nupa.cxl.function.port import Port, upstream_port
from nupa.cxl.switch.physical_port import (
    Binding,
    BindingStatus,
    PhysicalPort,
    PortState,
    UnbindMode,
)
from nupa.cxl.switch.vppb import SwitchError, Vppb, VppbChange

MOST_PORTS = 255  # port numbers, and the number of ports, are bytes (7.6.7.1.1)
MOST_VPPBS = 32  # of one virtual switch: the device numbers of a bus


class VirtualSwitch:
    """A virtual switch of one host: `upstream`, behind port *usp*, and vPPBs below, numbered from 0
    on as devices on its bus."""

    def __init__(self, number: int, usp: PhysicalPort, vppbs: int, decoders: int) -> None:
        if not 1 <= vppbs <= MOST_VPPBS:
            raise SwitchError(f"{vppbs} vPPBs: a virtual switch has 1 to {MOST_VPPBS}")
        self.number = number
        #: Its host, in messages.
        self.name = f"host{number}"
        self.usp = usp
        self.upstream = upstream_port(number=usp.number, decoders=decoders)
        self.vppbs = [Vppb(i, name=f"vcs{number}.vppb{i}") for i in range(vppbs)]
        self.bindings: dict[int, Binding] = {}
        #: The secret value of its host (CXL 3.1 7.6.7.1.6).
        self.secret: UUID | None = None
        for i, vppb in enumerate(self.vppbs):
            self.upstream.attach(vppb, i << 3)

    def status(self, vppb: int) -> BindingStatus:
        """Returns the binding status of a vPPB.  SwitchError: there is no such vPPB."""
        self.vppb(vppb)
        binding = self.bindings.get(vppb)
        if binding is None:
            return BindingStatus.UNBOUND
        if not binding.done or binding.unbinding is not None:
            return BindingStatus.IN_PROGRESS
        return BindingStatus.PORT if binding.ld is None else BindingStatus.LD

    def vppb(self, number: int) -> Vppb:
        """Returns a vPPB.  SwitchError: there is none."""
        if not 0 <= number < len(self.vppbs):
            raise SwitchError(
                f"vPPB {number}: virtual switch {self.number} has {len(self.vppbs)}, from 0 on"
            )
        return self.vppbs[number]


class Switch:
    """A switch with *hosts* virtual switches of *vppbs* each; their upstream ports are the first
    physical ports, before *downstream* ports for devices.  SwitchError: more than a switch has."""

    def __init__(
        self, *, hosts: int = 2, downstream: int = 4, vppbs: int = 4, decoders: int = 4
    ) -> None:
        if hosts < 1 or downstream < 0 or hosts + downstream > MOST_PORTS:
            raise SwitchError(
                f"{hosts} + {downstream} ports: a switch has a host, and {MOST_PORTS} ports at most"
            )
        self.decoders = decoders
        roles = [PortState.UPSTREAM] * hosts + [PortState.DOWNSTREAM] * downstream
        self.ports = [PhysicalPort(number, role) for number, role in enumerate(roles)]
        #: between(upstream, downstream): the ports on the way from one physical port to
        #: another, of stacked switches (nupa/cxl/switch/stack.py); None: there is no way.
        self.between: Callable[[int, int], tuple[Port, ...] | None] = lambda _up, _down: ()
        #: objection(host, port, ld): why a host may not have a device or an LD; empty: it may.
        self.objection: Callable[[int, PhysicalPort, int | None], str] = lambda *_: ""
        #: watcher(vcs, vppb, change, failed): called after each change of a vPPB.
        self.watchers: list[Callable[[int, int, VppbChange, bool], None]] = []
        self.virtual = [
            VirtualSwitch(number, self.ports[number], vppbs, decoders) for number in range(hosts)
        ]
        for virtual in self.virtual:
            virtual.usp.watchers.append(partial(_train, virtual))
            for vppb in virtual.vppbs:
                vppb.watchers.append(partial(self._vppb_changed, virtual.number, vppb.number))

    def _vppb_changed(self, vcs: int, vppb: int, change: VppbChange) -> None:
        for watcher in self.watchers:
            watcher(vcs, vppb, change, False)

    def port(self, number: int) -> PhysicalPort:
        """Returns a physical port.  SwitchError: there is none."""
        if not 0 <= number < len(self.ports):
            raise SwitchError(f"port {number}: the switch has {len(self.ports)}, from 0 on")
        return self.ports[number]

    def vcs(self, number: int) -> VirtualSwitch:
        """Returns a virtual switch.  SwitchError: there is none."""
        if not 0 <= number < len(self.virtual):
            raise SwitchError(
                f"virtual switch {number}: the switch has {len(self.virtual)}, from 0 on"
            )
        return self.virtual[number]

    def mld(self, port: int) -> Mld:
        """Returns the multi-logical device at a port.  SwitchError: there is none, or its link is
        down."""
        there = self.port(port)
        if not isinstance(there.device, Mld) or not there.up:
            raise SwitchError(f"port {port} has no multi-logical device with its link up")
        return there.device

    def connect(self, vcs: int, root: Port) -> None:
        """Plugs the upstream port of a virtual switch into a host.  SwitchError: it is in one."""
        virtual = self.vcs(vcs)
        if virtual.usp.host is not None:
            raise SwitchError(f"virtual switch {vcs} is connected to {virtual.usp.host.name}")
        root.attach(virtual.upstream)
        root.config["pcie"].on_write("link_control.disable", partial(_disable, virtual, root))
        virtual.usp.plug(root)

    def disconnect(self, vcs: int) -> None:
        """Pulls the upstream port out of its host, which resets all below.  SwitchError: it is in
        none."""
        virtual = self.vcs(vcs)
        if virtual.usp.host is None:
            raise SwitchError(f"virtual switch {vcs} is connected to no host")
        root = virtual.usp.host
        if not virtual.usp.up:
            root.below[0] = virtual.upstream
        root.detach()
        virtual.usp.plug(None)
        virtual.upstream.reset(hot=True)

    def bind(self, vcs: int, vppb: int, port: int, ld: int | None = None) -> Binding:
        """Reserves a binding of a vPPB to a port, or to an LD of its device (CXL 3.1 7.6.7.2.2).
        `finish` shows it to the host.  SwitchError: one of them is not there or is bound, or *ld*
        does not fit the device: only devices with LDs are bound by LD."""
        virtual = self.vcs(vcs)
        shown = virtual.vppb(vppb)
        if vppb in virtual.bindings:
            there = virtual.bindings[vppb].port
            raise SwitchError(
                f"vPPB {vppb} of {virtual.name} is already bound, to port {there.number}: "
                "unbind it first"
            )
        there = self.port(port)
        if there.role is not PortState.DOWNSTREAM:
            raise SwitchError(
                f"port {port} is an upstream port: only a downstream port can be bound"
            )
        if isinstance(there.device, Mld):
            if ld is None:
                raise SwitchError(f"port {port} has a multi-logical device: name one of its LDs")
            if there.device.check(ld) not in there.device.usable:
                raise SwitchError(f"LD {ld} at port {port} has no memory: allocate some first")
        elif ld is not None:
            raise SwitchError(f"port {port} has no multi-logical device: it is bound as a whole")
        why = self.objection(virtual.usp.number, there, ld)
        if why:
            raise SwitchError(f"{virtual.name} cannot have port {port}: {why}")
        if ld in there.bound or None in there.bound:
            what = f"port {port}" if ld is None else f"LD {ld} at port {port}"
            raise SwitchError(f"{what} is already bound to {self._holder(there, ld)}")
        binding = Binding(shown, there, ld)
        binding.shown = partial(self._tell, vcs, vppb)
        binding.forget = partial(self._forget, vcs, vppb)
        binding.between = lambda: self.between(virtual.usp.number, port)
        there.bound[ld] = virtual.bindings[vppb] = binding
        return binding

    def _holder(self, port: PhysicalPort, ld: int | None) -> str:
        """Returns the place to which a port or an LD is bound, in words."""
        bound = port.bound[ld if ld in port.bound else None]
        vcs, vppb = next((vcs, vppb) for vcs, vppb, each in self.bindings if each is bound)
        return f"{self.vcs(vcs).name}, as its vPPB {vppb}"

    def unbind(
        self,
        vcs: int,
        vppb: int,
        mode: UnbindMode = UnbindMode.SURPRISE,
        ended: Callable[[], None] = lambda: None,
    ) -> Binding:
        """Ends a binding when *mode* says; *ended* is called then, perhaps at once (7.6.7.2.3).
        SwitchError: it is not bound, or is being bound or unbound."""
        virtual = self.vcs(vcs)
        if virtual.status(vppb) not in (BindingStatus.PORT, BindingStatus.LD):
            status = virtual.status(vppb).name.lower().replace("_", " ")
            raise SwitchError(f"vPPB {vppb} of {virtual.name} is not bound: it is {status}")
        binding = virtual.bindings[vppb]
        binding.unbind(mode, ended)
        return binding

    def cancel(self, binding: Binding) -> None:
        """Undoes a binding that is not complete; keeps one that was to be unbound."""
        if binding.over:
            return
        if not binding.done:
            binding.drop()
            return
        binding.unbinding = None
        for vcs, vppb, other in self.bindings:
            if other is binding:
                self._tell(vcs, vppb, failed=True)

    def _forget(self, vcs: int, vppb: int, failed: bool) -> None:
        del self.vcs(vcs).bindings[vppb]
        self._tell(vcs, vppb, failed=failed)

    def _tell(self, vcs: int, vppb: int, *, failed: bool = False) -> None:
        for watcher in self.watchers:
            watcher(vcs, vppb, VppbChange.BINDING, failed)

    def allocate(self, port: int, first: int, steps: Sequence[int]) -> None:
        """Allocates memory to LDs *first*… of the device at *port*: `Mld.allocate`.  SwitchError:
        the memory of a bound LD would change, or no such device.  MldError as there."""
        mld = self.mld(port)
        for number, count in enumerate(steps, first):
            bound = number in self.port(port).bound
            if bound and number < len(mld.lds) and mld.allocated[number] != count:
                raise SwitchError(f"LD {number} at port {port} is bound: unbind it first")
        mld.allocate(first, steps)

    @property
    def bindings(self) -> list[tuple[int, int, Binding]]:
        """All bindings, with the numbers of virtual switch and vPPB."""
        return [
            (virtual.number, vppb, binding)
            for virtual in self.virtual
            for vppb, binding in sorted(virtual.bindings.items())
        ]


def _train(virtual: VirtualSwitch, usp: PhysicalPort) -> None:
    """Shows the state of the upstream port's link to its host."""
    root = usp.host
    if root is None or (virtual.upstream is root.below.get(0)) == usp.up:
        return
    if usp.up:
        root.config["pcie"]["link_control.disable"] = 0  # also if the host took it down
    root.train(virtual.upstream, up=usp.up)


def _disable(virtual: VirtualSwitch, root: Port, _written: int, _old: int) -> None:
    """Follows Link Disable, which the host has set or cleared (PCIe 6.0 7.5.3.7)."""
    if virtual.usp.host is root and virtual.usp.wire.up == root.link_disabled:
        virtual.usp.set_link(not root.link_disabled)
