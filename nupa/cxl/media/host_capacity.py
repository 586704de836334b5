# SPDX-License-Identifier: BSD-3-Clause
"""The view that one host has of dynamic capacity: offers, extents and notification (CXL 3.1
9.13.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nupa.cxl.function.cci import Code, require
from nupa.cxl.media.events import DcEventType, EventLogs, Log, dynamic_capacity
from nupa.cxl.media.extents import Extent


class HostCapacity:
    """The offers that wait for a host's answer, oldest first, and the extents that it has accepted.
    `generation` grows when these change."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.offers: list[list[Extent]] = []
        self.accepted: list[Extent] = []
        self.generation = 0
        self._events: EventLogs | None = None
        self._changed: Callable[[], None] = lambda: None

    def attach(self, events: EventLogs) -> None:
        """Sets the event logs of this host."""
        self._events = events

    def watch(self, changed: Callable[[], None]) -> None:
        """Calls *changed*, instead of any other handler, after the accepted extents have changed.
        Once it returns, the host reaches exactly these."""
        self._changed = changed

    def set_accepted(self, extents: list[Extent]) -> None:
        self.accepted = extents
        self.generation += 1
        self._changed()

    def held(self) -> Iterator[Extent]:
        """Yields the accepted and the offered extents."""
        yield from self.accepted
        for offer in self.offers:
            yield from offer

    def is_offered(self, extent: Extent) -> bool:
        """Tells whether an extent is offered, and not accepted yet."""
        return any(extent in offer for offer in self.offers)

    def reaches(self, dpa: int, size: int = 1) -> bool:
        """Tells whether the host may access these bytes, as it has accepted all of them."""
        for extent in sorted(self.accepted):
            if extent.dpa <= dpa < extent.end:
                size -= extent.end - dpa
                dpa = extent.end
                if size <= 0:
                    return True
        return False

    def tell(
        self,
        change: DcEventType,
        parts: Sequence[tuple[int, Extent]],
        *,
        may_overflow: bool = False,
    ) -> None:
        """Logs an event for each (region, extent); all but the last say that more follow.
        CommandError: the log has no room, and nothing has changed."""
        if self._events is None:
            return
        log = self._events[Log.DYNAMIC_CAPACITY]
        fits = may_overflow or len(parts) <= log.limit - len(log)
        require(fits, Code.RETRY_REQUIRED, "the host's event log is full")
        for left, (region, extent) in zip(reversed(range(len(parts))), parts, strict=True):
            event = dynamic_capacity(change, self.number, region, *extent, more=left > 0)
            self._events.add(Log.DYNAMIC_CAPACITY, event)
