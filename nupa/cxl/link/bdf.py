# SPDX-License-Identifier: BSD-3-Clause
"""The number of a PCI function: bus, device, function (PCIe 6.0 2.2.6.2)."""

from __future__ import annotations

from typing import NamedTuple


class Bdf(NamedTuple):
    """Bus, device and function: the target of a configuration request."""

    bus: int
    device: int = 0
    function: int = 0

    @property
    def devfn(self) -> int:
        return self.device << 3 | self.function

    def __str__(self) -> str:
        return f"{self.bus:02x}:{self.device:02x}.{self.function:x}"
