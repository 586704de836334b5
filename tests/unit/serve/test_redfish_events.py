# SPDX-License-Identifier: BSD-3-Clause
"""Events of Redfish: a stream, subscriptions with retries, and what each may see."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from nupa.fabric import Fabric
from nupa.serve.redfish.events import EventHub
from nupa.serve.redfish.subscriptions import SUBSCRIPTIONS_MAX, Subscription, Subscriptions
from nupa.serve.service import Service
from tests.unit.serve.clients import own, served
from tests.unit.serve.redfish import FABRIC, ROOT, add_partition, message_of
from tests.unit.serve.sink import DEADLINE_S, sink

_SUBSCRIPTIONS = f"{ROOT}/EventService/Subscriptions"
_TEST = f"{ROOT}/EventService/Actions/EventService.SubmitTestEvent"


def test_a_subscription_gets_what_happens_to_the_fabric(service: Service) -> None:
    client = own(service)
    with sink() as there:
        wanted = {
            "Destination": there.url,
            "Protocol": "Redfish",
            "Context": "mine",
            "HttpHeaders": [{"X-Secret": "word"}],
        }
        uri = client.post(_SUBSCRIPTIONS, json=wanted).headers["location"]
        assert client.get(uri).json()["HttpHeaders"] == []
        client.post(_TEST, json={})
        headers, event = there.got.get(timeout=DEADLINE_S)
        assert headers["X-Secret"] == "word"
        assert (event["Context"], event["@odata.type"]) == ("mine", "#Event.v1_13_0.Event")
        zone = add_partition(client, "red", []).headers["location"]
        record = there.next()["Events"][0]
        assert record["MessageId"].endswith(".ResourceCreated")
        assert record["OriginOfCondition"] == {"@odata.id": zone}
        assert record["Oem"]["Nupa"]["Kind"] == "partition.added"
        assert client.delete(uri).status_code == 204


def test_an_event_that_is_refused_is_sent_again(service: Service) -> None:
    with (
        sink(refused=2) as there,
        EventHub(service) as hub,
        Subscriptions(hub, retry_interval_s=0.01) as subscriptions,
    ):
        subscriptions.add(Subscription("", there.url))
        hub.send({"MessageSeverity": "OK", "MessageId": "Base.1.Test", "Message": "one"})
        assert there.next()["Events"][0]["Message"] == "one"


def test_a_subscription_has_the_severities_that_it_asks_for(service: Service) -> None:
    with sink() as there, EventHub(service) as hub, Subscriptions(hub) as subscriptions:
        subscriptions.add(Subscription("", there.url, severities=("Critical",)))
        for severity in ("OK", "Warning", "Critical"):
            hub.send({"MessageSeverity": severity, "MessageId": "Base.1.Test", "Message": severity})
        assert there.next()["Events"][0]["Message"] == "Critical"


def test_subscriptions_have_a_limit(service: Service) -> None:
    client = own(service)
    body = {"Destination": "http://127.0.0.1:9/", "Protocol": "Redfish"}
    for _ in range(SUBSCRIPTIONS_MAX):
        assert client.post(_SUBSCRIPTIONS, json=body).status_code == 201
    answer = client.post(_SUBSCRIPTIONS, json=body)
    assert message_of(answer) == "CreateLimitReachedForResource"


@pytest.mark.parametrize(
    "change",
    [
        {"Destination": "file:///etc/passwd"},
        {"Destination": "http://"},
        {"Destination": "http://[::1/"},
        {"Destination": "http://a/\r\nX: y"},
        {"Protocol": "SNMPv3"},
        {"HttpHeaders": [{"X-A": "b\r\nX-C: d"}]},
        {"Severities": ["Loud"]},
    ],
)
def test_a_destination_that_cannot_be_is_refused(service: Service, change: dict[str, Any]) -> None:
    body = {"Destination": "http://127.0.0.1:9/", "Protocol": "Redfish"} | change
    assert own(service).post(_SUBSCRIPTIONS, json=body).status_code == 400


def test_a_stream_has_events_and_a_subscription_that_goes_with_it(service: Service) -> None:
    with served(service) as server:
        connection = http.client.HTTPConnection(*server.address, timeout=DEADLINE_S)
        connection.request(
            "GET", f"{ROOT}/EventService/SSE", headers={"Accept": "text/event-stream"}
        )
        stream = connection.getresponse()
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.readline() == b": events of the fabric\n"
        other = http.client.HTTPConnection(*server.address, timeout=DEADLINE_S)
        (member,) = _get(other, _SUBSCRIPTIONS)["Members"]
        assert _get(other, member["@odata.id"])["SubscriptionType"] == "SSE"
        with Fabric.open("served") as fabric:
            fabric.events.post("host.state", "host1", "it is draining", "warning")
        event = _next(stream)
        assert event["Events"][0]["OriginOfCondition"]["@odata.id"] == f"{FABRIC}/Endpoints/host1"
        assert event["Events"][0]["MessageSeverity"] == "Warning"
        other.request("DELETE", member["@odata.id"])
        assert other.getresponse().status == 204
        assert stream.read() == b"\n"  # it ends
        other.close()
        connection.close()


def _get(connection: http.client.HTTPConnection, uri: str) -> Any:
    connection.request("GET", uri)
    return json.loads(connection.getresponse().read())


def _next(stream: http.client.HTTPResponse) -> Any:
    for line in iter(stream.readline, b""):
        if line.startswith(b"data: "):
            return json.loads(line[6:])
    raise AssertionError("the stream ended")
