# SPDX-License-Identifier: BSD-3-Clause
"""The service root, its documents for OData, and the lists of schemas and registries."""

from __future__ import annotations

import uuid

from nupa import __version__
from nupa.serve.redfish import schemas
from nupa.serve.redfish.errors import REGISTRY, RedfishError
from nupa.serve.redfish.events import RESOURCE_EVENT
from nupa.serve.redfish.view import ROOT, Json, RedfishView, collection, link, resource

#: The version of DSP0266 that the service follows.
_PROTOCOL_VERSION = "1.20.0"
_SCHEMAS = "http://redfish.dmtf.org/schemas/v1"
_NAMESPACE = uuid.UUID("6b0f2f3a-6f0c-4a86-9a7d-6d1c3d2f6c10")
#: DMTF's schemas that resources of this service have: the name of the file, its namespaces.
DMTF = {
    "AccountService": "v1_18_1",
    "AggregationService": "v1_0_2",
    "CXLLogicalDevice": "v1_3_0",
    "CXLLogicalDeviceCollection": "",
    "Chassis": "v1_28_0",
    "ChassisCollection": "",
    "ComputerSystem": "v1_27_0",
    "ComputerSystemCollection": "",
    "Connection": "v1_4_0",
    "ConnectionCollection": "",
    "ConnectionMethod": "v1_1_1",
    "ConnectionMethodCollection": "",
    "Endpoint": "v1_8_2",
    "EndpointCollection": "",
    "Event": "v1_13_0",
    "EventDestination": "v1_16_0",
    "EventDestinationCollection": "",
    "EventService": "v1_12_0",
    "Fabric": "v1_4_0",
    "FabricAdapter": "v1_5_3",
    "FabricAdapterCollection": "",
    "FabricCollection": "",
    "JsonSchemaFile": "v1_1_5",
    "JsonSchemaFileCollection": "",
    "ManagerAccount": "v1_14_1",
    "ManagerAccountCollection": "",
    "MemoryChunks": "v1_6_2",
    "MemoryChunksCollection": "",
    "MemoryDomain": "v1_5_1",
    "MemoryDomainCollection": "",
    "Message": "v1_1_1",
    "MessageRegistryFile": "v1_1_5",
    "MessageRegistryFileCollection": "",
    "PCIeDevice": "v1_21_0",
    "PCIeDeviceCollection": "",
    "Port": "v1_18_0",
    "PortCollection": "",
    "PortMetrics": "v1_8_1",
    "Processor": "v1_22_0",
    "ProcessorCollection": "",
    "Role": "v1_3_3",
    "RoleCollection": "",
    "ServiceRoot": "v1_20_0",
    "Session": "v1_8_0",
    "SessionCollection": "",
    "SessionService": "v1_2_0",
    "Switch": "v1_11_0",
    "SwitchCollection": "",
    "VirtualCXLSwitch": "v1_0_0",
    "VirtualCXLSwitchCollection": "",
    "VirtualPCI2PCIBridge": "v1_0_0",
    "VirtualPCI2PCIBridgeCollection": "",
    "Zone": "v1_6_3",
    "ZoneCollection": "",
}
_REGISTRIES = {
    REGISTRY.partition(".")[0]: REGISTRY,
    RESOURCE_EVENT.partition(".")[0]: RESOURCE_EVENT,
}


def root(view: RedfishView) -> Json:
    return resource(
        f"{ROOT}/",
        "ServiceRoot.v1_20_0.ServiceRoot",
        "RootService",
        "NUPA",
        RedfishVersion=_PROTOCOL_VERSION,
        UUID=str(uuid.uuid5(_NAMESPACE, view.name)),
        Product=f"NUPA {__version__}",
        Vendor="NUPA",
        ProtocolFeaturesSupported={
            "ExcerptQuery": False,
            "FilterQuery": False,
            "OnlyMemberQuery": False,
            "SelectQuery": False,
            "MultipleHTTPRequests": True,
            "ExpandQuery": {
                "ExpandAll": False,
                "Levels": False,
                "Links": False,
                "NoLinks": False,
            },
        },
        AccountService=link(f"{ROOT}/AccountService"),
        AggregationService=link(f"{ROOT}/AggregationService"),
        Chassis=link(f"{ROOT}/Chassis"),
        EventService=link(f"{ROOT}/EventService"),
        Fabrics=link(f"{ROOT}/Fabrics"),
        JsonSchemas=link(f"{ROOT}/JsonSchemas"),
        Registries=link(f"{ROOT}/Registries"),
        SessionService=link(f"{ROOT}/SessionService"),
        Systems=link(f"{ROOT}/Systems"),
        Links={"Sessions": link(f"{ROOT}/SessionService/Sessions")},
    )


