# SPDX-License-Identifier: BSD-3-Clause
"""A virtual PCI-to-PCI bridge: the downstream port of a virtual switch, as its host sees it.

Knows what its slot and link tell the host of what is bound to it; never which ports there are nor
who may bind (nupa/cxl/switch.py).  CXL 3.1 7.2, PCIe 6.0 6.7.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from nupa.cxl import component_tables as tables
from nupa.cxl.function import Function
from nupa.cxl.pcie_tables import PortType
from nupa.cxl.port import Port
from nupa.fabric.errors import LocalError


class SwitchError(LocalError):
    """What a switch does not do: no such port, bound already, out of range.  Nothing changed."""


class Severity(IntEnum):
    """CXL 3.1 7.6.7.2.4, of an error that is to be reported."""

    CORRECTABLE = 0
    NON_FATAL = 1
    FATAL = 2


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
        #: Called with this vPPB for each event that software has enabled (PCIe 6.0 6.7.3.4).
        self.interrupts: list[Callable[[Vppb], None]] = []
        super().__init__(
            PortType.DOWNSTREAM,
            (tables.ras(), tables.link(), tables.bi_decoder(explicit_commit=True)),
            number=number,
            slot=number,
            name=name,
        )
        for field in ("link_control.disable", "slot_control.power_off"):
            self.config["pcie"].on_write(field, self._control)

    def show(self, seen: Callable[[], Seen], controlled: Callable[[], None]) -> None:
        """Bound to what *seen* tells; *controlled* is called once software has set slot or link."""
        self._seen, self._controlled = seen, controlled
        self.refresh()

    def hide(self, *, surprise: bool = False) -> None:
        """Bound to nothing."""
        self._seen, self._controlled = None, lambda: None
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
                self.config["aer"]["uncorrectable_status.surprise_down"] = 1
        if seen.function is not None and up:
            self.below[0] = seen.function
        if self.below.get(0) is not lost:
            self._below_changed()
        if bool(self.below) != bool(self._shown.up):
            pcie.preset("link_status.active", int(bool(self.below)))
            events.append("link_state_changed")
        self._shown = Seen(seen.function, bool(self.below))
        self._tell(events)

    def press_attention(self) -> None:
        """Ask the host to let go of what is in the slot (PCIe 6.0 6.7.1.5)."""
        self._tell(["attention_button"])

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

    @property
    def link_disabled(self) -> bool:
        """CXL 3.1 8.1.5.2: Link Disable is masked until software says otherwise."""
        unmasked = self.config["port_extensions"]["control.unmask_link_disable"]
        return bool(unmasked and self.config["pcie"]["link_control.disable"])

    def report(self, bit: int, severity: Severity, header: int) -> None:
        """Set an error of AER, as if a device had reported it.  SwitchError: no such error."""
        aer = self.config["aer"]
        correctable = severity is Severity.CORRECTABLE
        kind, at = ("correctable_status.", 0x10) if correctable else ("uncorrectable_status.", 0x04)
        for name, row in aer.fields.items():
            if name.startswith(kind) and row.low == at * 8 + bit:
                aer[name] = 1
                break
        else:
            raise SwitchError(f"{kind}{bit}: there is no such error (PCIe 6.0 7.8.4)")
        if not correctable:
            aer["control.first_error"] = bit
            aer["header_log"] = header

    def reset(self, *, hot: bool = False, cxl: bool = False) -> None:
        super().reset(hot=hot, cxl=cxl)
        self.refresh()  # what disabled its link no longer does

    def _control(self, _written: int, _old: int) -> None:
        self.refresh()
        self._controlled()

    def _tell(self, events: list[str]) -> None:
        pcie = self.config["pcie"]
        heard = False
        for event in events:
            pcie[f"slot_status.{event}"] = 1
            enable = event.replace("_changed", "") if event == "link_state_changed" else event
            heard |= bool(pcie[f"slot_control.{enable}_enable"])
        if heard and pcie["slot_control.interrupt_enable"]:
            for interrupt in self.interrupts:
                interrupt(self)
