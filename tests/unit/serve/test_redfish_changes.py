# SPDX-License-Identifier: BSD-3-Clause
"""Redfish requests that change the fabric, and those that are refused and change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from nupa.fabric import Fabric
from nupa.serve.service import Options, Service
from tests.unit.serve.clients import ADMIN, own, stranger
from tests.unit.serve.redfish import (
    FABRIC,
    ROOT,
    ZONES,
    add_connection,
    add_partition,
    add_tenant,
    endpoint,
    message_of,
)


def test_a_zone_is_a_partition_whose_hosts_have_its_pkey(service: Service) -> None:
    client = own(service)
    answer = add_partition(client, "red", ["host0", "host1"], PKey="0x0012", ServiceLevel=3)
    assert answer.headers["location"] == f"{ZONES}/partition-red"
    with Fabric.open("served") as fabric:
        found = fabric.partitions.get("red")
        assert (found.pkey, found.service_level) == (0x12, 3)
        assert [fabric.host(host).pkeys for host in ("host0", "host1", "host2")] == [
            [0x8012],
            [0x8012],
            [0xFFFF],
        ]
        assert client.delete(answer.headers["location"]).status_code == 204
        assert fabric.host("host0").pkeys == [0xFFFF]
    assert client.get(answer.headers["location"]).status_code == 404


def test_members_of_a_zone_are_full_or_limited_and_come_and_go(service: Service) -> None:
    client = own(service)
    members = [
        {"Endpoint": endpoint("host0"), "Membership": "Limited", "KeepDefault": True},
        {"Endpoint": endpoint("host1"), "RateBytesPerSecond": 1000},
    ]
    body = {"Name": "red", "Oem": {"Nupa": {"PKey": "0x12", "Members": members}}}
    uri = client.post(ZONES, json=body).headers["location"]
    with Fabric.open("served") as fabric:
        assert sorted(fabric.host("host0").pkeys) == [0x0012, 0xFFFF]
        wanted = {"Links": {"Endpoints": [endpoint("host1"), endpoint("host2")]}}
        shown = client.patch(uri, json=wanted).json()
        assert shown["Links"]["Endpoints"] == wanted["Links"]["Endpoints"]
        # host1 stays, and keeps its rate.
        assert [each["RateBytesPerSecond"] for each in shown["Oem"]["Nupa"]["Members"]] == [1000, 0]
        assert fabric.host("host0").pkeys == [0xFFFF]


def test_a_zone_of_zones_is_a_tenant_with_hosts_and_quotas(service: Service) -> None:
    client = own(service)
    uri = add_tenant(client, "acme", ["host0"], RateBytesPerSecond=10**6, Quotas={"QPs": 4})
    inner = add_partition(client, "red", ["host0"], tenant="acme")
    uri = uri.headers["location"]
    wanted = {
        "Links": {"Endpoints": [endpoint("host0"), endpoint("host1")]},
        "Oem": {"Nupa": {"Quotas": {"MRs": 7}}},
    }
    shown = client.patch(uri, json=wanted).json()
    assert shown["Links"]["ContainsZones"] == [{"@odata.id": inner.headers["location"]}]
    with Fabric.open("served") as fabric:
        tenant = fabric.tenants.get("acme")
        assert [host.name for host in tenant.hosts] == ["host0", "host1"]
        assert (tenant.rate, tenant.quotas.qps, tenant.quotas.mrs) == (10**6, 4, 7)
    refused = client.delete(uri)
    assert (refused.status_code, message_of(refused)) == (409, "ResourceInUse")


def test_a_zone_that_cannot_have_all_of_its_members_is_not_made(service: Service) -> None:
    client = own(service)
    add_tenant(client, "acme", ["host0"])
    links = {
        "Endpoints": [endpoint("host0"), endpoint("host1")],
        "ContainedByZones": [{"@odata.id": f"{ZONES}/tenant-acme"}],
    }
    answer = client.post(ZONES, json={"Name": "red", "Links": links})
    assert answer.status_code == 403
    assert "host1" in answer.json()["error"]["message"]
    with Fabric.open("served") as fabric:
        assert "red" not in fabric.partitions


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "PropertyMissing"),
        ({"Name": 7}, 400, "PropertyValueTypeError"),
        ({"Name": True}, 400, "PropertyValueTypeError"),
        ({"Name": ""}, 400, "GeneralError"),
        ({"Name": "x" * 32}, 400, "GeneralError"),
        ({"Name": "x", "Color": "red"}, 400, "PropertyUnknown"),
        ({"Name": "x", "ZoneType": "Default"}, 400, "PropertyValueNotInList"),
        ({"Name": "x", "Oem": {"Nupa": {"PKey": "0x0000"}}}, 400, "PropertyValueFormatError"),
        ({"Name": "x", "Oem": {"Nupa": {"PKey": "0x7fff"}}}, 400, "PropertyValueFormatError"),
        ({"Name": "x", "Oem": {"Nupa": {"PKey": 18}}}, 400, "PropertyValueTypeError"),
        ({"Name": "x", "Oem": {"Nupa": {"ServiceLevel": 16}}}, 400, "GeneralError"),
        (
            {"Name": "x", "Oem": {"Nupa": {"RateBytesPerSecond": -1}}},
            400,
            "PropertyValueFormatError",
        ),
        ({"Name": "x", "Links": {"Endpoints": [7]}}, 400, "PropertyValueTypeError"),
        ({"Name": "x", "Links": {"Endpoints": [endpoint("host9")]}}, 400, "ResourceMissingAtURI"),
        ({"Name": "default"}, 409, "ResourceAlreadyExists"),
    ],
)
def test_a_zone_with_a_bad_property_is_refused(
    service: Service, body: dict[str, Any], status: int, message: str
) -> None:
    client = own(service)
    before = client.get(ZONES).json()["Members@odata.count"]
    answer = client.post(ZONES, json=body)
    assert (answer.status_code, message_of(answer)) == (status, message)
    assert client.get(ZONES).json()["Members@odata.count"] == before


def test_a_link_state_sets_both_ends_of_a_link(service: Service) -> None:
    client = own(service)
    uri = f"{FABRIC}/Switches/switch0/Ports/1"
    assert client.patch(uri, json={"LinkState": "Disabled"}).json()["LinkStatus"] == "LinkDown"
    states = {port["name"]: port["state"] for port in service.read()["ports"]}
    assert (states["host0/1"], states["switch0/1"], states["host1/1"]) == ("DOWN", "DOWN", "ACTIVE")
    uri = f"{ROOT}/Systems/host0/FabricAdapters/nupa_rdma0/Ports/1"
    assert client.patch(uri, json={"InterfaceEnabled": True}).json()["LinkState"] == "Enabled"
    both = {"LinkState": "Enabled", "InterfaceEnabled": False}
    assert message_of(client.patch(uri, json=both)) == "PropertyValueConflict"


def test_a_connection_is_a_region_that_hosts_share(service: Service) -> None:
    client = own(service)
    uri = add_connection(client, "log", ["host0", "host1"]).headers["location"]
    with Fabric.open("served") as fabric:
        (region,) = fabric.pool.regions()
        assert (region.tag, region.size, region.share) == ("log", 1 << 21, ("host1",))
        links = {"InitiatorEndpoints": [endpoint("host0"), endpoint("host2")]}
        assert client.patch(uri, json={"Links": links}).status_code == 200
        assert region.share == ("host2",)
        without_owner = {"Links": {"InitiatorEndpoints": [endpoint("host2")]}}
        assert message_of(client.patch(uri, json=without_owner)) == "PropertyValueConflict"
        assert client.delete(uri).status_code == 204
        assert fabric.pool.regions() == []


def test_a_patch_says_which_properties_it_left_alone(service: Service) -> None:
    client = own(service)
    uri = f"{FABRIC}/Switches/switch0/Ports/1"
    mixed = client.patch(uri, json={"LinkState": "Enabled", "LinkStatus": "LinkUp", "Color": 1})
    assert mixed.status_code == 200
    ids = [each["MessageId"].rpartition(".")[2] for each in mixed.json()["@Message.ExtendedInfo"]]
    assert ids == ["PropertyNotWritable", "PropertyUnknown"]
    # A property of another resource, which moves that one.
    assert client.patch(uri, json={"LinkState": "Enabled", "UserName": "x"}).status_code == 200
    assert client.patch(uri, json={"LinkStatus": "LinkUp"}).status_code == 400
    assert client.patch(uri, json={}).status_code == 400


def test_nothing_is_changed_without_allow_changes(service: Service) -> None:
    service.options = Options(allow_changes=False)
    client = own(service)
    answer = client.post(ZONES, json={"Name": "red"})
    assert (answer.status_code, message_of(answer)) == (403, "AccessDenied")
    assert "--allow-changes" in answer.json()["error"]["message"]
    port = f"{FABRIC}/Switches/switch0/Ports/1"
    assert client.patch(port, json={"LinkState": "Disabled"}).status_code == 403
    assert service.read()["ports"][0]["state"] == "ACTIVE"


@pytest.mark.parametrize(("role", "status"), [("ReadOnly", 403), ("Operator", 201)])
def test_a_role_decides_who_may_change_the_fabric(service: Service, role: str, status: int) -> None:
    service.accounts.add("somebody", "somebody's word", role)
    client = stranger(service, ("somebody", "somebody's word"))
    assert client.get(ZONES).status_code == 200
    assert client.post(ZONES, json={"Name": "red"}).status_code == status
    other = {"UserName": "other", "Password": "other's word", "RoleId": "Administrator"}
    answer = client.post(f"{ROOT}/AccountService/Accounts", json=other)
    assert message_of(answer) == "InsufficientPrivilege"
    admin = f"{ROOT}/AccountService/Accounts/{ADMIN[0]}"
    assert client.get(admin).status_code == 403
    assert client.patch(admin, json={"Password": "mine from now"}).status_code == 403
