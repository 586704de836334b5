# SPDX-License-Identifier: BSD-3-Clause
"""Lines that rings have had, and the CXL.cache requests that follow from them.

A ring's tags say how many lines were written; no attachment counts requests.  Coherent caches need
at least these (docs/packet.md, CXL.cache).  The producer takes a line, in the ring's first lap from
memory and later from the consumer's cache.  The consumer fetches the line.  Once a lap the producer
reads the ring's head, which the consumer has written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nupa._engine import ffi, lib
from nupa.core.segment import Segment, check

#: D2H requests of a host's cache, and H2D requests to it (CXL 3.1, 3.2.4).
NAMES = ("RdOwn", "RdOwnNoData", "RdShared", "SnpData", "SnpInv")


class Lines(NamedTuple):
    """Lines that attachments to *host* wrote for *peer*, in *first* and in later laps (*again*).

    *looks*: how often they read the ring's head, at least.
    """

    host: int
    peer: int
    first: int
    again: int
    looks: int


def written(segment: Segment) -> Iterator[Lines]:
    """Iterates over the lines of current and of former attachments, where there are any."""
    handle = segment.handle
    everyone = range(lib.nupa_fabric_n_hosts(handle))
    by_host = ffi.new("struct nupa_lines_info[]", len(everyone))
    for host in everyone:
        for peer in everyone:
            rc = lib.nupa_fabric_past_lines(handle, host, peer, by_host + peer)
            check(rc, "cannot read past lines")
        yield from _lines(host, by_host)
    for slot in segment.slots():
        rc = lib.nupa_fabric_lines(handle, slot.slot, by_host)
        check(rc, f"cannot read the lines of slot {slot.slot}")
        yield from _lines(slot.host, by_host)


def _lines(host: int, by_host: Iterable[ffi.CData]) -> Iterator[Lines]:
    for peer, info in enumerate(by_host):
        if info.first:
            yield Lines(host, peer, info.first, info.again, info.looks)


def requests(n_hosts: int, found: Iterable[Lines]) -> list[dict[str, int]]:
    """Counts requests of each host, by opcode.  Lines from a host to itself stay in its cache.

    >>> requests(2, [Lines(0, 1, first=1024, again=10, looks=1)])[0]
    {'RdOwn': 1024, 'RdOwnNoData': 10, 'RdShared': 1, 'SnpData': 1034, 'SnpInv': 0}
    """
    counts = [dict.fromkeys(NAMES, 0) for _ in range(n_hosts)]

    def wrote(writer: int, reader: int, first: int, again: int) -> None:
        counts[writer]["RdOwn"] += first
        counts[writer]["RdOwnNoData"] += again
        counts[reader]["SnpInv"] += again
        counts[reader]["RdShared"] += first + again
        counts[writer]["SnpData"] += first + again

    for host, peer, first, again, looks in found:
        if host != peer:
            wrote(host, peer, first, again)
            wrote(peer, host, min(looks, 1), max(looks - 1, 0))  # the head
    return counts
