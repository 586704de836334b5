# SPDX-License-Identifier: BSD-3-Clause
"""An agent of Sunfish, the OpenFabrics Management Framework: it announces this service.

The agent posts AggregationSourceDiscovered.  Sunfish reads the ConnectionMethod that the event
names, and sets the Context of the subscription `SunfishServer`.  The agent then posts
ResourceCreated for each top resource, from which Sunfish reads the rest.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from nupa.base.errors import NupaError
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.events import event_of
from nupa.serve.redfish.subscriptions import Subscription, Subscriptions, check_destination, post
from nupa.serve.redfish.view import (
    ROOT,
    Json,
    RedfishView,
    Uris,
    collection,
    link,
    resource,
    timestamp,
)

if TYPE_CHECKING:
    from nupa.serve.service import Service

SUBSCRIPTION = "SunfishServer"
#: Sunfish's reference server takes events there.
_LISTENER = "/EventListener"
_RETRY_S = 5.0
_METHODS = f"{ROOT}/AggregationService/ConnectionMethods"


def aggregation_service(_view: RedfishView) -> Json:
    return resource(
        f"{ROOT}/AggregationService",
        "AggregationService.v1_0_2.AggregationService",
        "AggregationService",
        "What aggregators know this service by",
        ServiceEnabled=True,
        ConnectionMethods=link(_METHODS),
    )


def methods(view: RedfishView) -> Json:
    members = [_method_uri(view.name)]
    return collection(_METHODS, "ConnectionMethodCollection", "Connection methods", members)


def _method_uri(name: str) -> str:
    return f"{_METHODS}/{quote(name, safe='')}"


def method(view: RedfishView, which: str) -> Json:
    if which != view.name:
        raise RedfishError("ResourceMissingAtURI", f"{_METHODS}/{which}")
    return resource(
        _method_uri(which),
        "ConnectionMethod.v1_1_1.ConnectionMethod",
        which,
        f"Redfish service of {which}",
        ConnectionMethodType="Redfish",
        ConnectionMethodVariant="NUPA",
    )


def listener_of(url: str) -> str:
    """Returns where a Sunfish server takes events.  RedfishError: it is no URL of http."""
    check_destination(url)
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + _LISTENER


class SunfishAgent(threading.Thread):
    """Announces a service to Sunfish at *url*, until it answers; *own_url*: of this server."""

    def __init__(
        self,
        service: Service,
        subscriptions: Subscriptions,
        url: str,
        own_url: str,
    ) -> None:
        super().__init__(name="sunfish-agent", daemon=True)
        self._service, self._own_url = service, own_url
        self._uris = Uris(service.name)
        self._stopped = threading.Event()
        self.subscription = subscriptions.add(
            Subscription(SUBSCRIPTION, listener_of(url), needs_context=True)
        )
        self.start()

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        found = {
            "MessageId": "ResourceEvent.1.0.AggregationSourceDiscovered",
            "Message": f"The Redfish service at {self._own_url} was found.",
            "MessageArgs": ["Redfish", self._own_url],
            "OriginOfCondition": link(_method_uri(self._service.name)),
        }
        # The server sets Context while it answers.
        while not (self._send(found, "AggregationSourceDiscovered") and self.subscription.context):
            if self._stopped.wait(_RETRY_S):
                return
        for uri in self._tops():
            created = {
                "MessageId": "ResourceEvent.1.0.ResourceCreated",
                "Message": f"The resource {uri} was created.",
                "MessageArgs": [],
                "OriginOfCondition": link(uri),
            }
            while not self._send(created, "ResourceCreated"):
                if self._stopped.wait(_RETRY_S):
                    return

    def _tops(self) -> list[str]:
        """Returns the URIs of the resources that are in no other."""
        try:
            hosts = [host["name"] for host in self._service.read()["hosts"]]
        except (NupaError, OSError):  # the fabric is gone; its events tell of another one
            hosts = []
        systems = [self._uris.system_uri(host) for host in hosts]
        return [self._uris.chassis, *systems, self._uris.fabric]

    def _send(self, record: Json, name: str) -> bool:
        times = {"EventType": "Other", "EventId": "1", "EventTimestamp": timestamp(time.time())}
        severity = {"Severity": "OK", "MessageSeverity": "OK"}
        event = event_of([record | times | severity], "1", self.subscription.context)
        body = json.dumps(event | {"Name": name}).encode()
        return post(self.subscription.destination, body, self.subscription)
