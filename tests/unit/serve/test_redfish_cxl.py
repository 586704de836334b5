# SPDX-License-Identifier: BSD-3-Clause
"""The CXL switch of `nupa fm serve`, its devices, and accelerators, as Redfish resources."""

from __future__ import annotations

from typing import Any

from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.serve.service import Service
from tests.unit.serve.clients import own
from tests.unit.serve.redfish import FABRIC, ROOT, add_partition, message_of

SWITCH = f"{FABRIC}/Switches/nupa-cxl"
CHASSIS = f"{ROOT}/Chassis/served"
MLD = f"{CHASSIS}/PCIeDevices/mld4"
_MIB = 1 << 20


def read(service: Service, uri: str) -> Any:
    answer = own(service).get(uri)
    assert answer.status_code == 200, answer.text
    return answer.json()


def bridge(service: Service, number: int) -> Any:
    """Returns a vPPB of host0's virtual switch."""
    return read(service, f"{SWITCH}/VCSs/0/VPPBs/{number}")


def test_the_switch_has_the_numbers_of_the_fabric_manager(
    service: Service, fm: FabricManager
) -> None:
    fm.bind(0, 1, 3)
    found, said = read(service, SWITCH)["CXL"], fm.switch()
    assert found["MaxVCSsSupported"] == said.virtual_switches == 3
    assert found["TotalNumbervPPBs"] == said.vppbs == 12
    assert found["NumberOfBoundvPPBs"] == said.bound_vppbs == 1
    assert found["TotalHDMDecoders"] == said.decoders
    ports = read(service, f"{SWITCH}/Ports")["Members"]
    kinds = [read(service, each["@odata.id"])["PortType"] for each in ports]
    assert kinds == ["UpstreamPort"] * 3 + ["DownstreamPort"] * 2
    assert {"@odata.id": SWITCH} in read(service, CHASSIS)["Links"]["Switches"]


def test_a_bridge_says_its_binding(service: Service, fm: FabricManager) -> None:
    fm.allocate(4, 0, [0, 512 * _MIB])
    fm.bind(0, 1, 3)
    fm.bind(0, 2, 4, 1)
    free, whole, part = (bridge(service, number) for number in range(3))
    assert free["BindingStatus"] == "Unbound"
    assert not {"BoundPortId", "BoundLDId", "Links"} & set(free)
    assert (whole["BindingStatus"], whole["BoundPortId"]) == ("BoundPhysicalPort", 3)
    assert "BoundLDId" not in whole
    assert (part["BindingStatus"], part["BoundPortId"], part["BoundLDId"]) == ("BoundLD", 4, 1)
    assert part["Links"]["Port"]["@odata.id"] == f"{SWITCH}/Ports/4"


def test_a_logical_device_has_its_memory_and_bandwidth(service: Service, fm: FabricManager) -> None:
    fm.allocate(4, 0, [256 * _MIB, 512 * _MIB])
    fm.set_bandwidth(4, 0, [64, 128])
    fm.set_bandwidth(4, 1, [192], limit=True)
    fm.bind(0, 1, 4, 1)
    members = read(service, f"{MLD}/CXLLogicalDevices")["Members"]
    assert len(members) == len(fm.logical_devices(4).lds)
    found = [read(service, each["@odata.id"]) for each in members[:2]]
    assert [each["MemorySizeMiB"] for each in found] == [256, 512]
    assert [each["QoS"]["AllocatedBandwidth"] for each in found] == [25, 50]
    assert found[1]["QoS"]["LimitPercent"] == 75


def test_dynamic_capacity_that_a_host_has_is_memory_of_its_logical_device(
    service: Service, fm: FabricManager
) -> None:
    fm.allocate(4, 1, [256 * _MIB])
    fm.bind(0, 1, 4, 1)
    fm.capacity(4).add(1, 0, 64 * _MIB)
    held = sum(extent.size for extent in fm.capacity(4).extents(1))
    assert held == 64 * _MIB
    assert read(service, f"{MLD}/CXLLogicalDevices/1")["MemorySizeMiB"] == 256 + 64


def test_what_is_not_at_the_switch_is_missing(service: Service, fm: FabricManager) -> None:
    client, lds = own(service), len(fm.logical_devices(4).lds)
    for uri in (
        f"{SWITCH}/Ports/5",
        f"{SWITCH}/Ports/0/Metrics",
        f"{SWITCH}/VCSs/3",
        f"{SWITCH}/VCSs/00",
        f"{SWITCH}/VCSs/0/VPPBs/4",
        f"{FABRIC}/Switches/switch0/VCSs",
        f"{CHASSIS}/PCIeDevices/mld3",
        f"{CHASSIS}/PCIeDevices/sld3/CXLLogicalDevices",
        f"{MLD}/CXLLogicalDevices/{lds}",
        f"{CHASSIS}/Processors/accelerator-1",
    ):
        assert client.get(uri).status_code == 404, uri


def test_a_port_of_the_cxl_switch_is_not_set(service: Service, fm: FabricManager) -> None:
    answer = own(service).patch(f"{SWITCH}/Ports/3", json={"LinkState": "Disabled"})
    assert (answer.status_code, message_of(answer)) == (400, "PropertyNotWritable")
    assert fm.ports([3])[0].up


def test_without_a_fabric_manager_there_is_no_cxl_switch(service: Service) -> None:
    client = own(service)
    assert SWITCH not in client.get(f"{FABRIC}/Switches").text
    assert SWITCH not in client.get(CHASSIS).text
    for uri in (SWITCH, f"{SWITCH}/Ports", f"{SWITCH}/VCSs"):
        assert client.get(uri).status_code == 404, uri
    assert client.get(f"{CHASSIS}/PCIeDevices").json()["Members"] == []


def test_accelerators_of_a_virtual_pod_are_processors(service: Service) -> None:
    client = own(service)
    add_partition(client, "pod", ["accelerator-0", "accelerator-1023"], Kind="VirtualPod")
    zone = client.get(f"{FABRIC}/Zones/partition-pod").json()
    found = []
    for each in zone["Links"]["Endpoints"]:
        endpoint = client.get(each["@odata.id"]).json()
        (entity,) = endpoint["ConnectedEntities"]
        assert (endpoint["EndpointProtocol"], entity["EntityType"]) == ("UALink", "Processor")
        processor = client.get(entity["EntityLink"]["@odata.id"]).json()
        assert processor["Links"]["Endpoints"] == [each]
        assert processor["ProcessorType"] == "Accelerator"
        found.append(processor["UALink"]["AcceleratorID"])
    assert found == [0, 1023]
    assert len(client.get(f"{CHASSIS}/Processors").json()["Members"]) == 2


def test_an_endpoint_of_a_device_links_to_it(service: Service, fm: FabricManager) -> None:
    client = own(service)
    add_partition(client, "pod", ["device-mld4", "device-cache"])
    (entity,) = client.get(f"{FABRIC}/Endpoints/device-mld4").json()["ConnectedEntities"]
    assert entity["EntityLink"]["@odata.id"] == MLD
    assert fm.ports([4])[0].device == "MLD"
    (entity,) = client.get(f"{FABRIC}/Endpoints/device-cache").json()["ConnectedEntities"]
    assert "EntityLink" not in entity
