# SPDX-License-Identifier: BSD-3-Clause
"""CXL devices of the chassis, and their logical devices (LD)."""

from __future__ import annotations

from nupa.serve.redfish.cxl import switch
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.view import (
    ROOT,
    Json,
    RedfishView,
    collection,
    link,
    resource,
    status,
)

_MIB = 1 << 20


def _check(view: RedfishView, name: str) -> None:
    if name != view.name:
        raise RedfishError("ResourceMissingAtURI", f"{ROOT}/Chassis/{name}")


def by_name(view: RedfishView) -> dict[str, Json]:
    """Returns the ports of the CXL switch that have a device, by its name (nupa.cxl.site)."""
    return {
        f"{port['device'].lower()}{port['port']}": port
        for port in view.cxl["ports"]
        if port["device"]
    }


def pcie_devices(view: RedfishView, name: str) -> Json:
    _check(view, name)
    uri = f"{view.chassis}/PCIeDevices"
    members = [f"{uri}/{device}" for device in by_name(view)]
    return collection(uri, "PCIeDeviceCollection", "CXL devices", members)


def pcie_device(view: RedfishView, name: str, which: str) -> Json:
    uri, port = _device(view, name, which)
    several = _logical(view, port)
    cxl_device: Json = {"DeviceType": "Type3"}
    if several:
        cxl_device["MaxNumberLogicalDevices"] = len(several["lds"])
    return resource(
        uri,
        "PCIeDevice.v1_21_0.PCIeDevice",
        which,
        which,
        Manufacturer="NUPA",
        Model="Emulated multi-logical device" if several else "Emulated memory device",
        DeviceType="SingleFunction",
        CXLDevice=cxl_device,
        CXLLogicalDevices=link(f"{uri}/CXLLogicalDevices") if several else None,
        Status=status(port["up"]),
        Links={
            "Chassis": [link(view.chassis)],
            "ConnectedPCIePorts": [link(switch.port_uri(view, port["port"]))],
        },
    )


def _device(view: RedfishView, name: str, which: str) -> tuple[str, Json]:
    """Returns the URI of a device, and its port."""
    _check(view, name)
    uri = f"{view.chassis}/PCIeDevices/{which}"
    found = by_name(view).get(which)
    if found is None:
        raise RedfishError("ResourceMissingAtURI", uri)
    return uri, found


def _logical(view: RedfishView, port: Json) -> Json | None:
    """Returns the logical devices at a port; None: it has a single one."""
    return next((row for row in view.cxl["logical_devices"] if row["port"] == port["port"]), None)


def logical_devices(view: RedfishView, name: str, which: str) -> Json:
    device, several = _several(view, name, which)
    uri = f"{device}/CXLLogicalDevices"
    members = [f"{uri}/{ld}" for ld in range(len(several["lds"]))]
    return collection(uri, "CXLLogicalDeviceCollection", f"Logical devices of {which}", members)


def _several(view: RedfishView, name: str, which: str) -> tuple[str, Json]:
    uri, port = _device(view, name, which)
    several = _logical(view, port)
    if several is None:
        raise RedfishError("ResourceMissingAtURI", f"{uri}/CXLLogicalDevices")
    return uri, several


def logical_device(view: RedfishView, name: str, which: str, ld: str) -> Json:
    device, several = _several(view, name, which)
    uri = f"{device}/CXLLogicalDevices/{ld}"
    number = {str(each): each for each in range(len(several["lds"]))}.get(ld)
    if number is None:
        raise RedfishError("ResourceMissingAtURI", uri)
    return resource(
        uri,
        "CXLLogicalDevice.v1_3_0.CXLLogicalDevice",
        ld,
        f"LD {ld} of {which}",
        MemorySizeMiB=(several["lds"][number] + several["dynamic_bytes"][number]) // _MIB,
        SemanticsSupported=["CXLio", "CXLmem"],
        QoS={
            "AllocatedBandwidth": _percent(several["bandwidth_256ths"][number]),
            "LimitPercent": _percent(several["limit_256ths"][number]),
        },
        Status=status(),
    )


def _percent(part: int) -> int:
    """Returns parts of 256 as a percentage."""
    return round(part * 100 / 256)
