# SPDX-License-Identifier: BSD-3-Clause
"""Host bias and device bias of the pages of a type 2 device's memory (CXL 3.1 2.2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from nupa.base.errors import LocalError
from nupa.cxl.cache.states import TransitionError

PAGE_BYTES = 4096


class Bias(Enum):
    """The bias of a page.  HOST: the device asks the host before it uses the page.  DEVICE: no host
    caches a line of it, and the device uses it without asking."""

    HOST = "host"
    DEVICE = "device"


#: The caches that must not have lines of a page when it changes to a bias.
BLOCKED_BY: Mapping[Bias, str] = {Bias.DEVICE: "hosts'", Bias.HOST: "the device's"}


class BiasTable:
    """The bias of each page of *size* bytes; at first all are in host bias (2.2.1.1)."""

    def __init__(self, size: int, page_bytes: int = PAGE_BYTES) -> None:
        self.size = size
        self.page_bytes = page_bytes
        self._device: set[int] = set()
        self.flips = 0

    def __getitem__(self, dpa: int) -> Bias:
        return Bias.DEVICE if self.page(dpa) in self._device else Bias.HOST

    def page(self, dpa: int) -> int:
        """Returns the number of the page of *dpa*.  LocalError: it is outside the memory."""
        if not 0 <= dpa < self.size:
            raise LocalError(f"{dpa:#x}: the device's memory has {self.size:#x} bytes")
        return dpa // self.page_bytes

    def flip(self, dpa: int, to: Bias, cached: int) -> None:
        """Changes the bias of a page to *to*; *cached* lines of it are in caches of the other side.

        TransitionError: *cached* is not 0; those lines have to be written back or dropped first."""
        page = self.page(dpa)
        if self[dpa] is to:
            return
        if cached:
            raise TransitionError(
                f"page {page} to {to.value} bias: {BLOCKED_BY[to]} caches have {cached} lines of it"
            )
        self._device.symmetric_difference_update({page})
        self.flips += 1

    def reset(self) -> None:
        """Puts all pages into host bias."""
        self._device.clear()
