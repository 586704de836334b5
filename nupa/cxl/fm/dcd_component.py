# SPDX-License-Identifier: BSD-3-Clause
"""Commands that manage a device's dynamic capacity: who is offered what, and who gives it back.

Knows CXL 3.1 7.6.7.6 (56xxh); never who holds what (nupa/cxl/dcd.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from nupa.cxl.cci import Code, Command, Effect, at_least, exactly, require
from nupa.cxl.dcd import DynamicCapacity, Policy
from nupa.cxl.extents import BLOCK_BYTES_MIN, DECODE_BYTES, REGIONS_MAX, Region
from nupa.cxl.fm import dcd_messages as layout
from nupa.cxl.fm.dcd_messages import DcdOpcode
from nupa.cxl.fm.messages import PAYLOAD_BYTES

_MOST_BLOCK_BITS = 52
_OVERHEAD_BYTES = 256  # of an answer within an answer: heads, and a tunnel's


class DcdComponent:
    """Of one device's *capacity*; its hosts are that device's logical devices."""

    def __init__(self, capacity: DynamicCapacity) -> None:
        self._capacity = capacity

    def commands(self) -> Iterator[Command]:
        changes = Effect.CONFIG | Effect.DATA
        lists = at_least(layout.CHANGE.size, layout.EXTENT.size)
        regions, extents = layout.REGIONS_REQUEST.size, layout.EXTENTS_REQUEST.size
        one = exactly(layout.SET_REGION.size)
        yield Command(DcdOpcode.INFO, "DCD info", exactly(0), self._info)
        yield Command(DcdOpcode.REGIONS, "DC regions", exactly(regions), self._regions)
        yield Command(DcdOpcode.SET_REGION, "set DC region", one, self._set_region, changes)
        yield Command(DcdOpcode.EXTENTS, "DC extents", exactly(extents), self._extents)
        yield Command(DcdOpcode.ADD, "add dynamic capacity", lists, self._add, changes)
        yield Command(DcdOpcode.RELEASE, "release dynamic capacity", lists, self._release, changes)

    def _info(self, _payload: bytes) -> bytes:
        capacity = self._capacity
        head = layout.InfoHead(
            len(capacity.hosts),
            len(capacity.regions),
            layout.POLICIES,
            layout.REMOVALS,
            (1 << len(capacity.regions)) - 1,
            sum(region.size for region in capacity.regions) // DECODE_BYTES,
        )
        masks = [_block_sizes(region) for region in capacity.regions]
        masks += [0] * (REGIONS_MAX - len(masks))
        return layout.INFO.pack(head) + b"".join(mask.to_bytes(8, "little") for mask in masks)

    def _regions(self, payload: bytes) -> bytes:
        request = layout.REGIONS_REQUEST.unpack(payload)
        capacity = self._capacity
        capacity.host(request.host)
        require(request.first < len(capacity.regions))
        listed = capacity.regions[request.first :][: request.most]
        records = (
            layout.RegionRecord(
                region.dpa,
                -(-region.size // DECODE_BYTES),
                region.size,
                region.block_bytes,
                layout.SHAREABLE * region.shareable,
                region.sanitize,
            )
            for region in listed
        )
        head = layout.RegionsHead(request.host, len(capacity.regions), len(listed))
        limits = layout.Limits(
            capacity.extents_max, capacity.extents_left, capacity.tags_max, capacity.tags_left
        )
        rows = b"".join(layout.REGION.pack(record) for record in records)
        return layout.REGIONS.pack(head) + rows + layout.LIMITS.pack(limits)

    def _set_region(self, payload: bytes) -> bytes:
        request = layout.SET_REGION.unpack(payload)
        sanitize = bool(request.sanitize & 1)
        self._capacity.configure(request.region, request.block_bytes, sanitize=sanitize)
        return b""

    def _extents(self, payload: bytes) -> bytes:
        request = layout.EXTENTS_REQUEST.unpack(payload)
        host = self._capacity.host(request.host)
        require(request.first <= len(host.accepted))
        room = (PAYLOAD_BYTES - _OVERHEAD_BYTES) // layout.EXTENT.size
        listed = host.accepted[request.first :][: min(request.most, room)]
        head = layout.ExtentsHead(
            request.host,
            request.first,
            len(listed),
            len(host.accepted),
            host.generation & 0xFFFFFFFF,
        )
        records = (
            layout.ExtentRecord(dpa, size, tag.bytes, sequence)
            for dpa, size, tag, sequence in listed
        )
        return layout.EXTENTS.pack(head) + b"".join(map(layout.EXTENT.pack, records))

    def _add(self, payload: bytes) -> bytes:
        request, extents = _change(payload)
        policy = request.flags & 0xF
        require(policy in list(Policy))
        require(not extents or policy == Policy.PRESCRIPTIVE)
        self._capacity.add(
            request.host,
            request.region,
            request.size,
            tag=UUID(bytes=request.tag),
            policy=Policy(policy),
            extents=extents,
        )
        return b""

    def _release(self, payload: bytes) -> bytes:
        request, extents = _change(payload)
        removal = request.flags & 0xF
        require(removal in (layout.BY_TAG, layout.BY_LIST))
        require(bool(extents) == (removal == layout.BY_LIST))
        regions = self._capacity.regions
        require(request.region < len(regions))
        # Whether it is cleared is a region's, not a request's.
        cleared = not request.flags & layout.SANITIZE or regions[request.region].sanitize
        require(cleared, Code.UNSUPPORTED)
        take = (
            self._capacity.force_back if request.flags & layout.FORCED else self._capacity.ask_back
        )
        take(request.host, extents or UUID(bytes=request.tag))
        return b""


def _change(payload: bytes) -> tuple[layout.Change, list[tuple[int, int]]]:
    request = layout.CHANGE.unpack(payload)
    records = layout.EXTENT.unpack_all(payload, layout.CHANGE.size)
    require(request.listed == len(records), Code.INVALID_PAYLOAD_LENGTH)
    return request, [(record.dpa, record.size) for record in records]


def _block_sizes(region: Region) -> int:
    """A bit for each power of two that the region has a whole number of."""
    most = min(_MOST_BLOCK_BITS, (region.size & -region.size).bit_length())
    return sum(1 << bit for bit in range(BLOCK_BYTES_MIN.bit_length() - 1, most))
