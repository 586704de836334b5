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
    """What a switch does not do: no such port, bound already, out of range.  Nothing changed."""


class Severity(IntEnum):
    """CXL 3.1 7.6.7.2.4, of an error that is to be reported.  Whether an uncorrectable one is fatal
    is for the host to say (PCIe 6.0 7.8.4.4)."""

    CORRECTABLE = 0
    UNCORRECTABLE = 1


class VppbChange(IntEnum):
    """CXL 3.1 7.6.8.2: of what the fabric manager is told."""

    BINDING = 0
    SECONDARY_BUS_RESET = 1
    LINK_CONTROL = 2
    SLOT_CONTROL = 3


class Seen(NamedTuple):
    """What a port shows to who is bound to it: what is plugged in, and whether its link is up."""

    function: Function | None = None
    up: bool = False


class Vppb(Port):
    """*number* is its device number on the switch's bus, its slot, and its number as a target."""

    def __init__(self, number: int, *, name: str) -> None:
        self._seen: Callable[[], Seen] | None = None
        self._shown = Seen()
        self._controlled: Callable[[], None] = lambda: None
        self._between: Callable[[], tuple[Port, ...] | None] = tuple
        #: Called with what its host has changed.
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
        """Bound to what *seen* tells, over the ports *between*; *controlled* is called once
        software has set slot or link."""
        self._seen, self._controlled, self._between = seen, controlled, between
        self.refresh()

    def between(self) -> tuple[Port, ...] | None:
        return self._between()

    def reroute(self) -> None:
        """The way to what is bound here has changed, and may be none now."""
        self.refresh(surprise=True)
        self._below_changed()

    def hide(self, *, surprise: bool = False) -> None:
        """Bound to nothing."""
        self._seen, self._controlled, self._between = None, lambda: None, tuple
        self.refresh(surprise=surprise)

    def refresh(self, *, surprise: bool = False) -> None:
        """Look again.  A link that goes down resets what is below (PCIe 6.0 6.6.1); *surprise*: not
        as anybody asked for."""
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
        """Ask the host to let go of what is in the slot (PCIe 6.0 6.7.1.5)."""
        self.tell(["attention_button"])

    @property
    def asks_host(self) -> bool:
        """Whether somebody hears the attention button: its event, and interrupts, are enabled."""
        pcie = self.config["pcie"]
        return bool(
            pcie["slot_control.attention_button_enable"] and pcie["slot_control.interrupt_enable"]
        )

    @property
    def powered_off(self) -> bool:
        return bool(self.config["pcie"]["slot_control.power_off"])

    def reset(self, *, hot: bool = False, cxl: bool = False) -> None:
        super().reset(hot=hot, cxl=cxl)
        self.refresh()  # what disabled its link no longer does

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
    """Set an error of a port's AER, as if a device had reported it; of one that is masked nothing
    but its status (PCIe 6.0 6.2.3.2.2).  SwitchError: no such error."""
    aer = port.config["aer"]
    kind = "uncorrectable" if severity is Severity.UNCORRECTABLE else "correctable"
    at = 0x04 if severity is Severity.UNCORRECTABLE else 0x10
    for name, row in aer.fields.items():
        if name.startswith(f"{kind}_status.") and row.low == at * 8 + bit:
            break
    else:
        raise SwitchError(f"{kind} error {bit}: there is no such one (PCIe 6.0 7.8.4)")
    aer[name] = 1
    if severity is Severity.UNCORRECTABLE and not aer[name.replace("_status.", "_mask.")]:
        aer["control.first_error"] = bit
        aer["header_log"] = header
