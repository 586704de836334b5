# SPDX-License-Identifier: BSD-3-Clause
"""Events of the fabric as Events of Redfish, for all who listen."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nupa.base.closing import Closing
from nupa.base.errors import NupaError
from nupa.live.observed import Observed
from nupa.serve.redfish.view import Json, RedfishView, Uris, link, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from nupa.serve.service import Service

#: Events that a listener may be behind before it loses the oldest.
_QUEUE = 1024
_SLICE_S = 0.25
RESOURCE_EVENT = "ResourceEvent.1.3"
_SEVERITIES = {"ok": "OK", "warning": "Warning", "critical": "Critical"}
#: Messages of DMTF's registry ResourceEvent by the end of an event's kind.
_MESSAGES = {
    "added": "ResourceCreated",
    "removed": "ResourceRemoved",
    "up": "ResourceStatusChangedOK",
    "down": "ResourceStatusChangedWarning",
}
#: Those that have arguments: the resource, and its state.
_WITH_STATE = {"up": "Enabled", "down": "Disabled"}


class EventQueue:
    """A bounded queue of events; *wake* is called after each, by another thread."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self._queue: deque[Json] = deque(maxlen=_QUEUE)

    def put(self, record: Json) -> None:
        self._queue.append(record)
        self.wake()

    def take(self) -> Json | None:
        """Returns the oldest event; None: there is none."""
        try:
            return self._queue.popleft()
        except IndexError:
            return None


class EventHub(Closing):
    """Reads the fabric's events while anyone listens, and gives each to all of them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._changed = threading.Condition()
        self._listeners: list[EventQueue] = []
        self._thread: threading.Thread | None = None
        self._closed = False
        self._number = 0
        self._fabric: Observed | None = None
        self._after = 0

    def join(self, wake: Callable[[], object]) -> EventQueue:
        """Adds a listener, which gets all events from now on."""
        listener = EventQueue(wake)
        with self._changed:
            if not self._listeners and not self._closed:
                self._open()
            self._listeners.append(listener)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name="redfish-events", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        return listener

    def leave(self, listener: EventQueue) -> None:
        with self._changed, suppress(ValueError):
            self._listeners.remove(listener)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Ends the thread, and wakes all listeners."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread, listeners = self._thread, list(self._listeners)
        for listener in listeners:
            listener.wake()
        if thread is not None:
            thread.join()

    def send(self, record: Json) -> None:
        """Gives an event to all listeners.  EventId is set here."""
        with self._changed:
            self._number += 1
            record = {**record, "EventId": str(self._number)}
            for listener in self._listeners:
                listener.put(record)

    def _run(self) -> None:
        while not self._closed:
            with self._changed:
                if not self._listeners:
                    self._drop()  # what happens meanwhile is nobody's
                    self._changed.wait_for(lambda: self._closed or self._listeners)
                fabric = self._fabric
                if fabric is None or fabric.gone:
                    self._drop()
                    self._open()
                    fabric = self._fabric
                if fabric is None:
                    self._changed.wait_for(lambda: self._closed, _SLICE_S)
                    continue
            try:
                for event in fabric.events.follow(self._after, timeout=_SLICE_S):
                    self._after = event.seq
                    self.send(record_of(self._service.name, event))
            except (NupaError, OSError):
                with self._changed:
                    self._drop()
        with self._changed:
            self._drop()

    def _open(self) -> None:
        """Opens the fabric, if it is there, and starts behind its latest event."""
        if self._fabric is None:
            with suppress(NupaError, OSError):
                self._fabric = Observed.open(self._service.name)
                self._after = self._fabric.events.last

    def _drop(self) -> None:
        if self._fabric is not None:
            self._fabric.close()
            self._fabric = None


def record_of(name: str, event: Any) -> Json:
    """Returns an event of the fabric as an EventRecord, without EventId."""
    ending = event.kind.rpartition(".")[2]
    message = _MESSAGES.get(ending, "ResourceChanged")
    origin = _origin(name, event.kind.partition(".")[0], event.subject)
    state = _WITH_STATE.get(ending)
    return {
        "EventType": "Other",
        "MemberId": str(event.seq),
        "EventTimestamp": timestamp(event.time_ns / 1e9),
        "MessageSeverity": _SEVERITIES[str(event.severity)],
        "Severity": _SEVERITIES[str(event.severity)],
        "Message": f"{event.subject}: {event.text or event.kind}",
        "MessageId": f"{RESOURCE_EVENT}.{message}",
        "MessageArgs": [event.subject, state] if state else [],
        "OriginOfCondition": link(origin),
        "Oem": {
            "Nupa": {
                "@odata.type": "#NupaEvent.v1_0_0.Event",
                "Kind": event.kind,
                "Subject": event.subject,
                "SequenceNumber": event.seq,
            }
        },
    }


def _origin(name: str, kind: str, subject: str) -> str:
    """Returns the URI of what an event is about; of the fabric if it is nothing smaller."""
    uris = Uris(name)
    if kind in ("tenant", "partition"):
        return uris.zone_uri(kind, subject)
    if kind == "host":
        return uris.endpoint_uri(subject)
    return uris.fabric


def event_of(records: list[Json], number: str, context: str | None) -> Json:
    """Returns an Event with these records."""
    found: Json = {
        "@odata.type": "#Event.v1_13_0.Event",
        "Id": number,
        "Name": "Event",
        "Events": [{"MemberId": "0", **record} for record in records],
        "Events@odata.count": len(records),
    }
    return found if context is None else {**found, "Context": context}


def test_record(view: RedfishView, arguments: Json) -> Json:
    """Returns the record of a test event, of the parameters of SubmitTestEvent."""
    record = {
        "EventType": "Other",
        "EventTimestamp": timestamp(time.time()),
        "MessageSeverity": "OK",
        "Severity": "OK",
        "Message": "A test event",
        "MessageId": f"{RESOURCE_EVENT}.TestMessage",
        "MessageArgs": [],
        "OriginOfCondition": link(view.fabric),
        "MemberId": "0",
    }
    return record | arguments
