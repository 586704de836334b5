# SPDX-License-Identifier: BSD-3-Clause
"""A host of a fabric, as Fabric.host() returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nupa.core.segment import HostInfo

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric
    from nupa.memory.region import Region
    from nupa.memory.window import Window


class FabricHost(HostInfo):
    """A HostInfo with its fabric, so that it can map regions."""

    fabric: Fabric

    @classmethod
    def of(cls, fabric: Fabric, host: HostInfo) -> FabricHost:
        found = cls(*host)
        found.fabric = fabric
        return found

    def map(self, region: Region, **options: Any) -> Window:
        """Maps a region as this host sees it; *options* are Window's.

        LocalError: the host does not share it (EACCES), or it is gone (ESTALE).
        """
        from nupa.memory.window import Window

        return Window(self.fabric, self, region, **options)
