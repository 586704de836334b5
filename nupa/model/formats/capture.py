# SPDX-License-Identifier: BSD-3-Clause
"""Captures as work: the requests of a pcapng or pcap file, each address a rank.

A capture has no calls of a program.  A request is taken to wait for the last message that had come
to its address, or the last of its own that had been answered; the time since then is computation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from nupa.base.errors import NupaError
from nupa.model.errors import ModelError
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule
from nupa.replay import flows, messages, packets
from nupa.replay.requests import CapturedRequest, RequestKind

_OPERATIONS = {
    RequestKind.SEND: "send",
    RequestKind.WRITE: "write",
    RequestKind.READ: "read",
    RequestKind.COMPARE_SWAP: "atomic",
    RequestKind.FETCH_ADD: "atomic",
}

_Ended = list[tuple[int, int]]  # when a message had ended, and its operation


def read(path: str) -> Schedule:
    """Reads a capture.  ModelError: it is damaged, or has no InfiniBand requests."""
    try:
        capture = packets.read(path)
        connected, datagrams = flows.find(capture)
        found: list[CapturedRequest] = []
        for flow in connected:
            found += messages.messages(flow, capture.skipped, capture.lost)
        found += messages.datagrams(datagrams, capture.skipped, capture.lost)
    except NupaError as error:
        named = str(error).startswith(path)
        raise ModelError(str(error) if named else f"{path}: {error}") from error
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    found = [request for request in found if request.flow.source != request.flow.destination]
    if not found:
        raise ModelError(
            f"{path}: {capture.total} packets, and no InfiniBand request between two addresses: "
            "capture with --level transport"
        )
    found.sort(key=lambda request: (request.ts_ns, request.number))
    left_out = sum(capture.skipped.values())
    notes = [f"{left_out} packets were left out: `nupa replay` says why"] if left_out else []
    return _schedule(Path(path).name, found, notes)


def _schedule(name: str, found: Sequence[CapturedRequest], notes: list[str]) -> Schedule:
    addresses = list(
        dict.fromkeys(end for each in found for end in (each.flow.source, each.flow.destination))
    )
    rank_of = {address: rank for rank, address in enumerate(addresses)}
    ended = _ends(found, rank_of)
    steps: list[RankOperation] = []
    chains: dict[int, tuple[int, int]] = {}  # by rank: the last computation, when it posted
    index_of: dict[int, int] = {}
    waits: list[tuple[int, int]] = []
    for number, request in enumerate(found):
        rank, peer = rank_of[request.flow.source], rank_of[request.flow.destination]
        chain, before_ns = chains.get(rank, (-1, request.ts_ns))
        place = bisect_right(ended[rank], (request.ts_ns, -1)) - 1
        since_ns = before_ns
        if place >= 0:
            at_ns, which = ended[rank][place]
            since_ns = max(at_ns, before_ns) if chain >= 0 else at_ns
            waits.append((len(steps), which))
        after = (chain,) if chain >= 0 else ()
        computation_ns = max(request.ts_ns - since_ns, 0)
        steps.append(RankOperation(rank, rank, 0, "compute", after, computation_ns))
        chains[rank] = (len(steps) - 1, request.ts_ns)
        index_of[number] = len(steps)
        operation = _OPERATIONS[request.kind]
        steps.append(RankOperation(rank, peer, request.length, operation, (len(steps) - 1,)))
    for index, which in waits:
        step = steps[index]
        steps[index] = step._replace(after=(*step.after, index_of[which]))
    span_ns = max(_end_ns(request) for request in found) - found[0].ts_ns
    return Schedule(
        name, len(addresses), steps, tuple(addresses), float(span_ns), notes=tuple(notes)
    )


def _end_ns(request: CapturedRequest) -> int:
    return max(request.done_ns, request.ts_ns + 1)


def _ends(found: Sequence[CapturedRequest], rank_of: dict[str, int]) -> list[_Ended]:
    """Returns by rank what had ended when, in that order: messages to it, and its own answered."""
    ended: list[_Ended] = [[] for _ in rank_of]
    for number, request in enumerate(found):
        answered = request.done_ns > request.ts_ns  # datagrams never are
        ends = (request.flow.source, request.flow.destination)
        for end in ends if answered else ends[1:]:
            ended[rank_of[end]].append((_end_ns(request), number))
    for each in ended:
        each.sort()
    return ended
