# SPDX-License-Identifier: BSD-3-Clause
"""Zones: a tenant is a zone of zones, a partition or virtual pod a zone of endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nupa.base.errors import NupaError
from nupa.serve.redfish.endpoints import member_name, member_of
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.view import Json, RedfishView, collection, link, links, resource, status

if TYPE_CHECKING:
    from nupa.fabric import Fabric
    from nupa.serve.redfish.body import Body

_OEM_TYPE = "#NupaZone.v1_0_0.Zone"
_KINDS = {"Partition": "partition", "VirtualPod": "vpod"}
_KIND_NAMES = {kind: name for name, kind in _KINDS.items()}
_QUOTAS = {
    "QPs": "qps",
    "MRs": "mrs",
    "RegisteredBytes": "registered_bytes",
    "PoolBytes": "pool_bytes",
    "Attachments": "attachments",
}
_DEFAULT_PKEY = 0x7FFF
_READ_ONLY = ("Id", "Status", "ZoneType", "ExternalAccessibility", "Identifiers")


def zones(view: RedfishView, name: str) -> Json:
    _check(view, name)
    members = [view.zone_uri("tenant", each) for each in view.tenants]
    members += [view.zone_uri("partition", each) for each in view.partitions]
    return collection(f"{view.fabric}/Zones", "ZoneCollection", "Zones", members)


def _check(view: RedfishView, name: str) -> None:
    if name != view.name:
        raise RedfishError("ResourceMissingAtURI", f"/redfish/v1/Fabrics/{name}")


def zone(view: RedfishView, name: str, which: str) -> Json:
    _check(view, name)
    kind, found = _find(view, which)
    return _tenant(view, found) if kind == "tenant" else _partition(view, found)


def _find(view: RedfishView, which: str) -> tuple[str, Json]:
    kind, _, rest = which.partition("-")
    found = {"tenant": view.tenants, "partition": view.partitions}.get(kind, {}).get(rest)
    if found is None:
        raise RedfishError("ResourceMissingAtURI", f"{view.fabric}/Zones/{which}")
    return kind, found


def _tenant(view: RedfishView, tenant: Json) -> Json:
    name = tenant["name"]
    inside = [view.zone_uri("partition", each) for each in tenant["partitions"]]
    return resource(
        view.zone_uri("tenant", name),
        "Zone.v1_6_3.Zone",
        f"tenant-{name}",
        name,
        Description="A tenant: hosts that share nothing with those of others",
        ZoneType="ZoneOfZones",
        ExternalAccessibility="ZoneOnly",
        Status=status(),
        Links={
            "Endpoints": links([view.endpoint_uri(host) for host in tenant["hosts"]]),
            "Endpoints@odata.count": len(tenant["hosts"]),
            "ContainsZones": links(inside),
            "ContainsZones@odata.count": len(inside),
        },
        Oem={
            "Nupa": {
                "@odata.type": _OEM_TYPE,
                "TenantId": tenant["id"],
                "RateBytesPerSecond": tenant["rate"],
                "Quotas": {key: tenant["quotas"][each] for key, each in _QUOTAS.items()},
                "Used": {key: tenant["used"][each] for key, each in _QUOTAS.items()},
            }
        },
    )


def _partition(view: RedfishView, partition: Json) -> Json:
    name, tenant = partition["name"], partition["tenant"]
    members = [
        (view.endpoint_uri(member_name(member["kind"], str(member["name"]))), member)
        for member in partition["members"]
    ]
    around = [view.zone_uri("tenant", tenant)] if tenant else []
    is_default = partition["pkey"] == _DEFAULT_PKEY
    return resource(
        view.zone_uri("partition", name),
        "Zone.v1_6_3.Zone",
        f"partition-{name}",
        name,
        Description="A partition: endpoints that reach each other",
        ZoneType="Default" if is_default else "ZoneOfEndpoints",
        ExternalAccessibility="ZoneOnly",
        DefaultRoutingEnabled=True,
        Status=status(),
        Links={
            "Endpoints": links([uri for uri, _ in members]),
            "Endpoints@odata.count": len(members),
            "ContainedByZones": links(around),
            "ContainedByZones@odata.count": len(around),
        },
        Oem={
            "Nupa": {
                "@odata.type": _OEM_TYPE,
                "PKey": f"0x{partition['pkey']:04x}",
                "Kind": _KIND_NAMES.get(partition["kind"], "Partition"),
                "ServiceLevel": partition["service_level"],
                "RateBytesPerSecond": partition["rate"],
                "ManagedBySubnetManager": bool(partition.get("managed", False)),
                "Members": [
                    {
                        "Endpoint": link(uri),
                        "Membership": member["membership"].capitalize(),
                        "RateBytesPerSecond": member["rate"],
                        "ServiceLevel": member["service_level"],
                    }
                    for uri, member in members
                ],
            }
        },
    )


class _Wish(NamedTuple):
    """A member of a request, and the options of Partition.join()."""

    member: str
    options: dict[str, Any]


def _wishes(view: RedfishView, uris: list[str] | None, oem: Body) -> list[_Wish] | None:
    """Takes Oem.Nupa.Members; endpoints of Links that it lacks are full members.

    None: the request names no members.
    """
    found: dict[str, _Wish] = {}
    listed = oem.objects("Members")
    for each in listed or []:
        uri = each.link("Endpoint")
        if uri is None:
            raise RedfishError("PropertyMissing", "Endpoint", related="/Oem/Nupa/Members")
        options: dict[str, Any] = {
            "membership": each.take("Membership", str, "Full", choices=("Full", "Limited")).lower(),
            "rate": each.take("RateBytesPerSecond", int, 0),
            "service_level": each.take("ServiceLevel", int, 0),
            "keep_default": each.take("KeepDefault", bool, False),
        }
        member = member_of(view, view.id_in(uri, "Endpoints"))
        found[member] = _Wish(member, options)
    for uri in uris or []:
        member = member_of(view, view.id_in(uri, "Endpoints"))
        if listed is not None and uris is not None and member not in found and listed:
            found[member] = _Wish(member, {})
        found.setdefault(member, _Wish(member, {}))
    return None if uris is None and listed is None else list(found.values())


def add_zone(view: RedfishView, body: Body, name: str) -> str:
    """Makes a tenant or partition; returns its URI."""
    _check(view, name)
    zone_type = body.take(
        "ZoneType", str, "ZoneOfEndpoints", choices=("ZoneOfEndpoints", "ZoneOfZones")
    )
    called = body.need("Name", str)
    body.take("Description", str)
    body.take("ExternalAccessibility", str, choices=("ZoneOnly",))
    body.take("DefaultRoutingEnabled", bool)
    if zone_type == "ZoneOfZones":
        return _add_tenant(view, body, called)
    return _add_partition(view, body, called)


def _add_tenant(view: RedfishView, body: Body, called: str) -> str:
    from nupa.fabric.tenants.tenant import Quotas

    inside = body.object("Links")
    hosts = [view.id_in(uri, "Endpoints") for uri in inside.links("Endpoints") or []]
    oem = body.object("Oem").object("Nupa")
    rate = oem.take("RateBytesPerSecond", int, 0)
    quotas = Quotas(**_taken_quotas(oem))
    body.finish()
    _check_hosts(view, hosts)
    _check_new(view.tenants, called)
    with view.changing() as fabric:
        tenant = fabric.tenants.add(called, rate=rate, quotas=quotas)
        try:
            for host in hosts:
                tenant.assign(host)
        except NupaError:
            fabric.tenants.remove(called, force=True)
            raise
    return view.zone_uri("tenant", called)


def _check_new(there: dict[str, Json], called: str) -> None:
    if called in there:
        raise RedfishError("ResourceAlreadyExists", "Zone", "Name", called, related="/Name")


def _check_hosts(view: RedfishView, hosts: list[str]) -> None:
    for host in hosts:
        if host not in view.hosts:
            text = f"{host!r} is no host: a tenant has hosts, and its partitions have the rest"
            raise RedfishError("GeneralError", text=text, related="/Links/Endpoints")


def _taken_quotas(oem: Body) -> dict[str, int]:
    quotas = oem.object("Quotas")
    taken = {each: quotas.take(key, int) for key, each in _QUOTAS.items()}
    return {key: value for key, value in taken.items() if value is not None}


def _add_partition(view: RedfishView, body: Body, called: str) -> str:
    inside = body.object("Links")
    uris, around = inside.links("Endpoints"), inside.links("ContainedByZones")
    oem = body.object("Oem").object("Nupa")
    options = {
        "pkey": _pkey(oem),
        "service_level": oem.take("ServiceLevel", int, 0),
        "rate": oem.take("RateBytesPerSecond", int, 0),
        "kind": _KINDS[oem.take("Kind", str, "Partition", choices=_KINDS)],
        "tenant": _tenant_of(view, around or []),
    }
    wishes = _wishes(view, uris, oem) or []
    body.finish()
    _check_new(view.partitions, called)
    with view.changing() as fabric:
        partition = fabric.partitions.add(called, **options)
        try:
            for wish in wishes:
                partition.join(wish.member, **wish.options)
        except NupaError:
            fabric.partitions.remove(called)
            raise
    return view.zone_uri("partition", called)


def _tenant_of(view: RedfishView, around: list[str]) -> str | None:
    if not around:
        return None
    if len(around) > 1:
        text = "a partition belongs to one tenant: name one zone"
        raise RedfishError("GeneralError", text=text, related="/Links/ContainedByZones")
    kind, found = _find(view, view.id_in(around[0], "Zones"))
    if kind != "tenant":
        raise RedfishError("PropertyValueConflict", "ContainedByZones", "ZoneType")
    return str(found["name"])


def _pkey(oem: Body) -> int | None:
    text = oem.take("PKey", str)
    if text is None:
        return None
    try:
        found = int(text, 16) & _DEFAULT_PKEY if len(text) <= 6 else 0
    except ValueError:
        found = 0
    if not 0 < found < _DEFAULT_PKEY:
        why = f"PKey is {text[:20]!r}, and must be a string from 0x0001 to 0x7ffe"
        raise RedfishError(
            "PropertyValueFormatError", text[:20], "PKey", text=why, related="/Oem/Nupa/PKey"
        )
    return found


def change_zone(view: RedfishView, body: Body, name: str, which: str) -> None:
    """Changes the endpoints, rates, quotas and service level of a zone."""
    _check(view, name)
    kind, found = _find(view, which)
    body.read_only(*_READ_ONLY, "Name", "Description", "DefaultRoutingEnabled")
    inside = body.object("Links")
    inside.read_only("ContainsZones", "ContainedByZones", "InvolvedSwitches")
    oem = body.object("Oem").object("Nupa")
    oem.read_only("TenantId", "Used", "Kind", "ManagedBySubnetManager", "PKey")
    if kind == "tenant":
        _change_tenant(view, inside, oem, found)
    else:
        _change_partition(view, inside, oem, found)


def _change_tenant(view: RedfishView, inside: Body, oem: Body, found: Json) -> None:
    uris = inside.links("Endpoints")
    hosts = None if uris is None else [view.id_in(uri, "Endpoints") for uri in uris]
    rate = oem.take("RateBytesPerSecond", int)
    quotas = _taken_quotas(oem)
    _check_hosts(view, hosts or [])
    if hosts is None and rate is None and not quotas:
        return
    with view.changing() as fabric:
        tenant = fabric.tenants.get(found["name"])
        if rate is not None or quotas:
            tenant.set(rate=rate, quotas=tenant.quotas._replace(**quotas) if quotas else None)
        if hosts is not None:
            for host in set(found["hosts"]) - set(hosts):
                tenant.release(host)
            for host in [each for each in hosts if each not in found["hosts"]]:
                tenant.assign(host)


def _change_partition(view: RedfishView, inside: Body, oem: Body, found: Json) -> None:
    wishes = _wishes(view, inside.links("Endpoints"), oem)
    rate = oem.take("RateBytesPerSecond", int)
    level = oem.take("ServiceLevel", int)
    if wishes is None and rate is None and level is None:
        return
    with view.changing() as fabric:
        partition = fabric.partitions.get(found["name"])
        if rate is not None or level is not None:
            partition.set(rate=rate, service_level=level)
        if wishes is not None:
            _set_members(partition, wishes)


def _set_members(partition: Any, wishes: list[_Wish]) -> None:
    """Makes the members those of *wishes*; members that stay keep what no wish changes."""
    before = {str(member): member for member in partition.members}
    wanted = {wish.member for wish in wishes}
    # New members first: a host between two partitions is never without a P_Key.
    for wish in wishes:
        if wish.options or wish.member not in before:
            partition.join(wish.member, **wish.options)
    for name, member in before.items():
        if name not in wanted:
            partition.leave(member)


def remove_zone(view: RedfishView, name: str, which: str) -> None:
    """Removes a tenant, which must be empty, or a partition, whose members leave it."""
    _check(view, name)
    kind, found = _find(view, which)
    with view.changing() as fabric:
        _remove(fabric, kind, found["name"])


def _remove(fabric: Fabric, kind: str, called: str) -> None:
    if kind == "tenant":
        fabric.tenants.remove(called)
    else:
        fabric.partitions.remove(called)
