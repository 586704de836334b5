# SPDX-License-Identifier: BSD-3-Clause
"""Dynamic capacity from the manager's end: regions, extents, offers, releases and tags (56xxh)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from nupa.cxl.fm import dcd_messages as layout
from nupa.cxl.fm.dcd_messages import DcdOpcode
from nupa.cxl.media.dcd import Policy
from nupa.cxl.media.dcd_tags import TagInfo
from nupa.cxl.media.extents import DECODE_BYTES, NO_TAG, DcRegion, Extent

_MOST = 0xFF

#: tunnel(opcode, payload): the payload of the device's answer.
Tunnel = Callable[[int, bytes], bytes]


class DcdInfo(NamedTuple):
    """DCD info; *hosts* are numbered from 0 on, as the LDs of the device."""

    hosts: int
    regions: int
    total_bytes: int


class DcdClient:
    """The dynamic capacity of the device at the end of *tunnel*.  Methods raise CommandError."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel

    def info(self) -> DcdInfo:
        head = layout.INFO.unpack(self._tunnel(DcdOpcode.INFO, b""))
        return DcdInfo(head.hosts, head.regions, head.total_units * DECODE_BYTES)

    def regions(self, host: int = 0) -> tuple[list[DcRegion], layout.Limits]:
        """Returns all regions, and the limits of extents and tags."""
        request = layout.REGIONS_REQUEST.pack(layout.RegionsRequest(host, _MOST, 0))
        answer = self._tunnel(DcdOpcode.REGIONS, request)
        listed = layout.REGIONS.unpack(answer).listed
        rows = layout.REGION.unpack_all(answer, layout.REGIONS.size, listed)
        limits = layout.LIMITS.unpack(answer, layout.REGIONS.size + listed * layout.REGION.size)
        return [
            DcRegion(
                row.dpa,
                row.size,
                row.block_bytes,
                bool(row.flags & layout.SHAREABLE),
                bool(row.sanitize),
            )
            for row in rows
        ], limits

    def configure(self, region: int, block_bytes: int, *, sanitize: bool = False) -> None:
        """Changes a region of which no host has an extent."""
        request = layout.SetRegion(region, block_bytes, sanitize)
        self._tunnel(DcdOpcode.SET_REGION, layout.SET_REGION.pack(request))

    def extents(self, host: int) -> list[Extent]:
        """Returns the extents that a host has accepted."""
        found: list[Extent] = []
        while True:
            request = layout.ExtentsRequest(host, _MOST, len(found))
            answer = self._tunnel(DcdOpcode.EXTENTS, layout.EXTENTS_REQUEST.pack(request))
            head = layout.EXTENTS.unpack(answer)
            rows = layout.EXTENT.unpack_all(answer, layout.EXTENTS.size, head.listed)
            found += [Extent(dpa, size, UUID(bytes=tag), n) for dpa, size, tag, n in rows]
            if not rows or len(found) >= head.total:
                return found

    def add(
        self,
        host: int,
        region: int,
        size: int = 0,
        *,
        tag: UUID = NO_TAG,
        policy: Policy = Policy.FREE,
        extents: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Offers capacity to a host: `DynamicCapacity.add`."""
        self._change(DcdOpcode.ADD, host, policy, region, size, tag, extents)

    def release(
        self,
        host: int,
        what: Sequence[tuple[int, int]] | UUID,
        *,
        forced: bool = False,
        sanitize: bool = False,
    ) -> None:
        """Asks a host to release extents (dpa, size), or all extents of a tag; *forced*: takes
        them.  *sanitize*: refused unless the region sanitizes."""
        flags = layout.FORCED * forced | layout.SANITIZE * sanitize
        if isinstance(what, UUID):
            size = sum(extent.size for extent in self.extents(host) if extent.tag == what)
            self._change(DcdOpcode.RELEASE, host, flags | layout.BY_TAG, 0, size, what, ())
        else:
            self._change(DcdOpcode.RELEASE, host, flags | layout.BY_LIST, 0, 0, NO_TAG, what)

    def keep(self, tag: UUID) -> None:
        """Adds a reference to *tag*: its extents stay when the last host releases them."""
        self._tunnel(DcdOpcode.ADD_REFERENCE, tag.bytes)

    def let_go(self, tag: UUID) -> None:
        """Removes the reference to *tag*."""
        self._tunnel(DcdOpcode.REMOVE_REFERENCE, tag.bytes)

    def tags(self) -> list[TagInfo]:
        """Returns all tags, and the hosts of each."""
        found: list[TagInfo] = []
        while True:
            request = layout.TAGS_REQUEST.pack(layout.TagsRequest(len(found), _MOST))
            answer = self._tunnel(DcdOpcode.LIST_TAGS, request)
            head = layout.TAGS.unpack(answer)
            rows = layout.TAG.unpack_all(answer, layout.TAGS.size, head.listed)
            found += [
                TagInfo(UUID(bytes=tag), bool(kept), _numbers(accepted), _numbers(offered))
                for tag, kept, accepted, offered in rows
            ]
            if not rows or len(found) >= head.total:
                return found

    def _change(
        self,
        opcode: int,
        host: int,
        flags: int,
        region: int,
        size: int,
        tag: UUID,
        extents: Sequence[tuple[int, int]],
    ) -> None:
        head = layout.ChangeRequest(host, flags, region, size, tag.bytes, len(extents))
        rows = (layout.ExtentRecord(dpa, length, tag.bytes, 0) for dpa, length in extents)
        rest = b"".join(map(layout.EXTENT.pack, rows))
        self._tunnel(opcode, layout.CHANGE.pack(head) + rest)


def _numbers(bitmap: bytes) -> frozenset[int]:
    bits = int.from_bytes(bitmap, "little")
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)
