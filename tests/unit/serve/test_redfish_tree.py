# SPDX-License-Identifier: BSD-3-Clause
"""The Redfish tree: links lead somewhere, types are declared, OEM properties fit their schema."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from starlette.testclient import TestClient

from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.serve.redfish import root, schemas
from nupa.serve.service import Service
from tests.unit.serve.clients import own
from tests.unit.serve.redfish import ROOT, add_connection, add_partition, add_tenant

_REFERENCES = "{http://docs.oasis-open.org/odata/ns/edmx}"


def crawl(client: TestClient) -> dict[str, dict[str, Any]]:
    """Returns all resources that links lead to from the service root, by URI."""
    found: dict[str, dict[str, Any]] = {}
    ahead = [f"{ROOT}/"]
    while ahead:
        uri = ahead.pop()
        if uri not in found:
            answer = client.get(uri)
            assert answer.status_code == 200, (uri, answer.text)
            found[uri] = answer.json()
            ahead += links(found[uri])
    return found


def links(value: Any) -> list[str]:
    if isinstance(value, list):
        return [uri for each in value for uri in links(each)]
    if isinstance(value, dict):
        inner = [uri for key, each in value.items() if key != "@odata.id" for uri in links(each)]
        return inner + ([value["@odata.id"]] if "@odata.id" in value else [])
    return []


@pytest.fixture
def tree(service: Service, fm: FabricManager) -> dict[str, dict[str, Any]]:
    client = own(service)
    fm.bind(0, 1, 3)
    add_tenant(client, "acme", ["host0", "host1"], Quotas={"QPs": 10})
    add_partition(client, "red", ["host0", "host1"], tenant="acme", PKey="0x0012")
    add_partition(client, "pod", ["accelerator-5", "device-cache"], Kind="VirtualPod")
    add_connection(client, "log", ["host0", "host1"])
    return crawl(client)


def test_each_resource_says_what_it_is_and_where(tree: dict[str, dict[str, Any]]) -> None:
    kinds = set()
    for uri, each in tree.items():
        assert each["@odata.id"] == uri
        name, *version, same = each["@odata.type"][1:].split(".")
        assert name == same
        assert "".join(version) == root.DMTF[name], uri
        assert name.endswith("Collection") or uri == f"{ROOT}/" or each["Id"], uri
        kinds.add(name)
    # Events and messages are no resources; the subscription is that of another test.
    assert set(root.DMTF) - kinds == {"Event", "EventDestination", "Message", "Session"}


def test_collections_count_their_members(tree: dict[str, dict[str, Any]]) -> None:
    for each in tree.values():
        if "Members" in each:
            assert each["Members@odata.count"] == len(each["Members"])


def test_oem_properties_fit_the_schemas_that_the_service_publishes(
    service: Service, tree: dict[str, dict[str, Any]]
) -> None:
    client, seen = own(service), set()
    for each in tree.values():
        oem = each.get("Oem", {}).get("Nupa")
        if oem is not None:
            kind = oem["@odata.type"][1:]
            file = tree[f"{ROOT}/JsonSchemas/{kind.partition('.')[0]}"]
            assert file["Schema"] == f"#{kind}"
            schema = client.get(file["Location"][0]["Uri"]).json()
            inside = json.dumps(schema).replace(
                "http://redfish.dmtf.org/schemas/v1/odata-v4.json#/definitions/idRef",
                "#/$defs/link",
            )
            found = json.loads(inside) | {"$defs": {"link": {"required": ["@odata.id"]}}}
            jsonschema.Draft7Validator.check_schema(found)
            jsonschema.Draft7Validator(found).validate(oem)
            seen.add(kind.partition(".")[0])
    assert seen == {"NupaConnection", "NupaZone"}


def test_metadata_names_each_schema_and_ours_are_there(service: Service) -> None:
    client = own(service)
    document = ET.fromstring(client.get(f"{ROOT}/$metadata").text)
    uris = [each.attrib["Uri"] for each in document.iter(f"{_REFERENCES}Reference")]
    assert len(uris) == len(set(uris)) == len(root.DMTF) + 2 + len(schemas.names())
    for uri in uris:
        if uri.startswith("/"):
            answer = client.get(uri)
            assert answer.headers["content-type"].startswith("application/xml")
            ET.fromstring(answer.text)


def test_counters_of_a_port_are_those_of_the_fabric(service: Service) -> None:
    found = own(service).get(f"{ROOT}/Systems/host0/FabricAdapters/nupa_rdma0/Ports/1/Metrics")
    shown = next(port for port in service.read()["ports"] if port["name"] == "host0/1")
    assert found.json()["RXBytes"] == shown["counters"]["port_rcv_data"] * 4


def test_a_fabric_that_is_gone_is_unavailable_and_the_service_stays(service: Service) -> None:
    import nupa.fabric

    client = own(service)
    nupa.fabric.Fabric.remove("served", force=True)
    assert client.get(f"{ROOT}/Fabrics/served").status_code == 503
    assert client.get(f"{ROOT}/").status_code == 200
    with nupa.fabric.Fabric.create("served", nupa.fabric.default_topology(2)):
        assert len(client.get(f"{ROOT}/Systems").json()["Members"]) == 2
