# SPDX-License-Identifier: BSD-3-Clause
"""A virtual PCI-to-PCI bridge: the downstream port of a virtual switch, as its host sees it.

CXL 3.1 7.2, PCIe 6.0 6.7.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.cxl.function.function import Function
from nupa.cxl.function.port import Port, note_surprise
from nupa.cxl.registers import component_tables as tables
from nupa.cxl.registers.pcie_tables import PortType


class SwitchError(LocalError):
    """An operation that the switch refuses: no such port, bound already, out of range.  Nothing has
    changed."""


class Severity(IntEnum):
    """The severity of a reported error (CXL 3.1 7.6.7.2.4).  The host decides whether an
    uncorrectable error is fatal (PCIe 6.0 7.8.4.4)."""

    CORRECTABLE = 0
    UNCORRECTABLE = 1


class VppbChange(IntEnum):
    """A change of a vPPB that is reported to the fabric manager (CXL 3.1 7.6.8.2)."""

    BINDING = 0
    SECONDARY_BUS_RESET = 1
    LINK_CONTROL = 2
    SLOT_CONTROL = 3


class Seen(NamedTuple):
    """The view of a port from its vPPB: the function that is plugged in, and whether its link is
    up."""

    function: Function | None = None
    up: bool = False


class Vppb(Port):
    """A vPPB; *number* is its device number on the switch's bus, its slot, and its number as a
    target."""

    def __init__(self, number: int, *, name: str) -> None:
        self._seen: Callable[[], Seen] | None = None
        self._shown = Seen()
        self._controlled: Callable[[], None] = lambda: None
        self._between: Callable[[], tuple[Port, ...] | None] = tuple
        #: Called with each change that its host makes.
        self.watchers: list[Callable[[VppbChange], None]] = []
        super().__init__(
            PortType.DOWNSTREAM,
            (tables.ras(), tables.link(), tables.bi_decoder(explicit_commit=True)),
            number=number,
            slot=number,
            name=name,
        )
        self.config["pcie"].on_write("link_control.disable", self._link_control)
        self.config["pcie"].on_write("slot_control.power_off", self._slot_control)

    def show(
        self,
        seen: Callable[[], Seen],
        controlled: Callable[[], None],
        between: Callable[[], tuple[Port, ...] | None] = tuple,
    ) -> None:
        """Binds to what *seen* returns, over the ports *between*; *controlled* is called after
        software has written slot or link control."""
        self._seen, self._controlled, self._between = seen, controlled, between
        self.refresh()

    def between(self) -> tuple[Port, ...] | None:
        return self._between()

    def reroute(self) -> None:
        """Follows a change of the way to the bound port; there may be none."""
        self.refresh(surprise=True)
        self._below_changed()

    def hide(self, *, surprise: bool = False) -> None:
        """Unbinds."""
        self._seen, self._controlled, self._between = None, lambda: None, tuple
        self.refresh(surprise=surprise)

    def refresh(self, *, surprise: bool = False) -> None:
        """Updates presence, link and the bus below.  A link that goes down resets the function
        below (PCIe 6.0 6.6.1); *surprise*: without a request."""
        pcie = self.config["pcie"]
        seen = self._seen() if self._seen else Seen()
        up = seen.up and not self.link_disabled and not self.powered_off
        events = []
        if (seen.function is None) != (self._shown.function is None):
            pcie.preset("slot_status.presence", int(seen.function is not None))
            events.append("presence_changed")
        elif seen.function is not self._shown.function:
            events.append("presence_changed")
        lost = self.below.get(0)
        if lost is not None and not (up and lost is seen.function):
            del self.below[0]
            lost.reset(hot=True)
            if surprise:
                note_surprise(self)
        if seen.function is not None and up:
            self.below[0] = seen.function
        if self.below.get(0) is not lost:
            self._below_changed()
        if bool(self.below) != bool(self._shown.up):
            pcie.preset("link_status.active", int(bool(self.below)))
            events.append("link_state_changed")
        self._shown = Seen(seen.function, bool(self.below))
        self.tell(events)

    def press_attention(self) -> None:
        """Asks the host to release the device in the slot (PCIe 6.0 6.7.1.5)."""
        self.tell(["attention_button"])

    @property
    def asks_host(self) -> bool:
        """Whether the host listens: the attention button's event, and interrupts, are enabled."""
        pcie = self.config["pcie"]
        return bool(
            pcie["slot_control.attention_button_enable"] and pcie["slot_control.interrupt_enable"]
        )

    @property
    def powered_off(self) -> bool:
        return bool(self.config["pcie"]["slot_control.power_off"])

    def reset(self, *, hot: bool = False, cxl: bool = False) -> None:
        super().reset(hot=hot, cxl=cxl)
        self.refresh()  # Link Disable is cleared

    def _link_control(self, written: int, old: int) -> None:
        self._control(VppbChange.LINK_CONTROL, written != old)

    def _slot_control(self, written: int, old: int) -> None:
        self._control(VppbChange.SLOT_CONTROL, written != old)

    def _control(self, change: VppbChange, is_new: bool) -> None:
        self.refresh()
        self._controlled()
        if is_new:
            self._changed_by_host(change)

    def _secondary_bus_reset(self, written: int, old: int) -> None:
        super()._secondary_bus_reset(written, old)
        if written and not old and self.may_reset_below:
            self._changed_by_host(VppbChange.SECONDARY_BUS_RESET)

    def _changed_by_host(self, change: VppbChange) -> None:
        for watcher in self.watchers:
            watcher(change)


def report(port: Port, bit: int, severity: Severity, header: int) -> None:
    """Sets an error of a port's AER, as if a device had reported it; a masked error sets only its
    status (PCIe 6.0 6.2.3.2.2).  SwitchError: no such error."""
    aer = port.config["aer"]
    kind = "uncorrectable" if severity is Severity.UNCORRECTABLE else "correctable"
    at = 0x04 if severity is Severity.UNCORRECTABLE else 0x10
    for name, row in aer.fields.items():
        if name.startswith(f"{kind}_status.") and row.low == at * 8 + bit:
            break
    else:
        raise SwitchError(f"{kind} error {bit} is not defined (PCIe 6.0 7.8.4)")
    aer[name] = 1
    if severity is Severity.UNCORRECTABLE and not aer[name.replace("_status.", "_mask.")]:
        aer["control.first_error"] = bit
        aer["header_log"] = header
