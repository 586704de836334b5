# SPDX-License-Identifier: BSD-3-Clause
"""Fabrics, switches, ports and their metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from nupa.serve.redfish.cxl import switch as cxl
from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.view import ROOT, Json, RedfishView, collection, link, resource, status

if TYPE_CHECKING:
    from nupa.serve.redfish.body import Body

#: Data counters are in words of four octets: IBTA 16.1.3.5.
_WORD_BYTES = 4
_READ_ONLY = (
    *("LinkStatus", "PortId", "PortProtocol", "CurrentSpeedGbps", "MaxSpeedGbps", "Status"),
    *("Id", "Name", "Metrics", "Links", "PortType", "PortMedium", "ActiveWidth", "Width"),
)
_PROTOCOLS = {"infiniband": "InfiniBand", "ethernet": "RoCEv2", "ualink": "UALink"}


def protocol(view: RedfishView) -> str:
    """Returns the protocol of the fabric's hosts, of Redfish's Protocol enumeration."""
    layers = {host["link_layer"] for host in view.hosts.values()}
    return _PROTOCOLS.get(min(layers, default="ethernet"), "RoCEv2")


def fabrics(view: RedfishView) -> Json:
    return collection(f"{ROOT}/Fabrics", "FabricCollection", "Fabrics", [view.fabric])


def fabric(view: RedfishView, name: str) -> Json:
    _check_fabric(view, name)
    down = [port for port in view.ports.values() if port["state"] != "ACTIVE"]
    return resource(
        view.fabric,
        "Fabric.v1_4_0.Fabric",
        view.name,
        view.name,
        Description="Hosts and switches in shared memory of one machine",
        FabricType=protocol(view),
        MaxZones=None,
        Status={"State": "Enabled", "Health": "Warning" if down else "OK"},
        Switches=link(f"{view.fabric}/Switches"),
        Endpoints=link(f"{view.fabric}/Endpoints"),
        Zones=link(f"{view.fabric}/Zones"),
        Connections=link(f"{view.fabric}/Connections"),
    )


def _check_fabric(view: RedfishView, name: str) -> None:
    if name != view.name:
        raise RedfishError("ResourceMissingAtURI", f"{ROOT}/Fabrics/{name}")
    view.state  # noqa: B018 - it can be read


def switches(view: RedfishView, name: str) -> Json:
    _check_fabric(view, name)
    uri = f"{view.fabric}/Switches"
    members = [f"{uri}/{quote(switch, safe='')}" for switch in view.switches]
    if cxl.is_switch(view, cxl.SWITCH):
        members.append(cxl.switch_uri(view))
    return collection(uri, "SwitchCollection", "Switches", members)


def switch(view: RedfishView, name: str, which: str) -> Json:
    _check_fabric(view, name)
    if cxl.is_switch(view, which):
        return cxl.switch(view)
    ports = view.switches.get(which)
    if ports is None:
        raise _missing(view, f"Switches/{which}")
    uri = f"{view.fabric}/Switches/{quote(which, safe='')}"
    return resource(
        uri,
        "Switch.v1_11_0.Switch",
        which,
        which,
        SwitchType=protocol(view),
        SupportedProtocols=[protocol(view), "CXL"],
        Manufacturer="NUPA",
        Model="Emulated switch",
        CurrentBandwidthGbps=sum(port["nominal_gbps"] for port in ports),
        PowerState="On",
        Status=status(),
        Ports=link(f"{uri}/Ports"),
        Links={"Chassis": link(view.chassis)},
    )


def _missing(view: RedfishView, rest: str) -> RedfishError:
    return RedfishError("ResourceMissingAtURI", f"{view.fabric}/{rest}")


def ports(view: RedfishView, name: str, which: str) -> Json:
    switch(view, name, which)
    if cxl.is_switch(view, which):
        return cxl.ports(view)
    uri = f"{view.fabric}/Switches/{quote(which, safe='')}/Ports"
    members = [view.port_uri(port["name"]) for port in view.switches[which]]
    return collection(uri, "PortCollection", f"Ports of {which}", members)


def port(view: RedfishView, name: str, which: str, number: str) -> Json:
    _check_fabric(view, name)
    if cxl.is_switch(view, which):
        return cxl.port(view, number)
    found = _port(view, which, number)
    peer = found["peer"].rpartition("/")[0]
    if peer in view.hosts:
        connected = {"AssociatedEndpoints": [link(view.endpoint_uri(peer))]}
    else:
        uri = f"{view.fabric}/Switches/{quote(peer, safe='')}"
        connected = {
            "ConnectedSwitches": [link(uri)],
            "ConnectedSwitchPorts": [link(view.port_uri(found["peer"]))],
        }
    return port_of(view, found, Links=connected)


def _port(view: RedfishView, which: str, number: str) -> Json:
    found: Json | None = view.ports.get(f"{which}/{number}")
    if found is None or which in view.hosts:
        raise _missing(view, f"Switches/{which}/Ports/{number}")
    return found


def port_of(view: RedfishView, found: Json, **more: Json) -> Json:
    """Returns the Port of a port of the fabric; *more*: properties of its device."""
    number = found["name"].rpartition("/")[2]
    uri, up = view.port_uri(found["name"]), found["state"] == "ACTIVE"
    return resource(
        uri,
        "Port.v1_18_0.Port",
        number,
        found["name"],
        PortId=number,
        PortProtocol=protocol(view),
        PortMedium="Electrical",
        PortType="BidirectionalPort",
        LinkState="Enabled" if up else "Disabled",
        LinkStatus="LinkUp" if up else "LinkDown",
        InterfaceEnabled=up,
        LinkNetworkTechnology="InfiniBand" if protocol(view) == "InfiniBand" else "Ethernet",
        CurrentSpeedGbps=found["nominal_gbps"],
        MaxSpeedGbps=found["nominal_gbps"],
        ActiveWidth=int(found["width"][1:]),
        Width=int(found["width"][1:]),
        Status=status(up),
        Metrics=link(f"{uri}/Metrics"),
        **more,
    )


def metrics(view: RedfishView, name: str, which: str, number: str) -> Json:
    _check_fabric(view, name)
    return metrics_of(view, _port(view, which, number))


def metrics_of(view: RedfishView, found: Json, host: Json | None = None) -> Json:
    """Returns the PortMetrics of a port; *host*: whose port it is, for what its device counted."""
    counters = found["counters"]
    received = counters["port_rcv_data"] * _WORD_BYTES
    sent = counters["port_xmit_data"] * _WORD_BYTES
    networking: Json = {
        "RXFrames": counters["port_rcv_packets"],
        "TXFrames": counters["port_xmit_packets"],
        "TXDiscards": counters["port_xmit_discards"],
    }
    errors = 0
    if host is not None:
        counted = host["hw_counters"]
        errors = counted.get("rx_icrc_errors", 0) + counted.get("rx_invalid", 0)
        networking |= {
            "RXMulticastFrames": counted.get("multicast_rcv_packets", 0),
            "TXMulticastFrames": counted.get("multicast_xmit_packets", 0),
            "RDMARXBytes": received,
            "RDMATXBytes": sent,
            "RDMAProtectionErrors": counted.get("pkey_violations", 0)
            + counted.get("qkey_violations", 0),
            "RDMAProtocolErrors": counted.get("rx_out_of_sequence", 0)
            + counted.get("packet_seq_err", 0),
        }
    return resource(
        f"{view.port_uri(found['name'])}/Metrics",
        "PortMetrics.v1_8_1.PortMetrics",
        "Metrics",
        f"Metrics of {found['name']}",
        RXBytes=received,
        TXBytes=sent,
        RXErrors=errors,
        TXErrors=counters["port_xmit_discards"],
        Networking=networking,
    )


def set_port(view: RedfishView, body: Body, name: str, which: str, number: str) -> None:
    """Sets LinkState or InterfaceEnabled: a port, and its peer, up or down."""
    port(view, name, which, number)
    if cxl.is_switch(view, which):
        body.read_only("LinkState", "InterfaceEnabled", *_READ_ONLY)
        return
    patch_port(view, body, f"{which}/{number}")


def patch_port(view: RedfishView, body: Body, which: str) -> None:
    """Applies a PATCH to the port of that name."""
    wanted = body.take("LinkState", str, choices=("Enabled", "Disabled"))
    enabled = body.take("InterfaceEnabled", bool)
    body.read_only(*_READ_ONLY)
    up = enabled if wanted is None else wanted == "Enabled"
    if wanted is not None and enabled is not None and up != enabled:
        raise RedfishError("PropertyValueConflict", "LinkState", "InterfaceEnabled")
    if up is not None:
        with view.changing() as fabric:
            # Windows of stopped processes may take seconds; they act on it when they run.
            fabric.set_port(which, up, wait=False)
