# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints: hosts, the pool, and accelerators and CXL devices that partitions have."""

from __future__ import annotations

from nupa.serve.redfish.cxl import devices
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.fabrics import protocol
from nupa.serve.redfish.systems import host_status
from nupa.serve.redfish.view import Json, RedfishView, collection, link, links, resource, status

#: The endpoint of the pool, which no host may be named like.
POOL = "nupa-pool"
_KINDS = ("accelerator", "device")


def endpoints(view: RedfishView, name: str) -> Json:
    _check(view, name)
    members = [view.endpoint_uri(each) for each in (*view.hosts, POOL, *_others(view))]
    return collection(f"{view.fabric}/Endpoints", "EndpointCollection", "Endpoints", members)


def _check(view: RedfishView, name: str) -> None:
    if name != view.name:
        raise RedfishError("ResourceMissingAtURI", f"/redfish/v1/Fabrics/{name}")


def member_name(kind: str, name: str) -> str:
    """Returns the id of the endpoint of a partition's member."""
    return name if kind == "host" else f"{kind}-{name}"


def member_of(view: RedfishView, identifier: str) -> str:
    """Returns the member that an endpoint's id stands for, as Partition.join() takes it.

    RedfishError: the id is that of no host, accelerator or device.
    """
    kind, dash, rest = identifier.partition("-")
    if identifier in view.hosts:
        return identifier
    if dash and rest and kind in _KINDS:
        return f"{kind}:{rest}"
    raise RedfishError("ResourceMissingAtURI", view.endpoint_uri(identifier), status=400)


def zones_of(view: RedfishView, endpoint: str) -> list[str]:
    """Returns the URIs of the zones that an endpoint is in."""
    found = [
        view.zone_uri("tenant", view.hosts[endpoint]["tenant"])
        for _ in [0]
        if endpoint in view.hosts and view.hosts[endpoint].get("tenant") in view.tenants
    ]
    found += [
        view.zone_uri("partition", partition["name"])
        for partition in view.partitions.values()
        if any(member_name(m["kind"], str(m["name"])) == endpoint for m in partition["members"])
    ]
    return found


def _others(view: RedfishView) -> list[str]:
    """Returns the ids of endpoints that are known as members of partitions only."""
    found = {
        member_name(member["kind"], str(member["name"])): None
        for partition in view.partitions.values()
        for member in partition["members"]
        if member["kind"] != "host"
    }
    return list(found)


def endpoint(view: RedfishView, name: str, which: str) -> Json:
    _check(view, name)
    if which in view.hosts:
        return _host(view, which)
    if which == POOL:
        return _pool(view)
    if which not in _others(view):
        raise RedfishError("ResourceMissingAtURI", view.endpoint_uri(which))
    kind, _, rest = which.partition("-")
    return _member(view, which, kind, rest)


def _member(view: RedfishView, which: str, kind: str, rest: str) -> Json:
    """Returns the endpoint of an accelerator, or of a CXL device or tag, of that name."""
    accelerator = kind == "accelerator"
    entity: Json = {
        "EntityType": "Processor" if accelerator else "CXLDevice",
        "EntityRole": "Both" if accelerator else "Target",
    }
    if accelerator:
        entity["EntityLink"] = link(view.processor_uri(rest))
    elif rest in devices.by_name(view):
        entity["EntityLink"] = link(f"{view.chassis}/PCIeDevices/{rest}")
    return resource(
        view.endpoint_uri(which),
        "Endpoint.v1_8_2.Endpoint",
        which,
        f"Accelerator {rest}" if accelerator else rest,
        EndpointProtocol="UALink" if accelerator else "CXL",
        ConnectedEntities=[entity],
        Status=status(),
        Links={"Zones": links(zones_of(view, which))},
    )


def _host(view: RedfishView, name: str) -> Json:
    host = view.hosts[name]
    entity = {
        "EntityType": "RootComplex",
        "EntityRole": "Both",
        "EntityLink": link(view.system_uri(name)),
    }
    connected = [
        f"{view.fabric}/Connections/{identifier}"
        for identifier, region in view.regions.items()
        if name == region["host"] or name in region["share"]
    ]
    return resource(
        view.endpoint_uri(name),
        "Endpoint.v1_8_2.Endpoint",
        name,
        name,
        EndpointProtocol=protocol(view),
        ConnectedEntities=[entity],
        IPTransportDetails=[
            {
                "TransportProtocol": "RoCEv2",
                "IPv4Address": {"Address": host["ipv4"]},
            }
        ]
        if protocol(view) == "RoCEv2"
        else None,
        Identifiers=[{"DurableNameFormat": "EUI", "DurableName": _eui(host["mac"])}],
        Status=host_status(host),
        Links={
            "ConnectedPorts": links([view.port_uri(view.ports[host["port"]]["peer"])]),
            "LocalPorts": links([view.port_uri(host["port"])]),
            "Zones": links(zones_of(view, name)),
            "Connections": links(connected),
        },
    )


def _eui(mac: str) -> str:
    """Returns the EUI-64 of a MAC address (RFC 4291 A)."""
    octets = mac.upper().split(":")
    return "-".join([*octets[:3], "FF", "FE", *octets[3:]])


def _pool(view: RedfishView) -> Json:
    connections = [f"{view.fabric}/Connections/{identifier}" for identifier in view.regions]
    return resource(
        view.endpoint_uri(POOL),
        "Endpoint.v1_8_2.Endpoint",
        POOL,
        f"Pool of {view.name}",
        EndpointProtocol="CXL",
        ConnectedEntities=[{"EntityType": "MediaController", "EntityRole": "Target"}],
        Status=status(),
        Links={"Connections": links(connections)},
    )
