# SPDX-License-Identifier: BSD-3-Clause
"""CXL memory that hosts reach, published as regions of the fabric's pool for other processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from nupa.base.errors import NupaError, RemoteError
from nupa.cxl.host.bus import Bus
from nupa.cxl.host.window import runs_of
from nupa.cxl.media.pool_store import PoolStore

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric
    from nupa.memory.region import Region

_log = logging.getLogger(__name__)
_MOST_PIECES = 16  # csrc/region/region.h


class _Row(NamedTuple):
    """*size* bytes at *hpa* of a host, in turns of *granularity* bytes at offsets of the pool."""

    hpa: int
    size: int
    pieces: tuple[int, ...]
    granularity: int


class Publisher:
    """The publisher of host *number*: a region for each decoded range of its addresses, and for
    each extent of dynamic capacity.  The tag is the host's name and the address,
    "host0:0x1000000000".  Regions that are no longer reached are revoked before `sync` returns."""

    def __init__(self, fabric: Fabric, number: int, bus: Bus) -> None:
        self._fabric = fabric
        self._number = number
        self._bus = bus
        self._name = fabric.hosts[number].name
        self._regions: dict[_Row, Region] = {}
        bus.on_refresh.append(self.sync)
        self.sync()

    def sync(self) -> None:
        wanted = set(self._rows())
        for row in self._regions.keys() - wanted:
            # A stopped process keeps its mappings until it continues.
            with suppress(RemoteError):
                self._regions.pop(row).free(force=True)
        for row in wanted - self._regions.keys():
            tag = f"{self._name}:{row.hpa:#x}"
            try:
                self._regions[row] = self._fabric.pool.publish(
                    row.pieces, row.size, tag, host=self._number, granularity=row.granularity
                )
            except NupaError as error:  # its host can still use the memory
                _log.warning("%s is not published, until the next change: %s", tag, error)

    def close(self) -> None:
        """Revokes all regions."""
        with suppress(ValueError):
            self._bus.on_refresh.remove(self.sync)
        for region in self._regions.values():
            with suppress(RemoteError):
                region.free(force=True)
        self._regions.clear()

    def _rows(self) -> Iterator[_Row]:
        for first, end, _route in self._bus.map.pieces():
            found = runs_of(self._bus, first, end - first)
            if found is None:
                continue
            for hpa, size, granularity, runs in found:
                ours = all(isinstance(run.memory.store, PoolStore) for run in runs)
                if ours and 0 < len(runs) <= _MOST_PIECES:
                    pieces = tuple(run.memory.base + run.offset for run in runs)
                    yield _Row(hpa, size, pieces, granularity if len(runs) > 1 else 0)
