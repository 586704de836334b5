# SPDX-License-Identifier: BSD-3-Clause
"""Groups records into transmissions.

One transmission is a record seen at several ports on its way; a retransmission is another.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from nupa.diagram.find.event import Event, Way
from nupa.packet.tables.record import FLAGS, Flag


class Transmission:
    """A record, with all ports where it was seen, in their order."""

    __slots__ = ("_repeated", "events", "is_copy")

    def __init__(self, event: Event, repeated: bool, is_copy: bool = False) -> None:
        self.events = [event]
        self._repeated = repeated
        self.is_copy = is_copy  # of another transmission, at a later port

    @property
    def event(self) -> Event:
        """The record at the first port."""
        return self.events[0]

    @property
    def ts_ns(self) -> int:
        return self.events[0].ts_ns

    @property
    def flags(self) -> int:
        flags = 0
        for event in self.events:
            flags |= event.flags
        return flags

    @property
    def is_retry(self) -> bool:
        return self._repeated or bool(self.flags & Flag.RETRY)

    @property
    def is_lost(self) -> bool:
        return bool(self.flags & Flag.DROPPED)

    @property
    def flag_names(self) -> list[str]:
        """The flags that a diagram names."""
        flags = self.flags & ~(Flag.FIRST | Flag.LAST | Flag.RETRY)
        names = ["retry"] if self.is_retry else []
        return names + [name for bit, name in FLAGS.items() if flags >> bit & 1]


def transmissions_of(events: Sequence[Event], *, apart: bool = False) -> list[Transmission]:
    """Groups events, which are in order of time.  *apart*: each event is a transmission."""
    transmissions: list[Transmission] = []
    # Copies of one record: the nth that was seen at a port is the nth transmission.
    copies: dict[Hashable, list[Transmission]] = {}
    seen: dict[Hashable, int] = {}
    requests: set[tuple[str, int]] = set()
    for event in events:
        if event.identity is None:
            transmissions.append(Transmission(event, repeated=False))
            continue
        same = copies.setdefault((event.level, event.identity), [])
        at_port = (event.level, event.identity, event.interface)
        nth = seen.get(at_port, 0)
        seen[at_port] = nth + 1
        if nth < len(same) and not apart:
            same[nth].events.append(event)
            continue
        repeated = False
        if nth >= len(same) and event.way == Way.REQUEST and event.psn is not None:
            repeated = (event.name, event.psn) in requests
            requests.add((event.name, event.psn))
        transmission = Transmission(event, repeated, is_copy=nth < len(same))
        transmissions.append(transmission)
        if not transmission.is_copy:
            same.append(transmission)
    return transmissions
