# SPDX-License-Identifier: BSD-3-Clause
"""Finds the memory that the capture's requests need, and keys that refuse them.

A region of the fresh fabric stands for the addresses used through one rkey.  READs and atomics of
the capture say its contents, until a request of the capture writes there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from nupa.replay.packets import ReplayError
from nupa.replay.requests import CapturedRequest, RequestAnswer, RequestKind, Span

REGION_BYTES_MAX = 1 << 30  # all regions together
REGIONS_MAX = 1 << 14
_GAP_BYTES = 64 << 10  # ranges that are closer together are one region
_ADDRESS_END = 1 << 64

Key = tuple[str, int]  # the responder's address, an rkey


class Refusal(Enum):
    """The way in which a request that was refused in the capture is refused again."""

    KEY = "an invalid key"
    BOUNDS = "out of bounds"
    ACCESS = "an access that the region does not allow"


@dataclass(eq=False, slots=True)
class AddressRange:
    """Addresses from *start* to *end*.

    *written*: a byte for each, 1 once the capture's requests have written there, so that its
    content is known.
    """

    start: int
    end: int
    written: bytearray = field(default_factory=bytearray)

    def mark(self, va: int, length: int, written: bool) -> None:
        """Marks a range as written by a request; not *written*: its content is unknown."""
        at, end = max(va, self.start), min(va + length, self.end)
        if at < end:
            value = b"\1" if written else b"\0"
            self.written[at - self.start : end - self.start] = value * (end - at)

    def open_spans(self, va: int, length: int) -> list[Span]:
        """Returns the parts of a range that the capture has not written, from its start."""
        at, end = va - self.start, va - self.start + length
        spans = []
        while at < end:
            start = self.written.find(0, at, end)
            if start < 0:
                break
            at = self.written.find(1, start, end)
            at = end if at < 0 else at
            spans.append((start - (va - self.start), at - (va - self.start)))
        return spans


@dataclass(eq=False, slots=True)
class CapturedRegion:
    """The memory of one key.  *window*: a memory window, which peers invalidate by SENDs."""

    key: Key
    kinds: set[RequestKind] = field(default_factory=set)
    extents: list[AddressRange] = field(default_factory=list)
    window: bool = False

    def holding(self, va: int, length: int) -> AddressRange | None:
        """Returns the extent that contains a range."""
        extent = self.nearest(va)
        return extent if extent.start <= va and va + length <= extent.end else None

    def nearest(self, va: int) -> AddressRange:
        index = bisect_right([extent.start for extent in self.extents], va) - 1
        return self.extents[max(index, 0)]


def _key(request: CapturedRequest) -> Key:
    return request.flow.destination, request.rkey


def _touches(request: CapturedRequest) -> bool:
    return request.kind is not RequestKind.SEND and request.length > 0


class CapturedMemory:
    """The regions of a capture."""

    def __init__(self, requests: Iterable[CapturedRequest]) -> None:
        self.regions: dict[Key, CapturedRegion] = {}
        ranges: dict[Key, list[Span]] = {}
        for request in requests:
            if _touches(request) and request.answer.works and in_address_space(request):
                region = self._region(_key(request))
                region.kinds.add(request.kind)
                ranges.setdefault(_key(request), []).append(
                    (request.va, request.va + request.length)
                )
            if request.invalidates >= 0 and request.answer is RequestAnswer.DONE:
                key = request.flow.destination, request.invalidates
                self._region(key).window = True
        total = count = 0
        for key, region in self.regions.items():
            spans = ranges.get(key) or [(0, 8)]
            region.extents = _extents(spans, _ADDRESS_END if region.window else _GAP_BYTES)
            total += sum(extent.end - extent.start for extent in region.extents)
            count += len(region.extents)
        if count > REGIONS_MAX:
            raise ReplayError(
                f"the requests reach {count} separate places in memory; the limit is "
                f"{REGIONS_MAX}: `editcap -c` cuts the capture into pieces"
            )
        if total > REGION_BYTES_MAX:
            raise ReplayError(
                f"the requests reach {total >> 20} MiB of memory; the limit is "
                f"{REGION_BYTES_MAX >> 20} MiB: `editcap -c` cuts the capture into pieces"
            )
        for region in self.regions.values():
            for extent in region.extents:
                extent.written = bytearray(extent.end - extent.start)

    def _region(self, key: Key) -> CapturedRegion:
        return self.regions.setdefault(key, CapturedRegion(key))

    def find(self, request: CapturedRequest) -> tuple[CapturedRegion, AddressRange] | None:
        """Returns the place of a request that succeeds."""
        region = self.regions.get(_key(request))
        extent = region.holding(request.va, request.length) if region is not None else None
        return (region, extent) if region is not None and extent is not None else None

    def refusal(
        self, request: CapturedRequest
    ) -> tuple[Refusal, CapturedRegion | None, AddressRange | None]:
        """Returns the refusal of a request, and the region that it reaches, if any."""
        region = self.regions.get(_key(request))
        if region is None:
            return Refusal.KEY, None, None
        extent = region.nearest(request.va)
        if request.kind not in region.kinds:
            return Refusal.ACCESS, region, extent
        if region.holding(request.va, request.length) is None:
            return Refusal.BOUNDS, region, extent
        # It was allowed at other times: the region was registered later, or deregistered.
        return (Refusal.KEY, region if region.window else None, extent)


def in_address_space(request: CapturedRequest) -> bool:
    """Tells whether a range ends at or before the last address."""
    return request.va + request.length < _ADDRESS_END


def _extents(spans: list[Span], gap_bytes: int) -> list[AddressRange]:
    extents: list[AddressRange] = []
    for start, end in sorted(spans):
        if extents and start - extents[-1].end <= gap_bytes:
            extents[-1].end = max(extents[-1].end, end)
        else:
            extents.append(AddressRange(start, end))
    return extents
