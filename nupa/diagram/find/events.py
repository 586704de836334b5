# SPDX-License-Identifier: BSD-3-Clause
"""Reads the records of one transfer again, and decodes them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike

from nupa.base.printable import printable
from nupa.diagram.find.event import Event, Way
from nupa.diagram.find.frame_events import describe_frame
from nupa.diagram.find.frames import Frames
from nupa.diagram.find.record_events import describe_record
from nupa.packet.decode import records
from nupa.packet.decode.columns import blocks_of
from nupa.packet.pcapng.reader import Batch, PcapngError, Reader
from nupa.packet.tables.record import LINKTYPE_NUPA


def read_events(path: str | PathLike[str], packets: Sequence[int]) -> list[Event]:
    """Reads the packets with these ascending numbers, in order of time.

    Packets behind damage of the file are missing.
    """
    found: list[Event] = []
    base = 0
    with Reader(path) as reader:
        try:
            for batch in reader.batches():
                last = base + len(batch)
                first = bisect_left(packets, base + 1)
                behind = bisect_left(packets, last + 1)
                if first < behind:
                    places = [packet - base - 1 for packet in packets[first:behind]]
                    found += _events_of(batch, base, places)
                base = last
                if behind == len(packets):
                    break
        except PcapngError:
            if reader.section is None:
                raise
            # The index has read the same file, and has its damage.
    found.sort(key=lambda event: (event.ts_ns, event.packet))
    return found


def _events_of(batch: Batch, base: int, places: Iterable[int]) -> Iterator[Event]:
    blocks = blocks_of(batch)
    ours = [one.linktype == LINKTYPE_NUPA for one in batch.interfaces]
    found = records.decode_batch(batch) if any(ours) else None
    frames = None if all(ours) else Frames(batch, blocks)
    for i in places:
        event = Event(
            packet=base + i + 1,
            ts_ns=blocks.ts_ns[i],
            level="",
            name="",
            way=Way.BY_ADDRESS,
            interface=printable(batch.interfaces[blocks.interface[i]].name),
            direction=blocks.flags[i] & 3,
            flags=0,
        )
        if found is not None and ours[blocks.interface[i]]:
            describe_record(event, batch, blocks, found, i)
        elif frames is not None:
            event.flags = frames.flags(i)
            describe_frame(event, frames, i)
        yield event
