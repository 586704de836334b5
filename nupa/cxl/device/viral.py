# SPDX-License-Identifier: BSD-3-Clause
"""A device that fails: its error registers, and viral, which contains the error until a reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nupa.cxl.registers.block import Registers

if TYPE_CHECKING:
    from nupa.cxl.device.endpoint import Type3

_INTERNAL_RAS = 14  # 8.2.4.17.1, Device-specific/internal error
_INTERNAL_AER = 22  # PCIe 6.0 7.8.4.2


class Viral:
    """The viral state of *device*.  While it is `active`, the host takes no data of the device and
    gives it none."""

    def __init__(self, device: Type3) -> None:
        self._device = device
        self._changed: list[Callable[[], None]] = []
        self._heard: list[Callable[[bool], None]] = []
        self.active = False

    def fail(self) -> None:
        """Fails with an internal uncorrected error.  If software has enabled Viral (8.1.3.2), no
        wrong data leaves the device; otherwise only the RAS registers show the error."""
        device = self._device
        report(device.component["ras"], "internal", _INTERNAL_RAS)
        aer = device.config["aer"]
        if not aer["uncorrectable_status.internal"]:
            aer["uncorrectable_status.internal"] = 1
            aer["control.first_error"] = _INTERNAL_AER
        self._send_message()
        if device.config["device"]["control.viral_enable"]:
            device.config["device"]["status.viral"] = 1
            self._set(True)

    def _send_message(self) -> None:
        """Sends an error message, unless it is masked or not enabled (PCIe 6.0 6.2.4)."""
        config = self._device.config
        fatal = bool(config["aer"]["uncorrectable_severity.internal"])
        kind = "fatal" if fatal else "non_fatal"
        wanted = config["pcie"][f"device_control.{kind}_reporting"]
        if wanted and not config["aer"]["uncorrectable_mask.internal"]:
            for handler in self._heard:
                handler(fatal)

    def on_message(self, handler: Callable[[bool], None]) -> None:
        """Calls *handler* with each error message that is sent: true for ERR_FATAL, false for
        ERR_NONFATAL."""
        self._heard.append(handler)

    def on_change(self, handler: Callable[[], None]) -> None:
        """Calls *handler* after `active` has changed."""
        self._changed.append(handler)

    def end(self) -> None:
        """Ends viral, as a conventional reset does (12.4); CXL and function level resets do not.
        The status bit is sticky."""
        self._set(False)

    def _set(self, active: bool) -> None:
        if active != self.active:
            self.active = active
            for handler in self._changed:
                handler()


def report(ras: Registers, name: str, bit: int) -> None:
    """Sets an uncorrected error, and names its bit if it is the first (8.2.4.17.1, 8.2.4.17.6)."""
    first = not any(ras[field] for field in ras.fields if field.startswith("uncorrectable_status."))
    ras[f"uncorrectable_status.{name}"] = 1
    if first:
        ras["control.first_error"] = bit
