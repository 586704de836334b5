# SPDX-License-Identifier: BSD-3-Clause
"""A slot of a downstream port, as a hot plug driver runs it (PCIe 6.0 6.7)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nupa.cxl.host.enumerate import FoundFunction
from nupa.cxl.host.root import RootComplex
from nupa.cxl.link.bdf import Bdf
from nupa.cxl.registers.config import walk
from nupa.cxl.registers.pcie_tables import PCIE_ID

_CONTROL, _STATUS = 0x18, 0x1A
_ATTENTION, _PRESENCE_CHANGED, _PRESENT, _LINK_CHANGED = 1 << 0, 1 << 3, 1 << 6, 1 << 8
_EVENTS = _ATTENTION | _PRESENCE_CHANGED | _LINK_CHANGED
_POWER_OFF = 1 << 10
#: 7.5.3.10: events of button, presence and link, and interrupts for them.
_ENABLES = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 12
_NO_DEVICE = 0xFFFFFFFF


class Slot:
    """The slot of *port*.

    *plugged* is called when a device answers there.  *unplugged* is called when the device no
    longer answers, or when its host is asked to release it.  Then the slot is powered off."""

    def __init__(
        self,
        root: RootComplex,
        port: FoundFunction,
        plugged: Callable[[], None],
        unplugged: Callable[[], None],
    ) -> None:
        self._root = root
        self.port = port
        self._plugged = plugged
        self._unplugged = unplugged
        self._read = partial(root.config_read, port.bdf)
        self._at = next(at for at, number in walk(self._read) if number == PCIE_ID)

    def begin(self) -> None:
        """Enables the events of the slot."""
        self._root.listen(self.port.bdf, lambda _address, _data: self._look())
        self._control(_ENABLES)

    def end(self) -> None:
        """Disables the events of the slot."""
        self._control(0)
        self._root.listen(self.port.bdf, lambda _address, _data: None)

    def _control(self, enables: int) -> None:
        kept = self._read(self._at + _CONTROL, 2) & ~_ENABLES
        self._root.config_write(self.port.bdf, self._at + _CONTROL, 2, kept | enables)

    def _look(self) -> None:
        status = self._read(self._at + _STATUS, 2)
        self._root.config_write(self.port.bdf, self._at + _STATUS, 2, status & _EVENTS)
        if status & _ATTENTION:
            if self.port.below:
                self._unplugged()
            self._set_power(on=False)
            return
        bus = self._read(0x19, 1)
        answers = self._root.config_read(Bdf(bus), 0, 4) != _NO_DEVICE
        # A device that was reset or replaced has memory space disabled (7.5.1.1.3).
        same = answers and bool(self._root.config_read(Bdf(bus), 4, 2) & 1 << 1)
        if self.port.below and not same:
            self._unplugged()
        if answers and not self.port.below:
            self._plugged()
        if not status & _PRESENT:
            self._set_power(on=True)

    def _set_power(self, *, on: bool) -> None:
        control = self._read(self._at + _CONTROL, 2)
        wanted = control & ~_POWER_OFF if on else control | _POWER_OFF
        if wanted != control:
            self._root.config_write(self.port.bdf, self._at + _CONTROL, 2, wanted)
