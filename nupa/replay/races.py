# SPDX-License-Identifier: BSD-3-Clause
"""Finds requests of several queue pairs that were outstanding at once, and their order.

The fabric guarantees no order among them, and their packets do not show it.  Atomics show it by the
values that they returned.  Of other requests, bytes in common are not compared.
"""

from __future__ import annotations

from nupa.replay.requests import CapturedRequest, RequestKind

_LOOKED_AT = 256  # the latest requests to one region that are compared
_WORD = 1 << 64


def ordered(requests: list[CapturedRequest]) -> list[CapturedRequest]:
    """Sorts requests in the order of their execution, as far as the capture shows it."""
    requests = sorted(requests, key=lambda request: (request.executed, request.number))
    counters: dict[tuple[str, int, int], list[int]] = {}
    for place, request in enumerate(requests):
        if request.kind.atomic and request.original is not None:
            key = (request.flow.destination, request.rkey, request.va)
            counters.setdefault(key, []).append(place)
    for places in counters.values():
        chain = _chained([requests[place] for place in places])
        for place, request in zip(places, chain, strict=True):
            requests[place] = request
    return requests


def _chained(atomics: list[CapturedRequest]) -> list[CapturedRequest]:
    """Sorts the atomics of one address so that each finds the value that the last one left."""
    left: int | None = None
    for at, request in enumerate(atomics):
        if left is not None and request.original != left:
            flows = {id(request.flow)}
            for other in range(at + 1, min(at + _LOOKED_AT, len(atomics))):
                candidate = atomics[other]
                if candidate.ts_ns >= request.done_ns:
                    break
                if candidate.original == left and id(candidate.flow) not in flows:
                    atomics.insert(at, atomics.pop(other))
                    break
                flows.add(id(candidate.flow))  # a queue pair keeps its own order
        left = _left_by(atomics[at])
    return atomics


def _left_by(request: CapturedRequest) -> int | None:
    if request.original is None:
        return None
    if request.kind is RequestKind.FETCH_ADD:
        return (request.original + request.swap) % _WORD
    return request.swap if request.original == request.compare else request.original


def mark(requests: list[CapturedRequest]) -> int:
    """Sets the spans of each request that another wrote meanwhile; returns how many have any."""
    under_way: dict[tuple[str, int], list[CapturedRequest]] = {}
    raced = 0
    for request in sorted(requests, key=lambda r: (r.ts_ns, r.number)):
        if request.kind is RequestKind.SEND or not request.length:
            continue
        key = (request.flow.destination, request.rkey)
        others = [r for r in under_way.get(key, ()) if r.done_ns >= request.ts_ns]
        for other in others:
            start, end = _common(request, other)
            if start < end and not _in_order(other, request):
                raced += _add(request, start, end, other) + _add(other, start, end, request)
        others.append(request)
        under_way[key] = others[-_LOOKED_AT:]
    return raced


def _common(a: CapturedRequest, b: CapturedRequest) -> tuple[int, int]:
    return max(a.va, b.va), min(a.va + a.length, b.va + b.length)


def _in_order(first: CapturedRequest, then: CapturedRequest) -> bool:
    """Tells whether the outcome does not depend on a race.

    Both only read, or both are atomics, or a queue pair keeps their order: it does unless the
    first is a READ (IBTA table 79).
    """
    if first.kind is RequestKind.READ and then.kind is RequestKind.READ:
        return True
    if first.kind.atomic and then.kind.atomic:
        return True
    return first.flow is then.flow and first.kind is not RequestKind.READ


def _add(request: CapturedRequest, start: int, end: int, other: CapturedRequest) -> bool:
    """Adds a raced span; True if it is the request's first.  READs of others race with nothing."""
    if other.kind is RequestKind.READ:
        return False
    request.raced.append((start - request.va, end - request.va))
    return len(request.raced) == 1
