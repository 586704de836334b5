# SPDX-License-Identifier: BSD-3-Clause
"""The fabric as the resources see it: one snapshot, with indices."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from nupa.base.errors import NupaError
from nupa.serve.redfish.errors import RedfishError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nupa.fabric import Fabric
    from nupa.serve.access.accounts import Caller
    from nupa.serve.redfish.subscriptions import Subscriptions
    from nupa.serve.service import Service

ROOT = "/redfish/v1"
Json = dict[str, Any]


class Uris:
    """URIs of the resources of the fabric *name*."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def fabric(self) -> str:
        """The URI of the fabric."""
        return f"{ROOT}/Fabrics/{quote(self.name, safe='')}"

    @property
    def chassis(self) -> str:
        """The URI of the chassis: the machine that carries the fabric."""
        return f"{ROOT}/Chassis/{quote(self.name, safe='')}"

    def processor_uri(self, accelerator: str) -> str:
        return f"{self.chassis}/Processors/accelerator-{quote(accelerator, safe='')}"

    def system_uri(self, host: str) -> str:
        return f"{ROOT}/Systems/{quote(host, safe='')}"

    def endpoint_uri(self, name: str) -> str:
        return f"{self.fabric}/Endpoints/{quote(name, safe='')}"

    def zone_uri(self, kind: str, name: str) -> str:
        """Returns the URI of a zone; *kind*: "tenant" or "partition"."""
        return f"{self.fabric}/Zones/{kind}-{quote(name, safe='')}"

    def id_in(self, uri: str, collection: str) -> str:
        """Returns the id of a member of one of the fabric's collections.

        RedfishError: the URI is that of another resource.
        """
        start = f"{self.fabric}/{collection}/"
        found = unquote(uri.removeprefix(start))
        if not uri.startswith(start) or "/" in found:
            raise RedfishError("ResourceMissingAtURI", uri, status=400)
        return found


class RedfishView(Uris):
    """What a request sees; made for each.

    service: of the server; caller: its account.
    """

    def __init__(self, service: Service, caller: Caller, subscriptions: Subscriptions) -> None:
        super().__init__(service.name)
        self.service, self.caller, self.subscriptions = service, caller, subscriptions
        self.hub = subscriptions.hub

    @cached_property
    def state(self) -> Json:
        """The fabric, as Fabric.show() has it.  RedfishError: it cannot be read."""
        try:
            return self.service.read()
        except (NupaError, OSError) as error:
            raise RedfishError("ServiceTemporarilyUnavailable", 5, text=str(error)) from error

    @contextmanager
    def changing(self) -> Iterator[Fabric]:
        """Opens the fabric for a change.  RedfishError: the server or the account forbids it."""
        if not self.service.options.allow_changes:
            text = "requests do not change the fabric: the server runs without --allow-changes"
            raise RedfishError("AccessDenied", self.fabric, text=text)
        if not self.caller.may("ConfigureComponents"):
            raise RedfishError("InsufficientPrivilege")
        with self.service.changing() as fabric:
            yield fabric

    @cached_property
    def hosts(self) -> dict[str, Json]:
        return {host["name"]: host for host in self.state["hosts"]}

    @cached_property
    def ports(self) -> dict[str, Json]:
        return {port["name"]: port for port in self.state["ports"]}

    @cached_property
    def switches(self) -> dict[str, list[Json]]:
        """The ports of each switch."""
        found: dict[str, list[Json]] = {}
        for port in self.state["ports"]:
            device = port["name"].rpartition("/")[0]
            if device not in self.hosts:
                found.setdefault(device, []).append(port)
        return found

    @cached_property
    def tenants(self) -> dict[str, Json]:
        return {tenant["name"]: tenant for tenant in self.state.get("tenants", [])}

    @cached_property
    def partitions(self) -> dict[str, Json]:
        return {partition["name"]: partition for partition in self.state.get("partitions", [])}

    @cached_property
    def accelerators(self) -> list[str]:
        """UALink ids of the accelerators that partitions have, each once."""
        found = {
            str(member["name"]): None
            for partition in self.partitions.values()
            for member in partition["members"]
            if member["kind"] == "accelerator"
        }
        return list(found)

    @cached_property
    def cxl(self) -> Json:
        """The CXL switch, as nupa.live.devices.Devices.switch() has it."""
        return self.service.devices.switch()

    @cached_property
    def regions(self) -> dict[str, Json]:
        return {region["id"]: region for region in self.state["regions"]}

    def port_uri(self, name: str) -> str:
        """Returns the URI of a port, of a switch or of a host's adapter."""
        device, _, number = name.rpartition("/")
        if device in self.hosts:
            return f"{self.system_uri(device)}/FabricAdapters/nupa_rdma0/Ports/{number}"
        return f"{self.fabric}/Switches/{quote(device, safe='')}/Ports/{number}"


def link(uri: str) -> Json:
    return {"@odata.id": uri}


def links(uris: list[str]) -> list[Json]:
    return [link(uri) for uri in uris]


def counted(name: str, uris: list[str]) -> Json:
    """Returns an array of links and its count."""
    return {name: links(uris), f"{name}@odata.count": len(uris)}


def resource(uri: str, kind: str, identifier: str, name: str, **properties: Any) -> Json:
    """Returns a resource; *kind*: `Zone.v1_6_0.Zone`; properties that are None are left out."""
    return {
        "@odata.id": uri,
        "@odata.type": f"#{kind}",
        "Id": identifier,
        "Name": name,
    } | {key: value for key, value in properties.items() if value is not None}


def collection(uri: str, kind: str, name: str, members: list[str]) -> Json:
    """Returns a collection; *kind*: `ZoneCollection`."""
    return (
        {
            "@odata.id": uri,
            "@odata.type": f"#{kind}.{kind}",
            "Name": name,
        }
        | counted("Members", members)
        | {"Members@odata.count": len(members)}
    )


def status(good: bool = True) -> Json:
    """Returns Status: enabled and well, or down."""
    if good:
        return {"State": "Enabled", "Health": "OK"}
    return {"State": "Disabled", "Health": "Warning"}


def timestamp(seconds: float) -> str:
    """Returns a time since the epoch as Redfish has it: in UTC, of whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
