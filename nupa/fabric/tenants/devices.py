# SPDX-License-Identifier: BSD-3-Clause
"""CXL devices and tags of dynamic capacity as members of partitions: which hosts may have them."""

from __future__ import annotations

from base64 import b32decode, b32encode
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from nupa.fabric.tenants.newcomer import device_states

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric

_TAG = "tag-"


def tag_name(tag: UUID) -> str:
    """Returns the name of a tag as a member: 30 characters, as a UUID's own text is too long.

    >>> tag_name(UUID(int=1))
    'tag-aaaaaaaaaaaaaaaaaaaaaaaaae'
    """
    return f"{_TAG}{b32encode(tag.bytes).decode().rstrip('=').lower()}"


def tag_of(device: str) -> UUID | None:
    """Returns the tag that a member's name is of; None: it is none.

    >>> tag_of(tag_name(UUID(int=7))) == UUID(int=7), tag_of("tag-x"), tag_of("sld1")
    (True, None, None)
    """
    if device.startswith(_TAG):
        with suppress(ValueError):
            return UUID(bytes=b32decode(f"{device.removeprefix(_TAG).upper()}======"))
    return None


def objection(fabric: Fabric, host: int, device: str) -> str:
    """Tells why a host may not have a device or a tag; empty: it may.

    A device that is a member of partitions is for hosts of their tenants; any other is for all.
    One that has a state is for nobody until it is ready.
    """
    state = device_states(fabric).get(device, "ready")
    if state != "ready":
        return f"{device} is {state}: `nupa host add` makes it ready"
    partitions = [
        partition
        for partition in fabric.partitions
        if any(member.kind == "device" and member.name == device for member in partition.members)
    ]
    tenant = fabric.tenants.of_host(host)
    number = tenant.id if tenant else 0
    if not partitions or any(partition.tenant_id == number for partition in partitions):
        return ""
    return (
        f"{device} is a member of {', '.join(each.name for each in partitions)}, and "
        f"{fabric.hosts[host].name} is of {f'tenant {tenant.name}' if tenant else 'no tenant'}"
    )
