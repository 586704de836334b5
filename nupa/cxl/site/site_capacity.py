# SPDX-License-Identifier: BSD-3-Clause
"""Dynamic capacity of a device at a site, where hosts may have no driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from nupa.cxl.function.cci import require
from nupa.cxl.media.dcd import DynamicCapacity, Policy
from nupa.cxl.media.extents import NO_TAG, DcRegion, Extent
from nupa.cxl.media.media import Media


class WillingCapacity(DynamicCapacity):
    """Dynamic capacity that answers for hosts without a driver (*listens*(host): whether there is
    one): they accept offers, and release what they are asked for.  A driver answers by itself.

    CommandError: the site has an *objection* to a host's having a tag."""

    def __init__(
        self,
        media: Media,
        regions: Sequence[DcRegion],
        *,
        hosts: int,
        listens: Callable[[int], bool] = lambda _host: False,
    ) -> None:
        super().__init__(media, regions, hosts=hosts)
        self.listens = listens
        #: Tells why a host may not have capacity of a tag; empty: it may.
        self.objection: Callable[[int, UUID], str] = lambda _host, _tag: ""

    def add(
        self,
        number: int,
        index: int,
        size: int = 0,
        *,
        tag: UUID = NO_TAG,
        policy: Policy = Policy.FREE,
        extents: Sequence[tuple[int, int]] = (),
    ) -> list[Extent]:
        why = self.objection(number, tag) if tag != NO_TAG else ""
        require(not why, why=why)
        offer = super().add(number, index, size, tag=tag, policy=policy, extents=extents)
        if not self.listens(number):
            self.accept(number, _places(offer))
        return offer

    def ask_back(self, number: int, extents: Sequence[tuple[int, int]] | UUID) -> list[Extent]:
        wanted = super().ask_back(number, extents)
        if not self.listens(number):
            self.release(number, _places(wanted))
        return wanted


def halves(first: int, size: int) -> list[DcRegion]:
    """Makes two regions from *first* on, of half of *size* each; the second is shareable.
    DcdError: *size* is not a multiple of 512 MiB."""
    half = size // 2
    return [
        DcRegion(first, half, dsmad_handle=1),
        DcRegion(first + half, size - half, shareable=True, dsmad_handle=2),
    ]


def _places(extents: Sequence[Extent]) -> list[tuple[int, int]]:
    return [(extent.dpa, extent.size) for extent in extents]
