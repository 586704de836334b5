# SPDX-License-Identifier: BSD-3-Clause
"""Moves packets from a file or a fabric through a filter to a sink."""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from nupa.capture.filter import Filter
from nupa.capture.sinks import Key, Sink
from nupa.capture.view import View
from nupa.core.watch import Naps
from nupa.packet.pcapng.reader import Batch, Reader

if TYPE_CHECKING:
    from nupa.capture.live import Live

# A ring holds 4 to 7 ms of the smallest messages of the fastest programs.  Polling without a pause
# would take a core from them, and a batch costs the same for few packets and for many.
NAP_MIN_S, NAP_MAX_S = 0.0005, 0.005
MANY_PACKETS = 4096
FLUSH_S = 0.1  # packets reach a reader of the output within this time


class Capture:
    """Passes packets that match to *sink*, *limit* of them at most.

    *seen*: packets read; *taken*: packets passed on; *lost*: records that were overwritten before.
    """

    def __init__(self, sink: Sink, match: Filter | None = None, limit: int | None = None) -> None:
        self._sink = sink
        self._match = match
        self._limit = limit
        self._check_icrc = match is not None and match.checks_icrc
        self._by_interface: Counter[Key] = Counter()
        self.seen = 0
        self.taken = 0
        self.lost = 0

    @property
    def is_full(self) -> bool:
        return self._limit is not None and self.taken >= self._limit

    def take(self, batch: Batch) -> None:
        view = View(batch, check_icrc=self._check_icrc)
        self.seen += len(view)
        for number, count in Counter(view.blocks.interface.tolist()).items():
            interface = batch.interfaces[number]
            self._by_interface[interface.name, interface.linktype] += count
        which = None if self._match is None else self._match.matches(view)
        count = len(view) if which is None else len(which)
        if self._limit is not None and count > self._limit - self.taken:
            count = self._limit - self.taken
            which = list(range(count)) if which is None else which[:count]
        if count:
            self._sink.take(view, which)
            self.taken += count

    def from_file(self, reader: Reader) -> None:
        """Reads a file to its end.  PcapngError where it is damaged, after all packets before."""
        for batch in reader.batches():
            self.take(batch)
            if self.is_full:
                break
        self.lost = sum(said.dropped or 0 for said in reader.statistics.values())

    def from_fabric(
        self,
        live: Live,
        stop_fd: int,
        *,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        tick: Callable[[], None] | None = None,
    ) -> None:
        """Reads a fabric until *stop_fd* is readable, the deadline has passed or the limit is met.

        Records made until then are read, too.  *deadline*: a time of the clock.  *tick*: called
        every FLUSH_S.
        """

        def asleep(seconds: float) -> None:
            select.select([stop_fd], [], [], seconds)

        naps = Naps(clock, asleep, NAP_MIN_S, NAP_MAX_S)
        flushed = clock()
        while not self.is_full and not select.select([stop_fd], [], [], 0)[0]:
            before = self.seen
            self._read(live)
            if self.seen > before:
                naps.found()
            if self.seen < before + MANY_PACKETS and not naps.nap(deadline):
                break
            if clock() - flushed >= FLUSH_S:
                self._sink.flush()
                flushed = clock()
                if tick is not None:
                    tick()
            if deadline is not None and clock() >= deadline:
                break
        self._drain(live)

    def _read(self, live: Live) -> None:
        for batch in live.batches():
            self.take(batch)
            if self.is_full:
                break
        self.lost = live.counts.lost

    def _drain(self, live: Live) -> None:
        """Reads what was recorded before now.  Other watches may keep attachments recording."""
        live.stop()
        until_ns = time.time_ns()
        while not self.is_full:
            before, last_ns = self.seen, 0
            for batch in live.batches():
                self.take(batch)
                last_ns = batch.records[len(batch) - 1].ts_ns
                if self.is_full:
                    break
            if self.seen == before or last_ns > until_ns:
                break
        self.lost = live.counts.lost

    def close(self) -> None:
        """Completes the sink."""
        self._sink.close(self._by_interface, self.lost)
