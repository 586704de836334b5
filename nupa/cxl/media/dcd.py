# SPDX-License-Identifier: BSD-3-Clause
"""Dynamic capacity: regions, and extents that hosts are offered, accept, share and release.

CXL 3.1 9.13.3 and 8.2.9.9.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from uuid import UUID

from nupa.cxl.function.cci import Code, CommandError, require
from nupa.cxl.media.events import DcEventType
from nupa.cxl.media.extents import (
    NO_TAG,
    REGIONS_MAX,
    DcdError,
    DcRegion,
    Extent,
    around,
    check_apart,
    without,
)
from nupa.cxl.media.host_capacity import HostCapacity
from nupa.cxl.media.media import Media


class Policy(IntEnum):
    """The selection policy of extents (7.6.7.6.5)."""

    FREE = 0
    CONTIGUOUS = 1
    PRESCRIPTIVE = 2
    SHARED = 3


class DynamicCapacity:
    """The dynamic capacity of a device: *regions* by DPA, for *hosts* hosts; `hosts[n]` is the
    state of host n.

    Every extent that a host has or is offered counts against *extents_max*, and every tag against
    *tags_max*.  `watchers`(change, host, extents) are called when a host has answered an offer, or
    has released extents: events of the fabric manager.

    All methods raise CommandError before they change anything."""

    def __init__(
        self,
        media: Media,
        regions: Iterable[DcRegion],
        *,
        hosts: int = 1,
        extents_max: int = 512,
        tags_max: int = 128,
    ) -> None:
        self.regions = list(regions)
        self.hosts = [HostCapacity(number) for number in range(hosts)]
        self.extents_max = extents_max
        self.tags_max = tags_max
        self.watchers: list[Callable[[DcEventType, int, Sequence[Extent]], None]] = []
        #: Extents of shared tags to which the fabric manager holds a reference (7.6.7.6.7).
        self.references: dict[UUID, list[Extent]] = {}
        self.generation = 0  # grows when a tag, or one of its hosts, changes
        self._media = media
        if not 1 <= len(self.regions) <= REGIONS_MAX:
            raise DcdError(f"{len(self.regions)} regions: choose 1 to {REGIONS_MAX}")
        end = 0
        for region in self.regions:
            region.check()
            if region.dpa < end or region.end > media.size:
                raise DcdError(
                    f"a region of {region.size:#x} bytes at {region.dpa:#x} overlaps another, or "
                    "the end of the memory"
                )
            end = region.end

    # Regions and free capacity

    def region_of(self, dpa: int, size: int) -> int:
        """Returns the region of these bytes.  CommandError: there is none, or they are not whole
        blocks."""
        for index, region in enumerate(self.regions):
            if region.dpa <= dpa and dpa + size <= region.end and size > 0:
                whole = dpa % region.block_bytes == 0 and size % region.block_bytes == 0
                why = f"{size:#x} bytes at {dpa:#x}, not blocks of {region.block_bytes:#x}"
                require(whole, Code.INVALID_EXTENT_LIST, why)
                return index
        raise CommandError(
            Code.INVALID_PHYSICAL_ADDRESS, f"no region has {size:#x} bytes at {dpa:#x}"
        )

    def free(self, index: int) -> list[tuple[int, int]]:
        """Returns the free parts of a region: (dpa, size), in order."""
        region, found = self.regions[index], []
        at = region.dpa
        for extent in sorted(set(self._held())):
            if region.dpa <= extent.dpa < region.end:
                if extent.dpa > at:
                    found.append((at, extent.dpa - at))
                at = max(at, extent.end)
        if at < region.end:
            found.append((at, region.end - at))
        return found

    @property
    def extents_left(self) -> int:
        return self.extents_max - sum(1 for host in self.hosts for _ in host.held())

    @property
    def tags_left(self) -> int:
        return self.tags_max - len(self._tags())

    def _held(self) -> Iterator[Extent]:
        for host in self.hosts:
            yield from host.held()
        for extents in self.references.values():
            yield from extents

    def _tags(self) -> set[UUID]:
        return {extent.tag for extent in self._held()} - {NO_TAG}

    def host(self, number: int) -> HostCapacity:
        """Returns the state of a host.  CommandError: there is no such host."""
        there = 0 <= number < len(self.hosts)
        require(there, why=f"host {number}: the device has {len(self.hosts)}, from 0 on")
        return self.hosts[number]

    def _check_region(self, index: int) -> None:
        there = 0 <= index < len(self.regions)
        require(there, why=f"region {index}: the device has {len(self.regions)}, from 0 on")

    # Operations of the fabric manager

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
        """Offers capacity of region *index* to a host (7.6.7.6.5), which has it once it accepts.

        FREE: *size* bytes.  CONTIGUOUS: *size* bytes in one piece.  PRESCRIPTIVE: *extents* (dpa,
        size).  SHARED: another host's extents of *tag*."""
        host = self.host(number)
        self._check_region(index)
        region = self.regions[index]
        if policy is Policy.SHARED:
            offer = self._shared(host, index, tag)
        else:
            if region.shareable:
                require(tag != NO_TAG, why=f"name a tag: hosts can share extents of region {index}")
                require(tag not in self._tags(), why=f"tag {tag} is in use")
            pieces = self._select(index, size, policy, extents)
            offer = [
                Extent(dpa, length, tag, sequence if region.shareable else 0)
                for sequence, (dpa, length) in enumerate(pieces, 1)
            ]
        require(len(offer) <= self.extents_left, Code.RESOURCES_EXHAUSTED, "no extent is left")
        is_new = tag != NO_TAG and tag not in self._tags()
        require(not is_new or self.tags_left, Code.RESOURCES_EXHAUSTED, "no tag is left")
        host.offers.append(offer)  # first: a driver may answer during `tell`
        try:
            host.tell(DcEventType.ADD, [(index, extent) for extent in offer])
        except CommandError:
            host.offers.remove(offer)
            raise
        self.generation += 1
        return list(offer)

    def _shared(self, host: HostCapacity, index: int, tag: UUID) -> list[Extent]:
        region = self.regions[index]
        require(region.shareable, why=f"hosts cannot share extents of region {index}")
        require(tag != NO_TAG, why="name the tag whose extents are to be shared")
        mine = any(extent.tag == tag for extent in host.held())
        require(not mine, why=f"host {host.number} has tag {tag} already")
        offer = sorted({extent for extent in self._held() if extent.tag == tag}, key=_in_sequence)
        inside = bool(offer) and all(region.dpa <= extent.dpa < region.end for extent in offer)
        require(inside, why=f"no host has tag {tag} of region {index}")
        return offer

    def _select(
        self, index: int, size: int, policy: Policy, extents: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        free = self.free(index)
        if policy is Policy.PRESCRIPTIVE:
            require(extents, Code.INVALID_EXTENT_LIST, "no extents")
            self._check_list(index, extents)
            for dpa, length in extents:
                is_free = any(at <= dpa and dpa + length <= at + room for at, room in free)
                require(is_free, Code.INVALID_EXTENT_LIST, f"{dpa:#x} is in use")
            return list(extents)
        block = self.regions[index].block_bytes
        require(size > 0 and size % block == 0, why=f"{size:#x} bytes, not blocks of {block:#x}")
        fits = [(at, size) for at, room in free if room >= size]
        if policy is Policy.CONTIGUOUS or fits:
            why = f"region {index} has no {size:#x} free bytes in one piece"
            require(fits, Code.RESOURCES_EXHAUSTED, why)
            return fits[:1]
        left = sum(room for _, room in free)
        why = f"{size:#x} bytes, and {left:#x} of region {index} are free"
        require(left >= size, Code.RESOURCES_EXHAUSTED, why)
        found = []
        for at, room in free:
            part = min(room, size)
            if part:
                found.append((at, part))
            size -= part
        return found

    def _check_list(self, index: int, extents: Sequence[tuple[int, int]]) -> None:
        """Checks that all are in one region, and that none overlap."""
        for dpa, size in extents:
            same = self.region_of(dpa, size) == index
            require(same, Code.INVALID_EXTENT_LIST, f"{dpa:#x} is not in region {index}")
        check_apart(extents)

    def ask_back(self, number: int, extents: Sequence[tuple[int, int]] | UUID) -> list[Extent]:
        """Asks a host to release *extents*, or all extents of a tag (7.6.7.6.6).  It has them until
        it does."""
        host, wanted = self._to_release(number, extents)
        host.tell(DcEventType.RELEASE, self._placed(wanted))
        return wanted

    def force_back(self, number: int, extents: Sequence[tuple[int, int]] | UUID) -> list[Extent]:
        """Takes extents at once, and notifies the host afterwards.  An offer with any of them is
        dead: the host can only refuse it (9.13.3.3)."""
        host, wanted = self._to_release(number, extents, forced=True)
        accepted = [extent for extent in wanted if not host.is_offered(extent)]
        host.offers = [
            [] if any(extent in offer for extent in wanted) else offer for offer in host.offers
        ]
        self._take(host, accepted)
        host.tell(DcEventType.FORCED_RELEASE, self._placed(accepted), may_overflow=True)
        return wanted

    def _placed(self, extents: Sequence[Extent]) -> list[tuple[int, Extent]]:
        return [(self.region_of(extent.dpa, extent.size), extent) for extent in extents]

    def _to_release(
        self, number: int, extents: Sequence[tuple[int, int]] | UUID, *, forced: bool = False
    ) -> tuple[HostCapacity, list[Extent]]:
        """Selects extents to release (7.6.7.6.6); offered ones only if *forced*, and then as a
        whole."""
        host = self.host(number)
        has = list(host.held()) if forced else host.accepted
        if isinstance(extents, UUID):
            wanted = [extent for extent in has if extent.tag == extents]
            require(wanted, why=f"host {number} has no tag {extents}")
            return host, wanted
        require(extents, Code.INVALID_EXTENT_LIST, "no extents")
        check_apart(extents)
        wanted = []
        for dpa, size in extents:
            self.region_of(dpa, size)
            there = next((each for each in host.held() if each.has(dpa, size)), None)
            require(
                there is not None, Code.INVALID_EXTENT_LIST, f"{dpa:#x} does not belong to the host"
            )
            assert there is not None
            offered = host.is_offered(there)
            require(forced or not offered, Code.INVALID_PHYSICAL_ADDRESS, f"{dpa:#x} is offered")
            wanted.append(there if offered else there._replace(dpa=dpa, size=size))
        for shared in {extent.tag for extent in wanted if extent.sequence}:
            whole = {extent for extent in has if extent.tag == shared} <= set(wanted)
            require(whole, why=f"this is a part of what is shared as {shared}: release all of it")
        return host, wanted

    def drop(self, number: int) -> None:
        """Frees all that a host has, as the host is gone."""
        host = self.host(number)
        host.offers, lost = [], host.accepted
        self._take(host, list(lost))

    def configure(self, index: int, block_bytes: int, *, sanitize: bool) -> None:
        """Changes a region of which no host has an extent (7.6.7.6.3), and notifies its hosts."""
        self._check_region(index)
        region = replace(self.regions[index], block_bytes=block_bytes, sanitize=sanitize)
        whole = self.free(index) == [(region.dpa, region.size)]
        require(whole, Code.UNSUPPORTED, f"region {index} is in use")
        try:
            region.check()
        except DcdError as error:
            raise CommandError(Code.INVALID_INPUT, str(error)) from error
        self.regions[index] = region
        for host in self.hosts:
            host.tell(DcEventType.REGION_UPDATED, [(index, Extent(0, 0))], may_overflow=True)

    # Operations of a host

    def accept(self, number: int, extents: Sequence[tuple[int, int]]) -> None:
        """Answers the oldest offer: accepts *extents* of it, or refuses it with none.  The rest
        becomes free.  A shared tag is accepted as a whole or not at all.  Dead offers before it are
        forgotten."""
        host = self.host(number)
        require(host.offers, why="nothing is offered")
        alive = (n for n, offer in enumerate(host.offers) if offer)
        answered = next(alive, 0) if extents else 0
        offer = host.offers[answered]
        check_apart(extents)
        taken = []
        for dpa, size in extents:
            self.region_of(dpa, size)
            found = around(offer, dpa, size)
            taken.append(found._replace(dpa=dpa, size=size))
        if taken and offer[0].sequence:
            require(
                sorted(taken) == sorted(offer),
                Code.INVALID_EXTENT_LIST,
                "a shared tag is accepted as a whole",
            )
            taken = offer
        more = len(taken) - len(offer)
        left = self.extents_left
        require(more <= left, Code.RESOURCES_EXHAUSTED, f"{more} more extents, and {left} are left")
        del host.offers[: answered + 1]
        self.generation += 1
        if taken:
            host.set_accepted(host.accepted + taken)
        self._tell(DcEventType.ANSWERED, number, taken)

    def release(self, number: int, extents: Sequence[tuple[int, int]]) -> None:
        """Releases *extents*, or parts of extents that the host does not share."""
        host = self.host(number)
        require(extents, why="no extents")
        released = self._within(host, extents)
        left = self.extents_left
        require(
            len(without(host.accepted, released)) <= len(host.accepted) + left,
            Code.RESOURCES_EXHAUSTED,
            "what is left has too many parts",
        )
        self._take(host, released)
        self._tell(DcEventType.RELEASED, number, released)

    def _tell(self, change: DcEventType, number: int, extents: Sequence[Extent]) -> None:
        for watcher in self.watchers:
            watcher(change, number, extents)

    def _within(self, host: HostCapacity, extents: Sequence[tuple[int, int]]) -> list[Extent]:
        """Returns each as a part of an accepted extent."""
        check_apart(extents)
        found = []
        for dpa, size in extents:
            self.region_of(dpa, size)
            whole_one = around(host.accepted, dpa, size)
            whole = not whole_one.sequence or whole_one[:2] == (dpa, size)
            require(whole, Code.INVALID_EXTENT_LIST, f"{dpa:#x}: a part of a shared extent")
            found.append(whole_one._replace(dpa=dpa, size=size))
        return found

    def _take(self, host: HostCapacity, gone: Sequence[Extent]) -> None:
        if gone:
            host.set_accepted(without(host.accepted, gone))
        self.free_up(gone)

    def free_up(self, gone: Sequence[Extent]) -> None:
        """Frees extents; sanitize the bytes that no host holds."""
        self.generation += 1
        for extent in gone:
            region = self.regions[self.region_of(extent.dpa, extent.size)]
            is_held = any(
                other.dpa < extent.end and extent.dpa < other.end for other in self._held()
            )
            if region.sanitize and not is_held:
                self._media.clear(extent.dpa, extent.size)


def _in_sequence(extent: Extent) -> int:
    return extent.sequence
