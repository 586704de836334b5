# SPDX-License-Identifier: BSD-3-Clause
"""Tenants of a fabric at its CXL switch: the devices and tags that a host may have.

A device is a member of a partition by its name (sld1, mld4), a tag of dynamic capacity by
`tag_name`.  An LD is judged by its tags when it is bound, and when capacity is added to it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from nupa.cxl.device.mld import Mld
from nupa.cxl.media.extents import NO_TAG
from nupa.cxl.site.site_capacity import WillingCapacity
from nupa.fabric.tenants.devices import objection, tag_name

if TYPE_CHECKING:
    from nupa.cxl.site.site import Site
    from nupa.cxl.switch.physical_port import PhysicalPort
    from nupa.fabric.fabric import Fabric


def keep_apart(site: Site, fabric: Fabric) -> None:
    """Lets the switch and the devices of *site* heed the tenants of *fabric*."""
    names = {
        number: device.name if isinstance(device, Mld) else device.function.name
        for number, device in site.devices.items()
    }

    def binding(host: int, port: PhysicalPort, ld: int | None) -> str:
        if port.number in names and (why := objection(fabric, host, names[port.number])):
            return why
        if ld is None or not isinstance(port.device, Mld) or port.device.dynamic is None:
            return ""
        capacity = port.device.dynamic.host(ld)
        tags = {extent.tag for extent in capacity.held()} - {NO_TAG}
        return next(filter(None, (_tag(fabric, host, tag) for tag in tags)), "")

    site.switch.objection = binding
    for number, device in site.devices.items():
        if isinstance(device, Mld) and isinstance(device.dynamic, WillingCapacity):
            device.dynamic.objection = partial(_capacity, site, fabric, number)


def _capacity(site: Site, fabric: Fabric, port: int, ld: int, tag: UUID) -> str:
    """Tells why an LD may not have capacity of a tag: its host is of another tenant."""
    bound = site.switch.port(port).bound.get(ld)
    for host, _vppb, binding in site.switch.bindings:
        if binding is bound:
            return _tag(fabric, host, tag)
    return ""


def _tag(fabric: Fabric, host: int, tag: UUID) -> str:
    return objection(fabric, host, tag_name(tag)).replace(tag_name(tag), f"the tag {tag}")
