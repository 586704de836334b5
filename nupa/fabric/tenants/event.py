# SPDX-License-Identifier: BSD-3-Clause
"""Events of a fabric: what changed, in the order of their numbers."""

from __future__ import annotations

import errno
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.base.printable import printable
from nupa.core.segment import check, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nupa.fabric.fabric import Fabric

#: How long an event that is being written is waited for; its writer may have died.
_PATIENCE_S = 0.1
#: A signal handler runs after so long; writers of other kernels do not wake us.
_SLICE_S = 0.1


class EventSeverity(StrEnum):
    """Named as in `enum nupa_severity`, and as in Redfish's Event."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"


_SEVERITIES = list(EventSeverity)


class FabricEvent(NamedTuple):
    """seq: from 1; time_ns: since the epoch; kind: as "partition.added"; subject: the name of a
    tenant, partition, host or port."""

    seq: int
    time_ns: int
    severity: EventSeverity
    kind: str
    subject: str
    text: str


class Events:
    """The events of a fabric, of which the newest 4096 are kept; `fabric.events`.

    >>> from nupa.fabric import Fabric
    >>> with Fabric(hosts=2) as fabric:
    ...     tenant = fabric.tenants.add("red")
    ...     [(event.seq, event.kind, event.subject) for event in fabric.events.read()]
    [(1, 'tenant.added', 'red')]
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    @property
    def last(self) -> int:
        """The number of the newest event; 0: there is none."""
        return int(lib.nupa_event_last(self._fabric.handle))

    @property
    def room(self) -> int:
        """How many events are kept."""
        return int(lib.nupa_event_room(self._fabric.handle))

    def read(self, after: int = 0) -> list[FabricEvent]:
        """Lists the events later than number *after* that are kept, oldest first."""
        last = self.last
        numbers = range(max(after + 1, last - self.room + 1, 1), last + 1)
        return [event for event in map(self._get, numbers) if event is not None]

    def follow(
        self, after: int | None = None, timeout: float | None = None
    ) -> Iterator[FabricEvent]:
        """Iterates over events later than number *after*, waiting for them; None: from now on.

        Ends *timeout* seconds after this call; None: never.
        FabricError: no memory for the table.
        """
        until = None if timeout is None else time.monotonic() + timeout
        return self._follow(self.last if after is None else after, until)

    def _follow(self, after: int, until: float | None) -> Iterator[FabricEvent]:
        while True:
            for event in self.read(after):
                after = event.seq
                yield event
            after = max(after, 0)
            left = _SLICE_S if until is None else min(_SLICE_S, until - time.monotonic())
            if left <= 0:
                return
            rc = lib.nupa_event_await(self._fabric.handle, after, max(int(left * 1000), 1))
            check(rc, "cannot wait for events")

    def post(
        self,
        kind: str,
        subject: str,
        text: str = "",
        severity: EventSeverity | str = EventSeverity.OK,
    ) -> int:
        """Posts an event; returns its number.

        Longer text is cut: kind 23 bytes, subject 63, text 135.
        LocalError: no such severity; FabricError: no memory for the table.
        """
        try:
            level = _SEVERITIES.index(EventSeverity(severity))
        except ValueError:
            raise LocalError(
                f"no severity is {severity!r}: choose of {', '.join(_SEVERITIES)}", errno.EINVAL
            ) from None
        words = [word.replace("\0", "?").encode(errors="replace") for word in (kind, subject, text)]
        rc = lib.nupa_event_add(self._fabric.handle, level, *words)
        return check(rc, "cannot post an event")

    def _get(self, seq: int) -> FabricEvent | None:
        """Returns an event; None: it is gone."""
        found = ffi.new("struct nupa_control_event *")
        until = 0.0
        while True:
            rc = lib.nupa_event_get(self._fabric.handle, seq, found)
            if rc == 0:
                return _event(found)
            now = time.monotonic()
            until = until or now + _PATIENCE_S
            if rc != -errno.EAGAIN or now > until:
                return None
            time.sleep(0.001)


def _event(found: Any) -> FabricEvent:
    return FabricEvent(
        int(found.seq),
        int(found.time_ns),
        _SEVERITIES[found.severity],
        printable(text(found.kind)),
        printable(text(found.subject)),
        printable(text(found.text)),
    )
