# SPDX-License-Identifier: BSD-3-Clause
"""The Sunfish agent, against the requests of Sunfish's reference server."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from nupa.fabric import Fabric
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.sunfish import listener_of
from nupa.serve.service import Options, Service
from tests.unit.serve.clients import served
from tests.unit.serve.redfish import FABRIC, ROOT
from tests.unit.serve.sink import DEADLINE_S, sink

_CONTEXT = "70cbe8b2-d54c-4837-ab85-6bd10b0184bb"


def request(method: str, url: str, path: str, body: Any = None) -> Any:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=DEADLINE_S)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return json.loads(answer.read())
    finally:
        connection.close()


def register(event: dict[str, Any]) -> None:
    """Does what Sunfish does before it answers AggregationSourceDiscovered."""
    (record,) = event["Events"]
    if record["MessageId"].endswith(".AggregationSourceDiscovered"):
        kind, url = record["MessageArgs"]
        assert kind == "Redfish"
        # It joins the URL and the path by another slash.
        method = request("GET", url, f"/{record['OriginOfCondition']['@odata.id']}")
        assert method["ConnectionMethodType"] == "Redfish"
        path = f"{ROOT}/EventService/Subscriptions/SunfishServer"
        request("PATCH", url, path, {"Context": _CONTEXT})


@pytest.mark.parametrize("refused", [0, 1])
def test_an_agent_registers_and_announces_its_resources(service: Service, refused: int) -> None:
    import nupa.serve.redfish.sunfish as agent

    with sink(refused, register) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "_RETRY_S", 0.05)
        service.options = Options(sunfish=server.url)
        with served(service):
            headers, event = server.got.get(timeout=DEADLINE_S)
            assert headers["path"] == "/EventListener"
            assert event["Context"] == ""
            announced = []
            for _ in range(5):
                event = server.next()
                assert event["Context"] == _CONTEXT
                assert event["Events"][0]["MessageId"].endswith(".ResourceCreated")
                announced.append(event["Events"][0]["OriginOfCondition"]["@odata.id"])
            systems = [f"{ROOT}/Systems/host{number}" for number in range(3)]
            assert announced == [f"{ROOT}/Chassis/served", *systems, FABRIC]
            with Fabric.open("served") as fabric:
                fabric.partitions.add("red")
            event = server.next()
            assert event["Context"] == _CONTEXT
            zone = f"{FABRIC}/Zones/partition-red"
            assert event["Events"][0]["OriginOfCondition"]["@odata.id"] == zone


def test_the_listener_is_that_of_the_reference_server_unless_named() -> None:
    assert listener_of("http://a:5000") == "http://a:5000/EventListener"
    assert listener_of("http://a:5000/") == "http://a:5000/EventListener"
    assert listener_of("http://a:5000/events") == "http://a:5000/events"
    with pytest.raises(RedfishError):
        listener_of("ftp://a")
