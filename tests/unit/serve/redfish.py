# SPDX-License-Identifier: BSD-3-Clause
"""Requests that several tests of the Redfish service make."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

ROOT = "/redfish/v1"
FABRIC = f"{ROOT}/Fabrics/served"
ZONES = f"{FABRIC}/Zones"


def endpoint(name: str) -> dict[str, str]:
    return {"@odata.id": f"{FABRIC}/Endpoints/{name}"}


def add_tenant(client: TestClient, name: str, hosts: list[str], **oem: Any) -> Any:
    body = {
        "Name": name,
        "ZoneType": "ZoneOfZones",
        "Links": {"Endpoints": [endpoint(host) for host in hosts]},
        "Oem": {"Nupa": oem},
    }
    return _created(client.post(ZONES, json=body))


def add_partition(
    client: TestClient, name: str, members: list[str], tenant: str = "", **oem: Any
) -> Any:
    around = [{"@odata.id": f"{ZONES}/tenant-{tenant}"}] if tenant else []
    body = {
        "Name": name,
        "Links": {
            "Endpoints": [endpoint(member) for member in members],
            "ContainedByZones": around,
        },
        "Oem": {"Nupa": oem},
    }
    return _created(client.post(ZONES, json=body))


def add_connection(client: TestClient, name: str, hosts: list[str]) -> Any:
    body = {
        "Name": name,
        "ConnectionType": "Memory",
        "Links": {"InitiatorEndpoints": [endpoint(host) for host in hosts]},
        "Oem": {"Nupa": {"SizeBytes": 1 << 21}},
    }
    return _created(client.post(f"{FABRIC}/Connections", json=body))


def _created(answer: Any) -> Any:
    assert answer.status_code == 201, answer.text
    return answer


def message_of(answer: Any) -> str:
    """Returns the id of the first message of an error, without its registry."""
    infos = answer.json()["error"]["@Message.ExtendedInfo"]
    return str(infos[0]["MessageId"]).rpartition(".")[2]
