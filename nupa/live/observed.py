# SPDX-License-Identifier: BSD-3-Clause
# os.path: as in nupa.fabric.
"""A fabric that is looked at and not used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from nupa.core.segment import Segment
from nupa.fabric import Fabric, registry
from nupa.fabric.meant import meant_name, missing

if TYPE_CHECKING:
    from nupa.core.segment import SlotInfo


class Observed(Fabric):
    """An open fabric that counts no user and in which nothing is written.

    It does not keep an automatic fabric up, and `nupa down` needs no --force because of it.
    """

    @classmethod
    def open(cls, name: str | None = None) -> Self:
        """Opens the named fabric; None: as for Fabric.open().

        LocalError: no such fabric (ENOENT), or no permission; FabricError: it is damaged, or of
        another layout version.
        """
        with registry.control_lock():
            name = name or meant_name()
            path = registry.find(name)
            if not os.path.lexists(path):
                raise missing(name)
            segment = Segment.open(path)
        found = cls._of(segment)
        assert isinstance(found, cls)
        return found

    @property
    def gone(self) -> bool:
        """Whether the fabric was removed, or another one has its place."""
        here = os.fstat(self._segment.fd)
        try:
            there = os.lstat(self.path)
        except FileNotFoundError:
            return True
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)

    def processes(self) -> list[SlotInfo]:
        """Lists the attachments of living processes; leaves those of dead ones to others."""
        return [slot for slot in self._segment.slots() if slot.alive and slot.state != "reaping"]

    def close(self) -> None:
        self._segment.close()
