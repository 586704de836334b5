# SPDX-License-Identifier: BSD-3-Clause
"""PCI registers beside linux/pci_regs.h: each of our fields is there, at the same place.

The header is the installed one (Debian: linux-libc-dev, which a C compiler brings).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from nupa.cxl.registers import ext_tables as ext
from nupa.cxl.registers import pci_tables as pci
from nupa.cxl.registers import pcie_tables as pcie
from nupa.cxl.registers.block import BitField

HEADER = Path("/usr/include/linux/pci_regs.h")
_DEFINE = re.compile(r"#define\s+(PCI_\w+)\s+(0x[0-9a-fA-F]+|\d+)\b")
if not HEADER.exists():
    pytest.skip(f"{HEADER} is missing: linux-libc-dev has it", allow_module_level=True)
NAMES = {name: int(value, 0) for name, value in _DEFINE.findall(HEADER.read_text())}

#: Our register: where Linux has it, and how the names of its bits begin ("": it has none).
HEADERS = {
    "vendor_id": ("PCI_VENDOR_ID", ""),
    "device_id": ("PCI_DEVICE_ID", ""),
    "command": ("PCI_COMMAND", "PCI_COMMAND_"),
    "status": ("PCI_STATUS", "PCI_STATUS_"),
    "revision_id": ("PCI_CLASS_REVISION", ""),
    "class_code": ("PCI_CLASS_PROG", ""),
    "cache_line_size": ("PCI_CACHE_LINE_SIZE", ""),
    "latency_timer": ("PCI_LATENCY_TIMER", ""),
    "header_type": ("PCI_HEADER_TYPE", "PCI_HEADER_TYPE_"),
    "bist": ("PCI_BIST", ""),
    "bar0": ("PCI_BASE_ADDRESS_0", ""),
    "capabilities_pointer": ("PCI_CAPABILITY_LIST", ""),
    "interrupt_line": ("PCI_INTERRUPT_LINE", ""),
    "interrupt_pin": ("PCI_INTERRUPT_PIN", ""),
}
TYPE0 = HEADERS | {
    "cardbus_cis_pointer": ("PCI_CARDBUS_CIS", ""),
    "subsystem_vendor_id": ("PCI_SUBSYSTEM_VENDOR_ID", ""),
    "subsystem_id": ("PCI_SUBSYSTEM_ID", ""),
    "expansion_rom": ("PCI_ROM_ADDRESS", ""),
    "min_gnt": ("PCI_MIN_GNT", ""),
    "max_lat": ("PCI_MAX_LAT", ""),
}
TYPE1 = HEADERS | {
    "primary_bus": ("PCI_PRIMARY_BUS", ""),
    "secondary_bus": ("PCI_SECONDARY_BUS", ""),
    "subordinate_bus": ("PCI_SUBORDINATE_BUS", ""),
    "secondary_latency_timer": ("PCI_SEC_LATENCY_TIMER", ""),
    "io_base": ("PCI_IO_BASE", ""),
    "io_limit": ("PCI_IO_LIMIT", ""),
    "secondary_status": ("PCI_SEC_STATUS", "PCI_STATUS_"),
    "memory_base": ("PCI_MEMORY_BASE", ""),
    "memory_limit": ("PCI_MEMORY_LIMIT", ""),
    "prefetchable_base": ("PCI_PREF_MEMORY_BASE", ""),
    "prefetchable_limit": ("PCI_PREF_MEMORY_LIMIT", ""),
    "prefetchable_base_upper": ("PCI_PREF_BASE_UPPER32", ""),
    "prefetchable_limit_upper": ("PCI_PREF_LIMIT_UPPER32", ""),
    "io_base_upper": ("PCI_IO_BASE_UPPER16", ""),
    "io_limit_upper": ("PCI_IO_LIMIT_UPPER16", ""),
    "expansion_rom": ("PCI_ROM_ADDRESS1", ""),
    "bridge_control": ("PCI_BRIDGE_CONTROL", "PCI_BRIDGE_CTL_"),
}
PCIE = {
    "capability_id": ("PCI_CAP_LIST_ID", ""),
    "next": ("PCI_CAP_LIST_NEXT", ""),
    "capabilities": ("PCI_EXP_FLAGS", "PCI_EXP_FLAGS_"),
    "device": ("PCI_EXP_DEVCAP", "PCI_EXP_DEVCAP_"),
    "device_control": ("PCI_EXP_DEVCTL", "PCI_EXP_DEVCTL_"),
    "device_status": ("PCI_EXP_DEVSTA", "PCI_EXP_DEVSTA_"),
    "link": ("PCI_EXP_LNKCAP", "PCI_EXP_LNKCAP_"),
    "link_control": ("PCI_EXP_LNKCTL", "PCI_EXP_LNKCTL_"),
    "link_status": ("PCI_EXP_LNKSTA", "PCI_EXP_LNKSTA_"),
    "slot": ("PCI_EXP_SLTCAP", "PCI_EXP_SLTCAP_"),
    "slot_control": ("PCI_EXP_SLTCTL", "PCI_EXP_SLTCTL_"),
    "slot_status": ("PCI_EXP_SLTSTA", "PCI_EXP_SLTSTA_"),
    "root_control": ("PCI_EXP_RTCTL", "PCI_EXP_RTCTL_"),
    "root": ("PCI_EXP_RTCAP", "PCI_EXP_RTCAP_"),
    "root_status": ("PCI_EXP_RTSTA", "PCI_EXP_RTSTA_"),
    "device_2": ("PCI_EXP_DEVCAP2", "PCI_EXP_DEVCAP2_"),
    "device_control_2": ("PCI_EXP_DEVCTL2", "PCI_EXP_DEVCTL2_"),
    "link_2": ("PCI_EXP_LNKCAP2", ""),
    "link_control_2": ("PCI_EXP_LNKCTL2", "PCI_EXP_LNKCTL2_"),
}
MSIX = {
    "capability_id": ("PCI_CAP_LIST_ID", ""),
    "next": ("PCI_CAP_LIST_NEXT", ""),
    "control": ("PCI_MSIX_FLAGS", "PCI_MSIX_FLAGS_"),
    "table": ("PCI_MSIX_TABLE", "PCI_MSIX_TABLE_"),
    "pending": ("PCI_MSIX_PBA", "PCI_MSIX_PBA_"),
}
AER = {
    "uncorrectable_status": ("PCI_ERR_UNCOR_STATUS", "PCI_ERR_UNC_"),
    "uncorrectable_mask": ("PCI_ERR_UNCOR_MASK", "PCI_ERR_UNC_"),
    "uncorrectable_severity": ("PCI_ERR_UNCOR_SEVER", "PCI_ERR_UNC_"),
    "correctable_status": ("PCI_ERR_COR_STATUS", "PCI_ERR_COR_"),
    "correctable_mask": ("PCI_ERR_COR_MASK", "PCI_ERR_COR_"),
    "control": ("PCI_ERR_CAP", "PCI_ERR_CAP_"),
    "header_log": ("PCI_ERR_HEADER_LOG", ""),
    "root_command": ("PCI_ERR_ROOT_COMMAND", "PCI_ERR_ROOT_CMD_"),
    "root_status": ("PCI_ERR_ROOT_STATUS", "PCI_ERR_ROOT_"),
    "source": ("PCI_ERR_ROOT_ERR_SRC", ""),
}
ACS = {"capability": ("PCI_ACS_CAP", "PCI_ACS_"), "control": ("PCI_ACS_CTRL", "PCI_ACS_")}
DOE = {
    "capability": ("PCI_DOE_CAP", "PCI_DOE_CAP_"),
    "control": ("PCI_DOE_CTRL", "PCI_DOE_CTRL_"),
    "status": ("PCI_DOE_STATUS", "PCI_DOE_STATUS_"),
    "write_mailbox": ("PCI_DOE_WRITE", ""),
    "read_mailbox": ("PCI_DOE_READ", ""),
}
#: Names that the header has as a macro with an argument, or not at all.
NOT_IN_LINUX = {
    "header_type.layout": 0x7F,
    "header_type.multi_function": 0x80,
    "root_status.pme_requester": 0xFFFF,
    "control.first_error": 0x1F,
    "link.aspm_optionality": 1 << 22,
    "link_control_2.target_speed": 0xF,
    "device_2.extended_fmt": 1 << 20,
    "uncorrectable_status.poisoned_tlp_blocked": 1 << 26,
    "uncorrectable_mask.poisoned_tlp_blocked": 1 << 26,
    "uncorrectable_severity.poisoned_tlp_blocked": 1 << 26,
    "prefix_log": 0,
}
EXTENDED = ("capability_id", "version", "next")  # as PCI_EXT_CAP_ID(), _VER() and _NEXT() have them
BAR = pci.Bar(0, 1 << 16)
BLOCKS = {
    "type0": (TYPE0, pci.type0(0, 0, 0, [BAR])),
    "type1": (TYPE1, pci.type1(0, 0, [BAR])),
    "pcie": (PCIE, pcie.pcie(pcie.PortType.ROOT)),
    "pcie-endpoint": (PCIE, pcie.pcie(pcie.PortType.ENDPOINT)),
    "msix": (MSIX, pcie.msix(8, 4, 0, 0x800)),
    "aer": (AER, ext.aer(root=True)),
    "acs": (ACS, ext.acs()),
    "doe": (DOE, ext.doe()),
}


@pytest.mark.parametrize("block", BLOCKS)
def test_each_field_is_where_linux_has_it(block: str) -> None:
    registers, rows = BLOCKS[block]
    checked = list(compare(registers, rows))
    assert len(checked) > 3
    assert {name.partition(".")[0] for name in checked} >= {
        register for register in registers if register not in _ROOT_OR_SLOT
    }


_ROOT_OR_SLOT = {"root_control", "root", "root_status", "slot", "slot_control", "slot_status"}


def compare(registers: dict[str, tuple[str, str]], rows: Iterable[BitField]) -> Iterable[str]:
    """Compare fields, and return the names of those that were compared."""
    for row in rows:
        register = row.name.partition(".")[0]
        if register not in registers:
            assert row.name in EXTENDED or row.name in NOT_IN_LINUX, row.name
            continue
        where, prefix = registers[register]
        low = row.low - 8 * NAMES[where]
        mask = row.largest << low
        if row.name in NOT_IN_LINUX:
            assert (row.name, mask) == (row.name, NOT_IN_LINUX[row.name])
        elif "." in row.name and prefix:
            masks = {value for name, value in NAMES.items() if name.startswith(prefix)}
            assert mask in masks, f"{row.name}: {where} has no field {mask:#x}"
        else:
            assert 0 <= low < 32, f"{row.name}: it is not in {where}"
        yield row.name


def test_ids_and_kinds_are_linuxs() -> None:
    assert NAMES["PCI_CAP_ID_EXP"] == pcie.PCIE_ID
    assert NAMES["PCI_CAP_ID_MSIX"] == pcie.MSIX_ID
    for ours, name in (
        (ext.AER_ID, "ERR"),
        (ext.DSN_ID, "DSN"),
        (ext.ACS_ID, "ACS"),
        (ext.DVSEC_ID, "DVSEC"),
        (ext.DOE_ID, "DOE"),
    ):
        assert ours == NAMES[f"PCI_EXT_CAP_ID_{name}"]
    for kind, name in (
        (pcie.PortType.ENDPOINT, "ENDPOINT"),
        (pcie.PortType.ROOT, "ROOT_PORT"),
        (pcie.PortType.UPSTREAM, "UPSTREAM"),
        (pcie.PortType.DOWNSTREAM, "DOWNSTREAM"),
    ):
        assert kind == NAMES[f"PCI_EXP_TYPE_{name}"]
