# SPDX-License-Identifier: BSD-3-Clause
"""Subscriptions to events: a queue, a thread and retries for each destination."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from nupa.base.closing import Closing
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.events import EventHub, event_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from nupa.serve.redfish.view import Json

SUBSCRIPTIONS_MAX = 16
RETRY_ATTEMPTS = 3
RETRY_INTERVAL_S = 5
_TIMEOUT_S = 5
_HEADERS_MAX = 16


@dataclass
class Subscription:
    """A destination of events; context: what its events carry to tell it which it is.

    That of a stream of events goes with its connection.
    """

    id: str
    destination: str
    context: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    severities: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    verify: bool = True
    needs_context: bool = False  # nothing is sent before it has one
    failures: int = 0

    def wants(self, record: Json) -> bool:
        """Tells whether it wants an event."""
        if self.needs_context and not self.context:
            return False
        if self.severities and record["MessageSeverity"] not in self.severities:
            return False
        return not self.registries or record["MessageId"].partition(".")[0] in self.registries


def check_destination(url: str) -> str:
    """Returns the URL if events can be sent there.  RedfishError: they cannot."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url or len(url) > 1024:
        text = "Destination must be a URL of http or https"
        raise RedfishError(
            "PropertyValueFormatError", url[:60], "Destination", text=text, related="/Destination"
        )
    return url


class Subscriptions(Closing):
    """The subscriptions of a server.

    An event that cannot be delivered is repeated, then dropped.
    """

    def __init__(self, hub: EventHub, retry_interval_s: float = RETRY_INTERVAL_S) -> None:
        self.hub = hub
        self.retry_interval_s = retry_interval_s
        self._lock = threading.Lock()
        self._found: dict[str, _Kept] = {}
        self._number = 0

    def add(
        self, subscription: Subscription, stop: Callable[[], object] | None = None
    ) -> Subscription:
        """Adds a subscription; its id is set here if it is "".

        stop: of a stream: ends it.  RedfishError: there are too many.
        """
        with self._lock:
            if len(self._found) >= SUBSCRIPTIONS_MAX:
                raise RedfishError("CreateLimitReachedForResource")
            if not subscription.id:
                self._number += 1
                subscription.id = str(self._number)
            sender = _Sender(self, subscription) if stop is None else None
            end = stop if sender is None else sender.stop
            assert end is not None
            self._found[subscription.id] = _Kept(subscription, end, sender)
            return subscription

    def check_room(self) -> None:
        """RedfishError: there are as many subscriptions as there may be."""
        if len(self.all()) >= SUBSCRIPTIONS_MAX:
            raise RedfishError("CreateLimitReachedForResource")

    def get(self, which: str) -> Subscription | None:
        with self._lock:
            found = self._found.get(which)
            return found.subscription if found else None

    def all(self) -> list[Subscription]:
        with self._lock:
            return [found.subscription for found in self._found.values()]

    def remove(self, which: str) -> None:
        with self._lock:
            found = self._found.pop(which, None)
        if found is not None:
            found.stop()

    def close(self) -> None:
        with self._lock:
            all_found = list(self._found.values())
            self._found.clear()
        for found in all_found:
            found.stop()
        for found in all_found:
            if found.sender is not None:
                found.sender.join()


class _Kept(NamedTuple):
    """A subscription, what ends it, and its thread, if it has one."""

    subscription: Subscription
    stop: Callable[[], object]
    sender: _Sender | None


class _Sender(threading.Thread):
    """The thread of a subscription."""

    def __init__(self, subscriptions: Subscriptions, subscription: Subscription) -> None:
        super().__init__(name=f"redfish-events-{subscription.id}", daemon=True)
        self._subscriptions, self._subscription = subscriptions, subscription
        self._wake = threading.Condition()
        self._stopped = False
        self._listener = subscriptions.hub.join(self._woken)
        self.start()

    def stop(self) -> None:
        self._subscriptions.hub.leave(self._listener)
        with self._wake:
            self._stopped = True
            self._wake.notify_all()

    def _woken(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def run(self) -> None:
        while True:
            record = None
            with self._wake:
                while not self._stopped and (record := self._listener.take()) is None:
                    self._wake.wait()
                if self._stopped:
                    return
            assert record is not None
            if self._subscription.wants(record):
                self._deliver(record)

    def _deliver(self, record: Json) -> None:
        event = event_of([record], record["EventId"], self._subscription.context)
        body = json.dumps(event).encode()
        for attempt in range(1 + RETRY_ATTEMPTS):
            if attempt:
                with self._wake:
                    interval = self._subscriptions.retry_interval_s
                    if self._wake.wait_for(lambda: self._stopped, interval):
                        return
            if post(self._subscription.destination, body, self._subscription):
                self._subscription.failures = 0
                return
        self._subscription.failures += 1


def post(url: str, body: bytes, subscription: Subscription) -> bool:
    """Posts *body*; tells whether the destination took it.  Follows no redirection."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context()
            if not subscription.verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=_TIMEOUT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(
                parts.hostname or "", parts.port, timeout=_TIMEOUT_S
            )
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {**subscription.headers, "Content-Type": "application/json;charset=utf-8"}
        try:
            connection.request("POST", target, body, headers | {"OData-Version": "4.0"})
            return 200 <= connection.getresponse().status < 300
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError):
        return False


def check_headers(given: list[Json]) -> dict[str, str]:
    """Returns HttpHeaders of a request.  RedfishError: a header that cannot be sent."""
    found: dict[str, str] = {}
    for each in given:
        for name, value in each.items():
            plain = isinstance(value, str) and name.replace("-", "").isalnum() and name.isascii()
            if not plain or not (value.isascii() and value.isprintable()):
                raise RedfishError(
                    "PropertyValueFormatError", name[:60], "HttpHeaders", related="/HttpHeaders"
                )
            found[name] = value
    if len(found) > _HEADERS_MAX or sum(map(len, found.values())) > 4096:
        raise RedfishError("PropertyValueFormatError", "", "HttpHeaders", related="/HttpHeaders")
    return found
