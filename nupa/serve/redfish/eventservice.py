# SPDX-License-Identifier: BSD-3-Clause
"""EventService: its subscriptions, test events and the stream of events."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.events import event_of, test_record
from nupa.serve.redfish.subscriptions import (
    RETRY_ATTEMPTS,
    Subscription,
    Subscriptions,
    check_destination,
    check_headers,
)
from nupa.serve.redfish.view import ROOT, Json, RedfishView, collection, link, resource, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nupa.serve.redfish.body import Body

SERVICE = f"{ROOT}/EventService"
SSE = f"{SERVICE}/SSE"
#: The destination of a stream names its client: EventDestination 1.16.
_SSE_SCHEME = "redfish-sse://"
_TEST = "EventService.SubmitTestEvent"
_SEVERITIES = ("OK", "Warning", "Critical")
_REGISTRIES = ("ResourceEvent", "Base")
#: A comment in the stream after so long without events, which shows clients that have gone.
_KEEP_ALIVE_S = 15.0
_PARAMETERS = ("EventTimestamp", "Message", "MessageId", "EventGroupId", "Severity")


def service(view: RedfishView) -> Json:
    return resource(
        SERVICE,
        "EventService.v1_12_0.EventService",
        "EventService",
        "Events",
        ServiceEnabled=True,
        DeliveryRetryAttempts=RETRY_ATTEMPTS,
        DeliveryRetryIntervalSeconds=int(view.subscriptions.retry_interval_s),
        EventFormatTypes=["Event"],
        RegistryPrefixes=list(_REGISTRIES),
        Severities=list(_SEVERITIES),
        ServerSentEventUri=SSE,
        SSEFilterPropertiesSupported={
            "EventFormatType": False,
            "MessageId": False,
            "MetricReportDefinition": False,
            "OriginResource": False,
            "RegistryPrefix": False,
            "ResourceType": False,
        },
        Status=status(),
        Subscriptions=link(f"{SERVICE}/Subscriptions"),
        Actions={
            f"#{_TEST}": {
                "target": f"{SERVICE}/Actions/{_TEST}",
            }
        },
    )


def subscriptions(view: RedfishView) -> Json:
    uri = f"{SERVICE}/Subscriptions"
    members = [f"{uri}/{each.id}" for each in view.subscriptions.all()]
    return collection(uri, "EventDestinationCollection", "Subscriptions", members)


def _subscription(view: RedfishView, which: str) -> Subscription:
    found = view.subscriptions.get(which)
    if found is None:
        raise RedfishError("ResourceMissingAtURI", f"{SERVICE}/Subscriptions/{which}")
    return found


def subscription(view: RedfishView, which: str) -> Json:
    found = _subscription(view, which)
    return resource(
        f"{SERVICE}/Subscriptions/{which}",
        "EventDestination.v1_16_0.EventDestination",
        which,
        f"Subscription {which}",
        Destination=found.destination,
        Context=found.context,
        Protocol="Redfish",
        SubscriptionType="SSE" if found.destination.startswith(_SSE_SCHEME) else "RedfishEvent",
        EventFormatType="Event",
        DeliveryRetryPolicy="RetryForever",
        RegistryPrefixes=list(found.registries),
        Severities=list(found.severities),
        VerifyCertificate=found.verify,
        Status=status(not found.failures),
    ) | {"HttpHeaders": []}


def add_subscription(view: RedfishView, body: Body) -> str:
    """Adds a subscription; returns its URI."""
    _need(view)
    destination = check_destination(body.need("Destination", str))
    body.take("Protocol", str, choices=("Redfish",))
    body.take("SubscriptionType", str, choices=("RedfishEvent",))
    body.take("EventFormatType", str, choices=("Event",))
    body.take("DeliveryRetryPolicy", str, choices=("RetryForever",))
    body.take("EventTypes", list)  # of Redfish before 1.6
    context = body.take("Context", str, "")
    headers = check_headers(
        [each for each in body.take("HttpHeaders", list, []) if _is_object(each)]
    )
    severities = _listed(body, "Severities", _SEVERITIES)
    registries = _listed(body, "RegistryPrefixes", _REGISTRIES)
    verify = body.take("VerifyCertificate", bool, True)
    body.finish()
    made = view.subscriptions.add(
        Subscription("", destination, context[:256], headers, severities, registries, verify)
    )
    return f"{SERVICE}/Subscriptions/{made.id}"


def _need(view: RedfishView) -> None:
    if not view.caller.may("ConfigureManager"):
        raise RedfishError("InsufficientPrivilege")


def _is_object(each: object) -> bool:
    if not isinstance(each, dict):
        raise RedfishError("PropertyValueTypeError", str(each)[:60], "HttpHeaders")
    return True


def _listed(body: Body, name: str, choices: tuple[str, ...]) -> tuple[str, ...]:
    found = body.take(name, list, [])
    for each in found:
        if each not in choices:
            raise RedfishError("PropertyValueNotInList", str(each)[:60], name, related=f"/{name}")
    return tuple(found)


def change_subscription(view: RedfishView, body: Body, which: str) -> None:
    """Sets the context, and whether certificates are verified."""
    _need(view)
    found = _subscription(view, which)
    context, verify = body.take("Context", str), body.take("VerifyCertificate", bool)
    body.read_only(
        *("Id", "Name", "Destination", "Protocol", "SubscriptionType", "EventFormatType"),
        *("Severities", "RegistryPrefixes", "Status", "HttpHeaders", "DeliveryRetryPolicy"),
    )
    if context is not None:
        found.context = context[:256]
    if verify is not None:
        found.verify = verify


def remove_subscription(view: RedfishView, which: str) -> None:
    _need(view)
    view.subscriptions.remove(_subscription(view, which).id)


def submit_test(view: RedfishView, body: Body) -> None:
    """Sends a test event to all who listen."""
    _need(view)
    body.take("EventId", str)  # the hub numbers events
    given = {name: body.take(name, str) for name in _PARAMETERS}
    given["MessageArgs"] = body.take("MessageArgs", list)
    body.take("OriginOfCondition", str)
    body.take("EventType", str)
    severity = body.take("MessageSeverity", str, choices=_SEVERITIES)
    body.finish()
    arguments = {name: value for name, value in given.items() if value is not None}
    for each in arguments.get("MessageArgs", []):
        if not isinstance(each, str):
            raise RedfishError("PropertyValueTypeError", str(each)[:60], "MessageArgs")
    if severity is not None:
        arguments["MessageSeverity"] = severity
    view.hub.send(test_record(view, arguments))


class Stream:
    """A stream of events, as text/event-stream has them (HTML Living Standard 9.2).

    It has a subscription from its first line to its end; it ends when that is deleted.
    """

    def __init__(self, subscriptions: Subscriptions, client: str) -> None:
        self._subscriptions, self._hub = subscriptions, subscriptions.hub
        self._loop, self._ready = asyncio.get_running_loop(), asyncio.Event()
        self._stopped = False
        context = f"stream-{secrets.token_hex(8)}"
        self._subscription = Subscription("", f"{_SSE_SCHEME}{client}", context)

    def _stop(self) -> None:
        self._stopped = True
        self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self._ready.set)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with suppress(RedfishError):  # another request took the last place: it goes without
            self._subscriptions.add(self._subscription, self._stop)
        queue = None
        try:
            queue = await run_in_threadpool(self._hub.join, self._wake)
            yield b": events of the fabric\n\n"
            while not (self._stopped or self._hub.closed):
                record = queue.take()
                if record is not None:
                    number = record["EventId"]
                    event = event_of([record], number, self._subscription.context)
                    yield f"id: {number}\ndata: {json.dumps(event)}\n\n".encode()
                    continue
                try:
                    await asyncio.wait_for(self._ready.wait(), _KEEP_ALIVE_S)
                except TimeoutError:
                    yield b":\n\n"
                self._ready.clear()
        finally:
            if queue is not None:
                self._hub.leave(queue)
            self._subscriptions.remove(self._subscription.id)
