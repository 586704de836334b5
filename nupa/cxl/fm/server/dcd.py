# SPDX-License-Identifier: BSD-3-Clause
"""Commands that manage a device's dynamic capacity: offers and releases (CXL 3.1 7.6.7.6,
56xxh)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from nupa.cxl.fm import dcd_messages as layout
from nupa.cxl.fm.dcd_messages import DcdOpcode
from nupa.cxl.fm.messages import PAYLOAD_BYTES, bitmap
from nupa.cxl.function.cci import Code, Command, Effect, at_least, exactly, require
from nupa.cxl.media.dcd import DynamicCapacity, Policy
from nupa.cxl.media.dcd_tags import keep, let_go, tags
from nupa.cxl.media.extents import BLOCK_BYTES_MIN, DECODE_BYTES, REGIONS_MAX, DcRegion

_MOST_BLOCK_BITS = 52
_OVERHEAD_BYTES = 256  # of an answer within an answer: heads, and a tunnel's


class DcdComponent:
    """Commands of one device's *capacity*; its hosts are that device's logical devices."""

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
        tag, config = exactly(layout.TAG_BYTES), Effect.CONFIG
        yield Command(DcdOpcode.ADD_REFERENCE, "DC add reference", tag, self._keep, config)
        yield Command(DcdOpcode.REMOVE_REFERENCE, "DC remove reference", tag, self._let_go, changes)
        tags = exactly(layout.TAGS_REQUEST.size)
        yield Command(DcdOpcode.LIST_TAGS, "DC list tags", tags, self._tags)

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
        inside = request.first < len(capacity.regions)
        require(inside, why=f"region {request.first}: there are {len(capacity.regions)}, from 0 on")
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
        inside = request.first <= len(host.accepted)
        require(inside, why=f"extent {request.first}: host {request.host} has {len(host.accepted)}")
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
        request, extents, tags = _change(payload)
        capacity, region, tag = self._capacity, request.region, UUID(bytes=request.tag)
        policy = request.flags & 0xF
        require(policy in list(Policy), why=f"policy {policy}: choose 0 to {max(Policy)}")
        if policy == Policy.PRESCRIPTIVE:
            require(len(tags) == 1, Code.INVALID_EXTENT_LIST, "its extents have more than one tag")
            region, tag = capacity.region_of(*extents[0]), UUID(bytes=tags.pop())
        else:
            require(not extents, why="a list of extents is for the prescriptive policy")
        capacity.add(
            request.host, region, request.size, tag=tag, policy=Policy(policy), extents=extents
        )
        return b""

    def _release(self, payload: bytes) -> bytes:
        request, extents, _ = _change(payload)
        removal, forced = request.flags & 0xF, bool(request.flags & layout.FORCED)
        capacity = self._capacity
        known = removal in (layout.BY_TAG, layout.BY_LIST)
        require(known, why=f"removal {removal}: release by tag, 0, or by list, 1")
        wanted: UUID | list[tuple[int, int]] = extents
        if removal == layout.BY_TAG:
            require(not extents, why="a release by tag lists no extents")
            wanted = UUID(bytes=request.tag)
            self._check_length(request, wanted, forced)
        if request.flags & layout.SANITIZE:  # a property of regions
            places = extents or [
                (dpa, size)
                for dpa, size, tag, _ in capacity.host(request.host).held()
                if tag == wanted
            ]
            each = (capacity.regions[capacity.region_of(*at)].sanitize for at in places)
            require(all(each), why="its region does not sanitize: `configure` sets that")
        take = capacity.force_back if forced else capacity.ask_back
        take(request.host, wanted)
        return b""

    def _check_length(self, request: layout.ChangeRequest, tag: UUID, forced: bool) -> None:
        """Checks that a release by tag is of all that the host has under it.  If *forced*, offered
        extents are released, too, and may be counted."""
        host = self._capacity.host(request.host)
        accepted = sum(extent.size for extent in host.accepted if extent.tag == tag)
        total = sum(extent.size for extent in host.held() if extent.tag == tag)
        most = total if forced else accepted
        require(most, why=f"host {request.host} has no tag {tag}")
        has = f"host {request.host} has {most:#x} bytes of tag {tag}, not {request.size:#x}"
        require(request.size <= most, Code.RESOURCES_EXHAUSTED, has)
        require(request.size >= accepted, why=f"{has}: a release by tag is of all of them")

    def _keep(self, payload: bytes) -> bytes:
        keep(self._capacity, UUID(bytes=payload))
        return b""

    def _let_go(self, payload: bytes) -> bytes:
        let_go(self._capacity, UUID(bytes=payload))
        return b""

    def _tags(self, payload: bytes) -> bytes:
        request = layout.TAGS_REQUEST.unpack(payload)
        found = tags(self._capacity)
        require(request.first <= len(found), why=f"tag {request.first}: there are {len(found)}")
        room = (PAYLOAD_BYTES - _OVERHEAD_BYTES) // layout.TAG.size
        listed = found[request.first :][: min(request.most, room)]
        generation = self._capacity.generation & 0xFFFFFFFF
        head = layout.TagsHead(generation, len(found), len(listed), layout.BITMAPS_VALID)
        records = (
            layout.TagRecord(each.tag.bytes, each.kept, bitmap(each.accepted), bitmap(each.offered))
            for each in listed
        )
        return layout.TAGS.pack(head) + b"".join(map(layout.TAG.pack, records))


def _change(payload: bytes) -> tuple[layout.ChangeRequest, list[tuple[int, int]], set[bytes]]:
    """Decodes a request, its extents, and their tags."""
    request = layout.CHANGE.unpack(payload)
    records = layout.EXTENT.unpack_all(payload, layout.CHANGE.size)
    whole = request.listed == len(records)
    why = f"{request.listed} extents announced, {len(records)} given"
    require(whole, Code.INVALID_PAYLOAD_LENGTH, why)
    return request, [(each.dpa, each.size) for each in records], {each.tag for each in records}


def _block_sizes(region: DcRegion) -> int:
    """Returns a bit for each power of two that divides the region."""
    most = min(_MOST_BLOCK_BITS, (region.size & -region.size).bit_length())
    return sum(1 << bit for bit in range(BLOCK_BYTES_MIN.bit_length() - 1, most))
