# SPDX-License-Identifier: BSD-3-Clause
"""A physical port of a switch, and the binding of a vPPB to it or to a logical device behind it.

CXL 3.1 7.2, 7.6.7.1.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.device.mld import Mld
from nupa.cxl.function.port import Port, downstream_port, note_surprise, upstream_port
from nupa.cxl.link.wire import Wire
from nupa.cxl.registers.pcie_tables import PcieLink
from nupa.cxl.switch.vppb import Seen, SwitchError, Vppb

Device = Type3 | Mld


class PortState(IntEnum):
    """Current Port Configuration State (CXL 3.1 7.6.7.1.2)."""

    DISABLED = 0
    BINDING = 1
    UNBINDING = 2
    DOWNSTREAM = 3
    UPSTREAM = 4
    FABRIC = 5
    INVALID = 0xF


class BindingStatus(IntEnum):
    """CXL 3.1 7.6.7.2.1."""

    UNBOUND = 0
    IN_PROGRESS = 1
    PORT = 2
    LD = 3


class ErrorMessage(IntEnum):
    """An error message of a multi-logical device (CXL 3.1 7.6.8.3)."""

    CORRECTABLE = 0
    NON_FATAL = 1
    FATAL = 2


class UnbindMode(IntEnum):
    """The time at which a binding ends (CXL 3.1 7.6.7.2.3)."""

    LINK_DOWN = 0
    MANAGED = 1
    SURPRISE = 2


class PhysicalPort:
    """Port *number* of a switch; `ppb` is its bridge as the fabric manager sees it.

    `bound` has its bindings by LD-ID; by None if the port is bound as a whole."""

    def __init__(self, number: int, state: PortState, link: PcieLink | None = None) -> None:
        make = upstream_port if state is PortState.UPSTREAM else downstream_port
        self.number = number
        self.role = state
        self.link = link or PcieLink()
        self.ppb: Port = make(number=number, link=link)
        self.device: Device | None = None
        self.bound: dict[int | None, Binding] = {}
        self.in_reset = False  # PERST is asserted
        self.wire = Wire()
        self.host: Port | None = None
        self._was_up = False
        self._downs = 0  # of the wire
        self._flaps = False  # it is down for a moment
        #: Called after its link or its device has changed, and with each error message.
        self.watchers: list[Callable[[PhysicalPort], None]] = []
        self.error_watchers: list[Callable[[PhysicalPort, ErrorMessage, bytes], None]] = []

    @property
    def state(self) -> PortState:
        for binding in self.bound.values():
            if binding.unbinding is not None:
                return PortState.UNBINDING
            if not binding.done:
                return PortState.BINDING
        return self.role

    @property
    def present(self) -> bool:
        return self.device is not None or self.host is not None

    @property
    def up(self) -> bool:
        """Whether its link is up."""
        return self.present and not self.in_reset and not self._flaps and self.wire.up

    def plug(self, host: Port | None) -> None:
        """Plugs the root port of a host into an upstream port, or pulls it out."""
        self.host = host
        self._changed()

    def insert(self, device: Device) -> None:
        """Plugs a device in.  SwitchError: the port has a device, is a host's, or is bound as the
        device cannot be: as a whole, or to LDs without memory."""
        if self.role is not PortState.DOWNSTREAM or self.device is not None:
            raise SwitchError(f"port {self.number} has no room for {device.name}")
        shown: set[int | None] = {None}
        if isinstance(device, Mld):
            shown = {*device.usable}
        if not self.bound.keys() <= shown:
            raise SwitchError(f"port {self.number} is bound as {device.name} cannot be: unbind it")
        self.device = device
        if isinstance(device, Mld):
            device.on_error = self._error_message
        self._changed()

    def remove(self) -> Device:
        """Pulls the device out, also while it is in use; its LDs are unbound (7.6.6.8).
        SwitchError: there is none."""
        if self.device is None:
            raise SwitchError(f"port {self.number} is empty")
        device, self.device = self.device, None
        if isinstance(device, Mld):
            device.on_error = lambda _fatal: None
            for binding in tuple(self.bound.values()):
                binding.drop()
        self._changed(surprise=True)
        device.reset()  # without power
        return device

    def set_link(self, up: bool) -> None:
        """Takes the link down, or up, for both sides; that of a host may be a port of a fabric.
        RemoteError: as by `Fabric.set_port`."""
        self.wire.set(up)
        self._follow()
        self._changed(surprise=True)
        self.wire.settle()

    def follow(self) -> None:
        """Catches up with the link, which others may have set."""
        self._follow()
        if self.up != self._was_up:
            self._changed(surprise=True)

    def _follow(self) -> None:
        """Shows a link that was down since the last look as down for a moment."""
        downs, self._downs = self._downs, self.wire.downs
        if downs != self._downs and self._was_up and self.up:
            self._flaps = True
            self._changed(surprise=True)
            self._flaps = False

    def assert_reset(self, asserted: bool) -> None:
        """Asserts or deassert PERST.  SwitchError as for `reset`."""
        self._check_control()
        self.in_reset = asserted
        self._changed()

    def reset(self) -> None:
        """Hot-resets the device.  SwitchError: it is bound, so only its host may reset it."""
        self._check_control()
        if self.device is not None:
            self.device.reset(hot=True)

    def _error_message(self, fatal: bool) -> None:
        """Sends an error message to the root complex (PCIe 6.0 2.2.8.3): its first bytes."""
        if self.up:
            error = ErrorMessage.FATAL if fatal else ErrorMessage.NON_FATAL
            self.receive_error(error, bytes([0x30, 0, 0, 0, 0, 0, 0, 0x33 if fatal else 0x31]))

    def receive_error(self, error: ErrorMessage, message: bytes = b"") -> None:
        """Reports an error message of the multi-logical device here, which begins with *message*.
        SwitchError: there is no such device with its link up."""
        if not isinstance(self.device, Mld) or not self.up:
            raise SwitchError(f"port {self.number} has no multi-logical device with its link up")
        for watcher in self.error_watchers:
            watcher(self, error, message)

    def _check_control(self) -> None:
        if self.role is not PortState.DOWNSTREAM or None in self.bound:
            raise SwitchError(
                f"port {self.number} is bound, so only its host may reset it: unbind it first"
            )

    def _changed(self, *, surprise: bool = False) -> None:
        if surprise and self._was_up and not self.up:
            note_surprise(self.ppb)
        self._was_up = self.up
        if self.role is PortState.DOWNSTREAM:
            self.ppb.config["pcie"].preset("slot_status.presence", int(self.present))
            self.ppb.config["pcie"].preset("link_status.active", int(self.up))
        if isinstance(self.device, Mld) and not self.up:
            self.device.reset(hot=True)
        for binding in tuple(self.bound.values()):
            binding.vppb.refresh(surprise=surprise)
            binding.settle()
        for watcher in self.watchers:
            watcher(self)


class Binding:
    """The binding of one vPPB to a port, or to an LD of it.

    It is `done` once `finish` was called; `unbinding` is the mode in which it is to end; `over`
    once it has ended."""

    def __init__(self, vppb: Vppb, port: PhysicalPort, ld: int | None) -> None:
        self.vppb = vppb
        self.port = port
        self.ld = ld
        self.done = False
        self.over = False
        self.unbinding: UnbindMode | None = None
        self._ended: Callable[[], None] = lambda: None
        #: The ports on the way from the virtual switch to the port; None: there is no way.
        self.between: Callable[[], tuple[Port, ...] | None] = tuple
        #: Set by the virtual switch; called when it is done, and when it is over (failed or not).
        self.shown: Callable[[], None] = lambda: None
        self.forget: Callable[[bool], None] = lambda _failed: None

    def seen(self) -> Seen:
        device, up = self.port.device, self.port.up and self.between() is not None
        if isinstance(device, Mld):
            return Seen(device.lds[self.ld] if self.ld is not None else None, up)
        return Seen(device, up)

    def finish(self) -> None:
        """Shows the binding to the host, unless it is over."""
        if self.over:
            return
        self.done = True
        self.vppb.show(self.seen, self.settle, self.between)
        self.shown()

    def unbind(self, mode: UnbindMode, ended: Callable[[], None]) -> None:
        """Ends the binding as *mode* says; then calls *ended*."""
        self.unbinding, self._ended = mode, ended
        if mode is UnbindMode.MANAGED and self.vppb.asks_host:
            self.vppb.press_attention()
        self.settle()

    def settle(self) -> None:
        """Ends the binding if the condition of its mode holds."""
        if self.unbinding is None:
            return
        waits = {
            UnbindMode.LINK_DOWN: self.port.up,
            UnbindMode.MANAGED: self.vppb.asks_host and not self.vppb.powered_off,
            UnbindMode.SURPRISE: False,
        }
        if not waits[self.unbinding]:
            surprise = self.unbinding is UnbindMode.SURPRISE
            self.unbinding = None
            self._end(surprise)

    def drop(self) -> None:
        """Ends the binding at once, as its port or LD has gone."""
        self.unbinding = None
        self._end(surprise=True)

    def _end(self, surprise: bool) -> None:
        del self.port.bound[self.ld]
        self.over = True
        if self.done:
            self.vppb.hide(surprise=surprise)
        self.forget(not self.done)
        self._ended()
