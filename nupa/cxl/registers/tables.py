# SPDX-License-Identifier: BSD-3-Clause
"""All register tables of the model, by name: the output of `nupa fabric registers`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nupa.cxl.registers import component_tables as component
from nupa.cxl.registers import dvsec_tables as dvsec
from nupa.cxl.registers import ext_tables as ext
from nupa.cxl.registers import pci_tables as pci
from nupa.cxl.registers import pcie_tables as pcie
from nupa.cxl.registers.block import BitField
from nupa.cxl.registers.component import ComponentRegisters
from nupa.cxl.registers.device_tables import DeviceRegisters

_PCIE, _CXL = "PCIe 6.0", "CXL 3.1"
_GIB = 1 << 30


class RegisterTable(NamedTuple):
    """A table; sections are of *specification*."""

    name: str
    what: str
    specification: str
    rows: tuple[BitField, ...]


def blocks() -> Mapping[str, RegisterTable]:
    """Returns all tables by name, from configuration space to the registers of a memory device."""
    return {each.name: each for each in (*_configuration(), *_dvsecs(), *_component(), *_device())}


def _configuration() -> Iterable[RegisterTable]:
    bar = pci.Bar(0, 1 << 16)
    for name, what, rows in (
        ("type0", "header of an endpoint", pci.type0(0, 0, pci.CLASS_CXL_MEMORY, [bar])),
        ("type1", "header of a port", pci.type1(0, 0, [bar])),
        ("pcie", "PCI Express capability of a root port", pcie.pcie(pcie.PortType.ROOT)),
        ("pcie-device", "PCI Express capability of an endpoint", pcie.pcie(pcie.PortType.ENDPOINT)),
        ("msix", "MSI-X capability", pcie.msix(1, 4, 0, 0x800)),
        ("msix-table", "MSI-X table of one vector, in the BAR", pcie.msix_table(1)),
        ("msix-pending", "pending bits of one vector, in the BAR", pcie.msix_pending(1)),
        ("aer", "advanced error reporting of a root port", ext.aer(root=True)),
        ("dsn", "device serial number", ext.dsn(0)),
        ("acs", "access control services", ext.acs()),
        ("doe", "data object exchange mailbox", ext.doe()),
    ):
        yield RegisterTable(name, what, _PCIE, tuple(rows))


def _dvsecs() -> Iterable[RegisterTable]:
    """Yields the DVSECs (CXL 3.1 8.1, 8.2.1.3)."""
    locations = [dvsec.Location(dvsec.BlockId.COMPONENT, 0)]
    for what, each in (
        ("of a device with CXL.mem and CXL.cache", dvsec.device(_GIB, cache=True)),
        ("functions without CXL", dvsec.non_cxl_map()),
        ("of a port: a second set of buses and windows", dvsec.port_extensions()),
        ("of a port: timeouts of a global persistent flush", dvsec.gpf_port()),
        ("of a device: duration of a flush", dvsec.gpf_device()),
        ("protocols and modes of a port", dvsec.flex_bus()),
        ("places of register blocks", dvsec.register_locator(locations)),
        ("logical devices, of the fabric manager", dvsec.mld(16)),
    ):
        name = f"dvsec-{each.name.replace('_', '-')}"
        yield RegisterTable(name, f"DVSEC {each.number}: {what}", _CXL, each.rows)


def _component() -> Iterable[RegisterTable]:
    """Yields the component registers (CXL 3.1 8.2.4)."""
    hdm = component.hdm(1, targets=0)
    yield _of_space("component", "header of CXL.cachemem registers", ComponentRegisters([hdm]))
    for name, what, each in (
        ("ras", "errors, of a root port", component.ras(root=True)),
        ("link", "link layer", component.link()),
        ("hdm", "HDM decoders: one, of a device", hdm),
        ("hdm-port", "HDM decoders: one, of a host bridge or switch", component.hdm(1)),
        ("extended-security", "trust in root ports: one", component.extended_security(1)),
        ("snoop-filter", "snoop filter", component.snoop_filter(0, 0)),
        ("isolation", "timeouts and isolation, of a root port", component.isolation()),
        ("bi-route-table", "back-invalidate, of an upstream port", component.bi_route_table()),
        (
            "bi-decoder",
            "back-invalidate, of a port or device",
            component.bi_decoder(explicit_commit=True),
        ),
    ):
        yield RegisterTable(name, f"capability {each.number}: {what}", _CXL, each.rows)


def _device() -> Iterable[RegisterTable]:
    """Yields the device registers (CXL 3.1 8.2.8)."""
    space = DeviceRegisters()
    yield _of_space("device", "array of device capabilities", space)
    for name, block, what in (
        ("device-status", "status", "event logs that have records"),
        ("mailbox", "mailbox", "primary mailbox"),
        ("memory-device", "memory", "status of a memory device"),
    ):
        yield RegisterTable(name, what, _CXL, tuple(space[block].fields.values()))


def _of_space(name: str, what: str, space: ComponentRegisters | DeviceRegisters) -> RegisterTable:
    return RegisterTable(name, what, _CXL, tuple(space["capabilities"].fields.values()))
