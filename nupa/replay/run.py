# SPDX-License-Identifier: BSD-3-Clause
"""Replays a file; the entry point of the package."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from os import PathLike, fspath

from nupa.fabric import Fabric
from nupa.replay import flows, messages, packets, races, reasons
from nupa.replay.memory import CapturedMemory
from nupa.replay.packets import CapturedPackets, ReplayError
from nupa.replay.play import play
from nupa.replay.report import Report
from nupa.replay.requests import CapturedRequest
from nupa.replay.stage import GRH_BYTES, Stage, hosts_for
from nupa.replay.step import Clock

MESSAGE_BYTES_MAX = 256 << 20

#: Called with "reading", packets read, 0; or "playing", requests played, of how many.
Progress = Callable[[str, int, int], None]


def _silent(_stage: str, _done: int, _of: int) -> None:
    pass


def replay(
    path: str | PathLike[str],
    *,
    fabric: Fabric | None = None,
    realtime: bool = False,
    clock: Clock = time,
    progress: Progress = _silent,
) -> Report:
    """Plays the requests of a capture file and compares each outcome with the capture.

    fabric: where to play; None: a fresh fabric in this process, with a host for each address.  In a
    given fabric addresses are assigned to its hosts in their order of appearance.
    realtime: keeps the pauses of the capture, by *clock*, the module `time` or a replacement.

    PcapngError: the file is damaged.  ReplayError: it has no requests that can be played, or
    exceeds a limit.  OSError: it cannot be read.  Differences raise nothing: see
    Report.raise_for_differences().
    """
    capture = packets.read(path, lambda count: progress("reading", count, 0))
    report = Report(fspath(path), packets=capture.total, left_out=capture.skipped)
    if capture.dropped:
        report.notes["packets that the capture lost"] = capture.dropped
    requests = _requests(capture, report)
    if not requests:
        raise ReplayError(_nothing(report))
    memory = CapturedMemory(requests)
    addresses = list(
        dict.fromkeys(
            name for request in requests for name in (request.flow.source, request.flow.destination)
        )
    )
    longest = max(request.length for request in requests)
    if longest > MESSAGE_BYTES_MAX:
        raise ReplayError(
            f"a request has {longest} bytes; the limit is {MESSAGE_BYTES_MAX}: leave it out by "
            "`editcap` or a display filter of `tshark -w`"
        )
    count = hosts_for(addresses)
    with (
        nullcontext(fabric) if fabric is not None else Fabric(hosts=count) as used,
        Stage(used, addresses, longest + GRH_BYTES, mapped=fabric is not None) as stage,
    ):
        report.hosts = min(count, len(used.hosts))
        play(
            requests,
            stage,
            memory,
            report,
            clock=clock,
            realtime=realtime,
            progress=lambda done: progress("playing", done, len(requests)),
        )
    if not report.played:
        raise ReplayError(_nothing(report))
    return report


def _requests(capture: CapturedPackets, report: Report) -> list[CapturedRequest]:
    """Returns all requests in the order of their execution, as far as the capture shows it."""
    connected, datagrams = flows.find(capture)
    found = []
    for flow in connected:
        found += messages.messages(flow, report.skipped, capture.lost)
    found += messages.datagrams(datagrams, report.skipped, capture.lost)
    for reason in reasons.OF_PACKETS:
        if reason in report.skipped:
            report.left_out[reason] += report.skipped.pop(reason)
    raced = races.mark(found)
    if raced:
        report.notes["requests at the same place at once: there they are not compared"] = raced
    return races.ordered(found)


def _nothing(report: Report) -> str:
    counts = report.skipped + report.left_out
    why = ", ".join(f"{count} {reason}" for reason, count in counts.most_common(5))
    return (
        f"{report.path} has no InfiniBand requests that can be played: of {report.packets} packets "
        f"{why or 'there is nothing to say'}; capture with --level transport"
    )
