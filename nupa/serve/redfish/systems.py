# SPDX-License-Identifier: BSD-3-Clause
"""Hosts as computer systems with their adapters; the machine as chassis, with accelerators."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from nupa.serve.redfish import fabrics
from nupa.serve.redfish.cxl import switch as cxl
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.view import (
    ROOT,
    Json,
    RedfishView,
    collection,
    counted,
    link,
    links,
    resource,
    status,
)

if TYPE_CHECKING:
    from nupa.serve.redfish.body import Body

ADAPTER = "nupa_rdma0"
#: Status.State of a host's state.
_STATES = {
    "ready": "Enabled",
    "absent": "Absent",
    "onboarding": "Starting",
    "draining": "Quiesced",
    "failed": "UnavailableOffline",
}


def systems(view: RedfishView) -> Json:
    members = [view.system_uri(name) for name in view.hosts]
    return collection(f"{ROOT}/Systems", "ComputerSystemCollection", "Hosts", members)


def host_status(host: Json) -> Json:
    """Returns the Status of a host."""
    state = host.get("control_state", "ready")
    health = "Critical" if state == "failed" else "OK" if state == "ready" else "Warning"
    return {"State": _STATES.get(state, "Disabled"), "Health": health}


def _host(view: RedfishView, name: str) -> Json:
    found = view.hosts.get(name)
    if found is None:
        raise RedfishError("ResourceMissingAtURI", f"{ROOT}/Systems/{name}")
    return found


def system(view: RedfishView, name: str) -> Json:
    host = _host(view, name)
    uri = view.system_uri(name)
    return resource(
        uri,
        "ComputerSystem.v1_27_0.ComputerSystem",
        name,
        name,
        Description="A host of the fabric: processes that use its RDMA device",
        SystemType="Virtual",
        HostName=name,
        UUID=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{view.state['generation']}/{name}")),
        PowerState="On" if host.get("control_state", "ready") != "absent" else "Off",
        Status=host_status(host),
        FabricAdapters=link(f"{uri}/FabricAdapters"),
        Links={"Chassis": [link(view.chassis)], "Endpoints": [link(view.endpoint_uri(name))]},
    )


def adapters(view: RedfishView, name: str) -> Json:
    _host(view, name)
    uri = f"{view.system_uri(name)}/FabricAdapters"
    return collection(uri, "FabricAdapterCollection", f"Adapters of {name}", [f"{uri}/{ADAPTER}"])


def adapter(view: RedfishView, name: str, which: str) -> Json:
    host = _host(view, name)
    uri = f"{view.system_uri(name)}/FabricAdapters/{ADAPTER}"
    if which != ADAPTER:
        raise RedfishError("ResourceMissingAtURI", f"{uri.rpartition('/')[0]}/{which}")
    return resource(
        uri,
        "FabricAdapter.v1_5_3.FabricAdapter",
        ADAPTER,
        f"RDMA device of {name}",
        Manufacturer="NUPA",
        Model="Emulated RDMA device",
        FabricType=fabrics.protocol(view),
        Status=host_status(host),
        Ports=link(f"{uri}/Ports"),
        Links={"Endpoints": [link(view.endpoint_uri(name))]},
    )


def ports(view: RedfishView, name: str, which: str) -> Json:
    uri = f"{adapter(view, name, which)['@odata.id']}/Ports"
    members = [view.port_uri(port) for port in view.ports if port.rpartition("/")[0] == name]
    return collection(uri, "PortCollection", f"Ports of {name}", members)


def _port(view: RedfishView, name: str, which: str, number: str) -> Json:
    uri = adapter(view, name, which)["@odata.id"]
    found = view.ports.get(f"{name}/{number}")
    if found is None:
        raise RedfishError("ResourceMissingAtURI", f"{uri}/Ports/{number}")
    return found


def port(view: RedfishView, name: str, which: str, number: str) -> Json:
    found = _port(view, name, which, number)
    peer = link(view.port_uri(found["peer"]))
    kind = (
        "ConnectedPorts"
        if found["peer"].rpartition("/")[0] in view.hosts
        else ("ConnectedSwitchPorts")
    )
    made = fabrics.port_of(
        view,
        found,
        Links={kind: [peer], "AssociatedEndpoints": [link(view.endpoint_uri(name))]},
    )
    if made["PortProtocol"] == "RoCEv2":
        made["Ethernet"] = {"AssociatedMACAddresses": [view.hosts[name]["mac"].upper()]}
    return made


def metrics(view: RedfishView, name: str, which: str, number: str) -> Json:
    return fabrics.metrics_of(view, _port(view, name, which, number), view.hosts[name])


def set_port(view: RedfishView, body: Body, name: str, which: str, number: str) -> None:
    """Sets LinkState or InterfaceEnabled of a host's port."""
    fabrics.patch_port(view, body, _port(view, name, which, number)["name"])


def chassis_all(view: RedfishView) -> Json:
    return collection(f"{ROOT}/Chassis", "ChassisCollection", "Chassis", [view.chassis])


def chassis(view: RedfishView, name: str) -> Json:
    if name != view.name:
        raise RedfishError("ResourceMissingAtURI", f"{ROOT}/Chassis/{name}")
    switches = [f"{view.fabric}/Switches/{switch}" for switch in view.switches]
    if cxl.is_switch(view, cxl.SWITCH):
        switches.append(cxl.switch_uri(view))
    return resource(
        view.chassis,
        "Chassis.v1_28_0.Chassis",
        view.name,
        f"Machine of {view.name}",
        ChassisType="RackMount",
        Manufacturer="NUPA",
        PowerState="On",
        Status=status(),
        MemoryDomains=link(f"{view.chassis}/MemoryDomains"),
        PCIeDevices=link(f"{view.chassis}/PCIeDevices"),
        Processors=link(f"{view.chassis}/Processors"),
        Links={
            **counted("ComputerSystems", [view.system_uri(host) for host in view.hosts]),
            "Switches": links(switches),
        },
    )


def processors(view: RedfishView, name: str) -> Json:
    chassis(view, name)
    uri = f"{view.chassis}/Processors"
    members = [view.processor_uri(each) for each in view.accelerators]
    return collection(uri, "ProcessorCollection", "Accelerators in partitions", members)


def processor(view: RedfishView, name: str, which: str) -> Json:
    chassis(view, name)
    number = {f"accelerator-{each}": each for each in view.accelerators}.get(which)
    if number is None:
        raise RedfishError("ResourceMissingAtURI", f"{view.chassis}/Processors/{which}")
    return resource(
        view.processor_uri(number),
        "Processor.v1_22_0.Processor",
        which,
        f"Accelerator {number}",
        ProcessorType="Accelerator",
        UALink={"AcceleratorID": int(number)},
        Status=status(),
        Links={
            "Chassis": link(view.chassis),
            "Endpoints": links([view.endpoint_uri(which)]),
        },
    )
