# SPDX-License-Identifier: BSD-3-Clause
"""The pool as a memory domain: a memory chunk and a connection for each of its regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nupa.serve.redfish.endpoints import POOL
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.systems import chassis
from nupa.serve.redfish.view import Json, RedfishView, collection, link, links, resource, status

if TYPE_CHECKING:
    from nupa.serve.redfish.body import Body

_MIB = 1 << 20
_ACCESS = ["Read", "Write"]


def _domain_uri(view: RedfishView) -> str:
    return f"{view.chassis}/MemoryDomains/pool"


def domains(view: RedfishView, name: str) -> Json:
    chassis(view, name)
    uri = f"{view.chassis}/MemoryDomains"
    return collection(uri, "MemoryDomainCollection", "Memory domains", [_domain_uri(view)])


def domain(view: RedfishView, name: str, which: str) -> Json:
    chassis(view, name)
    if which != "pool":
        raise RedfishError("ResourceMissingAtURI", f"{view.chassis}/MemoryDomains/{which}")
    return resource(
        _domain_uri(view),
        "MemoryDomain.v1_5_1.MemoryDomain",
        "pool",
        f"Pool of {view.name}",
        AllowsMemoryChunkCreation=False,
        MemoryChunks=link(f"{_domain_uri(view)}/MemoryChunks"),
        Status=status(),
    )


def chunks(view: RedfishView, name: str, which: str) -> Json:
    uri = f"{domain(view, name, which)['@odata.id']}/MemoryChunks"
    members = [f"{uri}/{region}" for region in view.regions]
    return collection(uri, "MemoryChunksCollection", "Regions of the pool", members)


def chunk(view: RedfishView, name: str, which: str, region: str) -> Json:
    uri = f"{domain(view, name, which)['@odata.id']}/MemoryChunks/{region}"
    found = view.regions.get(region)
    if found is None:
        raise RedfishError("ResourceMissingAtURI", uri)
    return resource(
        uri,
        "MemoryChunks.v1_6_2.MemoryChunks",
        region,
        found["tag"] or region,
        # Less than 1 MiB is a chunk of 1.
        MemoryChunkSizeMiB=max(1, found["size"] // _MIB),
        AddressRangeType="Volatile",
        Status=_status(found),
        Links={"Endpoints": links([view.endpoint_uri(POOL)])},
    )


def _status(region: Json) -> Json:
    if region["revoked"]:
        return {"State": "UnavailableOffline", "Health": "Critical"}
    return {"State": "Enabled", "Health": "Warning" if region["orphan"] else "OK"}


def connections(view: RedfishView, name: str) -> Json:
    _check(view, name)
    uri = f"{view.fabric}/Connections"
    members = [f"{uri}/{region}" for region in view.regions]
    return collection(uri, "ConnectionCollection", "Regions that hosts share", members)


def _check(view: RedfishView, name: str) -> None:
    if name != view.name:
        raise RedfishError("ResourceMissingAtURI", f"/redfish/v1/Fabrics/{name}")


def connection(view: RedfishView, name: str, which: str) -> Json:
    _check(view, name)
    uri = f"{view.fabric}/Connections/{which}"
    found = view.regions.get(which)
    if found is None:
        raise RedfishError("ResourceMissingAtURI", uri)
    hosts = [found["host"], *(host for host in found["share"] if host != found["host"])]
    return resource(
        uri,
        "Connection.v1_4_0.Connection",
        which,
        found["tag"] or which,
        ConnectionType="Memory",
        MemoryChunkInfo=[
            {
                "AccessCapabilities": _ACCESS,
                "MemoryChunk": link(f"{_domain_uri(view)}/MemoryChunks/{which}"),
            }
        ],
        Status=_status(found),
        Links={
            "InitiatorEndpoints": links([view.endpoint_uri(host) for host in hosts]),
            "TargetEndpoints": links([view.endpoint_uri(POOL)]),
        },
        Oem={
            "Nupa": {
                "@odata.type": "#NupaConnection.v1_0_0.Connection",
                "SizeBytes": found["size"],
                "Coherence": found["coherence"].capitalize(),
                "Owner": link(view.endpoint_uri(found["host"])),
                "OwnerProcessId": found["pid"],
                "Windows": found["mapped"],
            }
        },
    )


def add_connection(view: RedfishView, body: Body, name: str) -> str:
    """Allocates a region that hosts share; returns its URI.

    Its owner is Oem.Nupa.Owner, else the first of InitiatorEndpoints; the others share it.
    """
    _check(view, name)
    tag = body.take("Name", str, "")
    body.take("ConnectionType", str, choices=("Memory",))
    wanted = body.object("Links")
    hosts = _hosts(view, wanted, "InitiatorEndpoints") or []
    targets = wanted.links("TargetEndpoints")
    oem = body.object("Oem").object("Nupa")
    size = oem.need("SizeBytes", int)
    coherence = oem.take("Coherence", str, "Hardware", choices=("Hardware", "Software"))
    owner = oem.link("Owner")
    body.finish()
    if targets not in (None, [], [view.endpoint_uri(POOL)]):
        raise RedfishError("PropertyValueConflict", "TargetEndpoints", "ConnectionType")
    first = view.id_in(owner, "Endpoints") if owner else hosts[0] if hosts else ""
    if first not in view.hosts:
        raise RedfishError("PropertyMissing", "InitiatorEndpoints", related="/Links")
    with view.changing() as fabric:
        made = fabric.pool.alloc(
            size,
            tag,
            share=[host for host in hosts if host != first],
            host=first,
            coherence=coherence.lower(),
            keep=True,
        )
    return f"{view.fabric}/Connections/{made.id:#x}"


def _hosts(view: RedfishView, body: Body, name: str) -> list[str] | None:
    """Takes links to endpoints of hosts."""
    uris = body.links(name)
    if uris is None:
        return None
    found = [view.id_in(uri, "Endpoints") for uri in uris]
    for host, uri in zip(found, uris, strict=True):
        if host not in view.hosts:
            raise RedfishError("ResourceMissingAtURI", uri, status=400)
    return found


def change_connection(view: RedfishView, body: Body, name: str, which: str) -> None:
    """Changes the hosts that share a region."""
    connection(view, name, which)
    hosts = _hosts(view, body.object("Links"), "InitiatorEndpoints")
    body.read_only("Id", "Name", "ConnectionType", "MemoryChunkInfo", "Status")
    if hosts is not None:
        owner = view.regions[which]["host"]
        if owner not in hosts:
            text = f"{owner} owns the region, and stays an initiator"
            raise RedfishError(
                "PropertyValueConflict", "InitiatorEndpoints", "Oem.Nupa.Owner", text=text
            )
        with view.changing() as fabric:
            found = fabric.pool.find(int(which, 16))
            found.share = [host for host in hosts if host != owner]


def remove_connection(view: RedfishView, name: str, which: str) -> None:
    """Frees a region."""
    connection(view, name, which)
    with view.changing() as fabric:
        fabric.pool.find(int(which, 16)).free()
