# SPDX-License-Identifier: BSD-3-Clause
"""The resources of the service: the path of each, and what its methods call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

from nupa.serve.redfish import (
    accounts,
    endpoints,
    eventservice,
    fabrics,
    memory,
    root,
    sunfish,
    systems,
    zones,
)
from nupa.serve.redfish.cxl import devices
from nupa.serve.redfish.cxl import switch as cxl
from nupa.serve.redfish.view import ROOT

Call = Callable[..., Any]


class Resource(NamedTuple):
    """The functions of a path; each takes the view, PATCH and POST a Body, then the path's ids.

    get returns the resource; post makes a member and returns its URI; action returns nothing.
    """

    get: Call | None = None
    patch: Call | None = None
    post: Call | None = None
    delete: Call | None = None
    action: Call | None = None

    @property
    def methods(self) -> list[str]:
        """The methods of the path, as the header Allow lists them."""
        found = ["GET", "HEAD"] if self.get else []
        found += ["PATCH"] if self.patch else []
        found += ["POST"] if self.post or self.action else []
        return found + (["DELETE"] if self.delete else [])


_F = "Fabrics/{}"
_ADAPTER = "Systems/{}/FabricAdapters/{}"
_VCSS = f"{_F}/Switches/{{}}/VCSs"
_DEVICES = "Chassis/{}/PCIeDevices"
_POOL = "Chassis/{}/MemoryDomains"
#: By the path below /redfish/v1; {} stands for an id.
_TREE = {
    "": Resource(root.root),
    "odata": Resource(root.odata),
    "JsonSchemas": Resource(root.json_schemas),
    "JsonSchemas/{}": Resource(root.json_schema_file),
    "Schemas/{}": Resource(root.schema),
    "Registries": Resource(root.registries),
    "Registries/{}": Resource(root.registry),
    "AggregationService": Resource(sunfish.aggregation_service),
    "AggregationService/ConnectionMethods": Resource(sunfish.methods),
    "AggregationService/ConnectionMethods/{}": Resource(sunfish.method),
    "AccountService": Resource(accounts.account_service),
    "AccountService/Accounts": Resource(accounts.accounts, post=accounts.add_account),
    "AccountService/Accounts/{}": Resource(
        accounts.account, patch=accounts.change_account, delete=accounts.remove_account
    ),
    "AccountService/Roles": Resource(accounts.roles),
    "AccountService/Roles/{}": Resource(accounts.role),
    "SessionService": Resource(accounts.session_service, patch=accounts.change_session_service),
    "SessionService/Sessions": Resource(accounts.sessions, post=accounts.open_session),
    "SessionService/Sessions/{}": Resource(accounts.session, delete=accounts.close_session),
    "EventService": Resource(eventservice.service),
    "EventService/Subscriptions": Resource(
        eventservice.subscriptions, post=eventservice.add_subscription
    ),
    "EventService/Subscriptions/{}": Resource(
        eventservice.subscription,
        patch=eventservice.change_subscription,
        delete=eventservice.remove_subscription,
    ),
    "EventService/Actions/EventService.SubmitTestEvent": Resource(action=eventservice.submit_test),
    "Fabrics": Resource(fabrics.fabrics),
    _F: Resource(fabrics.fabric),
    f"{_F}/Switches": Resource(fabrics.switches),
    f"{_F}/Switches/{{}}": Resource(fabrics.switch),
    f"{_F}/Switches/{{}}/Ports": Resource(fabrics.ports),
    f"{_F}/Switches/{{}}/Ports/{{}}": Resource(fabrics.port, patch=fabrics.set_port),
    f"{_F}/Switches/{{}}/Ports/{{}}/Metrics": Resource(fabrics.metrics),
    _VCSS: Resource(cxl.virtual_switches),
    f"{_VCSS}/{{}}": Resource(cxl.virtual_switch),
    f"{_VCSS}/{{}}/VPPBs": Resource(cxl.bridges),
    f"{_VCSS}/{{}}/VPPBs/{{}}": Resource(cxl.bridge),
    f"{_F}/Endpoints": Resource(endpoints.endpoints),
    f"{_F}/Endpoints/{{}}": Resource(endpoints.endpoint),
    f"{_F}/Zones": Resource(zones.zones, post=zones.add_zone),
    f"{_F}/Zones/{{}}": Resource(zones.zone, patch=zones.change_zone, delete=zones.remove_zone),
    f"{_F}/Connections": Resource(memory.connections, post=memory.add_connection),
    f"{_F}/Connections/{{}}": Resource(
        memory.connection, patch=memory.change_connection, delete=memory.remove_connection
    ),
    "Systems": Resource(systems.systems),
    "Systems/{}": Resource(systems.system),
    "Systems/{}/FabricAdapters": Resource(systems.adapters),
    _ADAPTER: Resource(systems.adapter),
    f"{_ADAPTER}/Ports": Resource(systems.ports),
    f"{_ADAPTER}/Ports/{{}}": Resource(systems.port, patch=systems.set_port),
    f"{_ADAPTER}/Ports/{{}}/Metrics": Resource(systems.metrics),
    "Chassis": Resource(systems.chassis_all),
    "Chassis/{}": Resource(systems.chassis),
    _DEVICES: Resource(devices.pcie_devices),
    f"{_DEVICES}/{{}}": Resource(devices.pcie_device),
    f"{_DEVICES}/{{}}/CXLLogicalDevices": Resource(devices.logical_devices),
    f"{_DEVICES}/{{}}/CXLLogicalDevices/{{}}": Resource(devices.logical_device),
    "Chassis/{}/Processors": Resource(systems.processors),
    "Chassis/{}/Processors/{}": Resource(systems.processor),
    _POOL: Resource(memory.domains),
    f"{_POOL}/{{}}": Resource(memory.domain),
    f"{_POOL}/{{}}/MemoryChunks": Resource(memory.chunks),
    f"{_POOL}/{{}}/MemoryChunks/{{}}": Resource(memory.chunk),
}
_BY_WORDS = [(tuple(path.split("/")) if path else (), each) for path, each in _TREE.items()]


def find(path: str) -> tuple[Resource, list[str]] | None:
    """Returns the resource at a path, as it stands in the URI, and the ids in it."""
    if path.rstrip("/") == "/redfish":
        return Resource(root.versions), []
    if path.rstrip("/") != ROOT and not path.startswith(f"{ROOT}/"):
        return None
    rest = path[len(ROOT) :].strip("/")
    words = tuple(rest.split("/")) if rest else ()
    for wanted, found in _BY_WORDS:
        if len(wanted) == len(words) and all(
            want in ("{}", word) for want, word in zip(wanted, words, strict=True)
        ):
            ids = [word for want, word in zip(wanted, words, strict=True) if want == "{}"]
            return found, [unquote(each, errors="replace") for each in ids]
    return None
