# SPDX-License-Identifier: BSD-3-Clause
"""The CXL switch of `nupa fm serve`: its ports, virtual switches (VCS) and their bridges (vPPB)."""

from __future__ import annotations

from nupa.serve.redfish.errors import RedfishError
from nupa.serve.redfish.view import Json, RedfishView, collection, link, resource, status

#: The switch's id, which no switch of a topology may have.
SWITCH = "nupa-cxl"
_BINDINGS = {
    "unbound": "Unbound",
    "in_progress": "Busy",
    "port": "BoundPhysicalPort",
    "ld": "BoundLD",
}
_PORT_TYPES = {
    "upstream": "UpstreamPort",
    "downstream": "DownstreamPort",
    "binding": "DownstreamPort",
    "unbinding": "DownstreamPort",
    "fabric": "InterswitchPort",
}


def is_switch(view: RedfishView, which: str) -> bool:
    """Tells whether *which* is the CXL switch, and a fabric manager answers."""
    return which == SWITCH and bool(view.cxl["served"])


def switch_uri(view: RedfishView) -> str:
    return f"{view.fabric}/Switches/{SWITCH}"


def port_uri(view: RedfishView, number: int) -> str:
    return f"{switch_uri(view)}/Ports/{number}"


def switch(view: RedfishView) -> Json:
    found, uri = view.cxl["switch"], switch_uri(view)
    return resource(
        uri,
        "Switch.v1_11_0.Switch",
        SWITCH,
        f"CXL switch of {view.name}",
        SwitchType="CXL",
        SupportedProtocols=["CXL"],
        Manufacturer="NUPA",
        Model="Emulated CXL switch",
        PowerState="On",
        Status=status(),
        CXL={
            "MaxVCSsSupported": found["virtual_switches"],
            "TotalNumbervPPBs": found["vppbs"],
            "NumberOfBoundvPPBs": found["bound_vppbs"],
            "TotalHDMDecoders": found["decoders"],
            "VirtualCXLSwitches": link(f"{uri}/VCSs"),
        },
        Ports=link(f"{uri}/Ports"),
        Links={"Chassis": link(view.chassis)},
    )


def ports(view: RedfishView) -> Json:
    uri = f"{switch_uri(view)}/Ports"
    members = [port_uri(view, port["port"]) for port in view.cxl["ports"]]
    return collection(uri, "PortCollection", f"Ports of {SWITCH}", members)


def port(view: RedfishView, number: str) -> Json:
    found = _at(view.cxl["ports"], "port", number, f"{switch_uri(view)}/Ports")
    return resource(
        port_uri(view, found["port"]),
        "Port.v1_18_0.Port",
        number,
        f"{SWITCH}/{number}",
        PortId=number,
        PortProtocol="CXL",
        PortMedium="Electrical",
        PortType=_PORT_TYPES.get(found["state"], "UnconfiguredPort"),
        LinkStatus="LinkUp" if found["up"] else "LinkDown",
        ActiveWidth=found["width"],
        Status=status(found["up"]),
    )


def _at(rows: list[Json], key: str, number: str, around: str) -> Json:
    """Returns the row with that number.  RedfishError: there is none."""
    for row in rows:
        if str(row[key]) == number:
            return row
    raise RedfishError("ResourceMissingAtURI", f"{around}/{number}")


def virtual_switches(view: RedfishView, name: str, which: str) -> Json:
    uri = _vcss_uri(view, name, which)
    members = [f"{uri}/{each['number']}" for each in view.cxl["virtual_switches"]]
    return collection(uri, "VirtualCXLSwitchCollection", "Virtual CXL switches", members)


def _vcss_uri(view: RedfishView, name: str, which: str) -> str:
    if name != view.name or not is_switch(view, which):
        missing = f"/redfish/v1/Fabrics/{name}/Switches/{which}/VCSs"
        raise RedfishError("ResourceMissingAtURI", missing)
    return f"{switch_uri(view)}/VCSs"


def _vcs(view: RedfishView, name: str, which: str, number: str) -> Json:
    around = _vcss_uri(view, name, which)
    return _at(view.cxl["virtual_switches"], "number", number, around)


def virtual_switch(view: RedfishView, name: str, which: str, number: str) -> Json:
    found = _vcs(view, name, which, number)
    uri = f"{switch_uri(view)}/VCSs/{number}"
    return resource(
        uri,
        "VirtualCXLSwitch.v1_0_0.VirtualCXLSwitch",
        number,
        f"Virtual CXL switch {number}",
        VCSId=number,
        Status=status(found["enabled"]),
        VPPBs=link(f"{uri}/VPPBs"),
        Links={"Port": link(port_uri(view, found["upstream_port"]))},
    )


def bridges(view: RedfishView, name: str, which: str, number: str) -> Json:
    found = _vcs(view, name, which, number)
    uri = f"{switch_uri(view)}/VCSs/{number}/VPPBs"
    members = [f"{uri}/{each['vppb']}" for each in found["vppbs"]]
    return collection(uri, "VirtualPCI2PCIBridgeCollection", f"vPPBs of VCS {number}", members)


def bridge(view: RedfishView, name: str, which: str, number: str, vppb: str) -> Json:
    around = f"{switch_uri(view)}/VCSs/{number}/VPPBs"
    found = _at(_vcs(view, name, which, number)["vppbs"], "vppb", vppb, around)
    # An identifier may be there only while its binding is.
    has_ld = found["status"] == "ld"
    bound = found["port"] if has_ld or found["status"] == "port" else None
    return resource(
        f"{around}/{vppb}",
        "VirtualPCI2PCIBridge.v1_0_0.VirtualPCI2PCIBridge",
        vppb,
        f"vPPB {vppb} of VCS {number}",
        VPPBId=vppb,
        BindingStatus=_BINDINGS[found["status"]],
        BoundPortId=bound,
        BoundLDId=found["ld"] if has_ld else None,
        Status=status(),
        Links=None if bound is None else {"Port": link(port_uri(view, bound))},
    )
