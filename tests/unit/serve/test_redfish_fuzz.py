# SPDX-License-Identifier: BSD-3-Clause
"""Random requests: whatever is asked, no answer is a failure of the server."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from nupa.serve.service import Service
from tests.unit.serve.clients import ADMIN, own, stranger
from tests.unit.serve.redfish import (
    FABRIC,
    ROOT,
    add_connection,
    add_partition,
    add_tenant,
    endpoint,
)

_SEEDS = range(4)
_REQUESTS = 150
_METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW")
_PATHS = (
    *("", "/", "/odata", "/$metadata", "/JsonSchemas/Zone", "/Schemas/NupaZone_v1.xml"),
    *("/AccountService/Accounts", "/AccountService/Accounts/admin", "/SessionService/Sessions"),
    *("/SessionService", "/EventService/Subscriptions", "/EventService/Subscriptions/1"),
    *("/EventService/Actions/EventService.SubmitTestEvent", "/Systems/host0", "/Chassis/served"),
    *("/Fabrics/served/Zones", "/Fabrics/served/Zones/partition-red"),
    *("/Fabrics/served/Zones/tenant-acme", "/Fabrics/served/Zones/partition-default"),
    *("/Fabrics/served/Connections", "/Fabrics/served/Switches/switch0/Ports/1"),
    *("/Systems/host0/FabricAdapters/nupa_rdma0/Ports/1", "/Registries/Base"),
)
_NAMES = (
    *("Name", "ZoneType", "Links", "Endpoints", "ContainedByZones", "Oem", "Nupa", "PKey", "Kind"),
    *("Quotas", "QPs", "Members", "Endpoint", "Membership", "RateBytesPerSecond", "ServiceLevel"),
    *(
        "LinkState",
        "InterfaceEnabled",
        "UserName",
        "Password",
        "RoleId",
        "Enabled",
        "SessionTimeout",
    ),
    *(
        "Destination",
        "Protocol",
        "Context",
        "HttpHeaders",
        "Severities",
        "MessageArgs",
        "SizeBytes",
    ),
    *("InitiatorEndpoints", "TargetEndpoints", "Owner", "Coherence", "@odata.id", "KeepDefault"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**53, 2**64, 1e308, 0.5, "", "red", "x" * 300, "ZoneOfZones"),
    *("Enabled", "Disabled", "0x12", "0x7fff", "Full", "\x00", "é\u2028", "../../etc/passwd"),
    *("http://127.0.0.1:1/", "Administrator", "VirtualPod", endpoint("host0"), endpoint("host1")),
    *(endpoint("accelerator-1"), endpoint("accelerator-99999"), endpoint("device-"), [], {}),
)


def value(random_: random.Random, depth: int = 0) -> Any:
    draw = random_.random()
    if depth < 5 and draw < 0.4:
        count = random_.randrange(5)
        return {random_.choice(_NAMES): value(random_, depth + 1) for _ in range(count)}
    if depth < 5 and draw < 0.5:
        return [value(random_, depth + 1) for _ in range(random_.randrange(4))]
    return random_.choice(_VALUES)


def path(random_: random.Random) -> str:
    found = random_.choice(_PATHS)
    if random_.random() < 0.25:
        at = random_.randrange(len(found) + 1)
        found = (
            found[:at]
            + random_.choice(["%00", "%ff", "/..", "//", "?$top=1", "é", "%2F"])
            + found[at:]
        )
    return f"{ROOT}{found}"


def body(random_: random.Random) -> bytes:
    draw = random_.random()
    if draw < 0.1:
        return random_.randbytes(random_.randrange(200))
    content: Any = {random_.choice(_NAMES): value(random_) for _ in range(random_.randrange(6))}
    text = json.dumps(content).encode()
    return text[: random_.randrange(len(text) + 1)] if draw < 0.2 else text


@pytest.mark.parametrize("seed", _SEEDS)
def test_no_request_makes_the_server_fail(service: Service, seed: int) -> None:
    random_ = random.Random(seed)
    clients = [own(service), own(service), stranger(service), stranger(service, ADMIN)]
    add_tenant(clients[0], "acme", ["host2"])
    add_partition(clients[0], "red", ["host0"])
    add_connection(clients[0], "log", ["host0"])
    for _ in range(_REQUESTS):
        method, uri, content = random_.choice(_METHODS), path(random_), body(random_)
        headers = {"content-type": "application/json"} if random_.random() < 0.9 else {}
        if random_.random() < 0.1:
            headers[random_.choice(["If-Match", "If-None-Match", "Accept", "Authorization"])] = (
                random_.choice(["*", '"x"', "a/b;q=x,,", "Basic !", "Basic Og==", "Bearer x"])
            )
        client = random_.choice(clients)
        answer = client.request(method, uri, content=content, headers=headers)
        assert answer.status_code < 500 or answer.status_code in (501, 503), (
            f"seed {seed}: {method} {uri} {content!r}: {answer.status_code} {answer.text}"
        )
        if answer.status_code >= 400 and method != "HEAD":
            assert answer.json()["error"]["@Message.ExtendedInfo"], answer.text
    assert clients[0].get(FABRIC).status_code == 200