def versions(_view: RedfishView) -> Json:
    return {"v1": f"{ROOT}/"}


def odata(view: RedfishView) -> Json:
    """Returns the OData service document: DSP0266 7.5.3."""
    parts = {key: each for key, each in root(view).items() if isinstance(each, dict)}
    singles = [
        {"name": key, "kind": "Singleton", "url": each["@odata.id"]}
        for key, each in parts.items()
        if "@odata.id" in each
    ]
    sessions = {"name": "Sessions", "kind": "Singleton", "url": f"{ROOT}/SessionService/Sessions"}
    service = {"name": "Service", "kind": "Singleton", "url": f"{ROOT}/"}
    return {"@odata.context": f"{ROOT}/$metadata", "value": [service, *singles, sessions]}


def metadata() -> str:
    """Returns the OData metadata document, which names all schemas: DSP0266 7.5.2."""
    references = [
        _reference(f"{_SCHEMAS}/{name}_v1.xml", [name, *([f"{name}.{version}"] if version else [])])
        for name, version in DMTF.items()
    ]
    references.append(_reference(f"{_SCHEMAS}/Resource_v1.xml", ["Resource", "Resource.v1_0_0"]))
    references.append(
        _reference(
            f"{_SCHEMAS}/RedfishExtensions_v1.xml", ["RedfishExtensions.v1_0_0"], alias="Redfish"
        )
    )
    references += [
        _reference(f"{ROOT}/Schemas/{name}_v1.xml", schemas.namespaces(name))
        for name in schemas.names()
    ]
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">
{"".join(references)}  <edmx:DataServices>
    <Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">
      <EntityContainer Name="Service" Extends="ServiceRoot.v1_20_0.ServiceContainer"/>
    </Schema>
  </edmx:DataServices>
</edmx:Edmx>
"""


def _reference(uri: str, found: list[str], alias: str = "") -> str:
    named = f' Alias="{alias}"' if alias else ""
    inside = "".join(f'    <edmx:Include Namespace="{each}"{named}/>\n' for each in found)
    return f'  <edmx:Reference Uri="{uri}">\n{inside}  </edmx:Reference>\n'


def json_schemas(_view: RedfishView) -> Json:
    members = [f"{ROOT}/JsonSchemas/{name}" for name in [*_dmtf_files(), *schemas.names()]]
    return collection(f"{ROOT}/JsonSchemas", "JsonSchemaFileCollection", "Schemas", members)


def _dmtf_files() -> dict[str, str]:
    """Returns the JSON Schema file of each of DMTF's schemas, by name."""
    return {name: f"{name}.{version}" if version else name for name, version in DMTF.items()}


def json_schema_file(_view: RedfishView, which: str) -> Json:
    files = _dmtf_files()
    if which in files:
        kind = f"{files[which]}.{which}"
        where = {"PublicationUri": f"{_SCHEMAS}/{files[which]}.json"}
    elif which in schemas.names():
        kind = schemas.kind_of(which)
        where = {"Uri": f"{ROOT}/Schemas/{kind.rpartition('.')[0]}.json"}
    else:
        raise RedfishError("ResourceMissingAtURI", f"{ROOT}/JsonSchemas/{which}")
    return resource(
        f"{ROOT}/JsonSchemas/{which}",
        "JsonSchemaFile.v1_1_5.JsonSchemaFile",
        which,
        f"Schema {which}",
        Schema=f"#{kind}",
        Languages=["en"],
        Location=[{"Language": "en", **where}],
    )


def schema(_view: RedfishView, which: str) -> Json:
    """Returns one of our schemas as JSON Schema."""
    for name in schemas.names():
        if which == f"{schemas.kind_of(name).rpartition('.')[0]}.json":
            return schemas.json_schema(name)
    raise RedfishError("ResourceMissingAtURI", f"{ROOT}/Schemas/{which}")


def registries(_view: RedfishView) -> Json:
    members = [f"{ROOT}/Registries/{name}" for name in _REGISTRIES]
    return collection(f"{ROOT}/Registries", "MessageRegistryFileCollection", "Registries", members)


def registry(_view: RedfishView, which: str) -> Json:
    if which not in _REGISTRIES:
        raise RedfishError("ResourceMissingAtURI", f"{ROOT}/Registries/{which}")
    found = _REGISTRIES[which]
    published = f"https://redfish.dmtf.org/registries/{found}.0.json"
    return resource(
        f"{ROOT}/Registries/{which}",
        "MessageRegistryFile.v1_1_5.MessageRegistryFile",
        which,
        f"Registry {which}",
        Registry=found,
        Languages=["en"],
        Location=[{"Language": "en", "PublicationUri": published}],
    )
