# SPDX-License-Identifier: BSD-3-Clause
"""Names of records in a diagram."""

from __future__ import annotations

from nupa.packet.tables import cxl_cache as cache_tables
from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables import pcie as pcie_tables
from nupa.packet.tables.cxl_cache import CacheChannel
from nupa.packet.tables.cxl_mem import MemChannel
from nupa.packet.tables.record import Kind

_REQUESTS = (MemChannel.M2S_REQ, MemChannel.M2S_RWD)
_WITH_DATA = (MemChannel.M2S_RWD, MemChannel.S2M_DRS)
_COMPLETIONS = (0x0A, 0x0B)  # types of TLPs
_MESSAGE = 0x10
_STATUS = {1: "UR", 2: "RRS", 4: "CA"}  # PCIe 6.0, 2.2.9.1


def tlp_name(code: int, status: int = 0) -> str:
    """Names a TLP by its fmt and type: `MWr`, `CplD`, without 32 or 64.

    The name of an unsuccessful completion has its status.
    """
    name = pcie_tables.TYPES.get((code >> 5, code & 0x1F), f"TLP {code:#04x}")
    name = name.removesuffix("64").removesuffix("32")
    if is_completion(code) and status:
        return f"{name} {_STATUS.get(status, f'status {status}')}"
    return name


def is_completion(code: int) -> bool:
    return code & 0x1F in _COMPLETIONS


def is_completion_name(name: str) -> bool:
    return name.startswith("Cpl")


def cxl_name(code: int) -> str:
    """Names a CXL.mem message by channel and opcode: `M2S MemRd`."""
    number, opcode = code >> 4, code & 0xF
    if number not in cxl_tables.CHANNELS:
        return f"CXL.mem {code:#04x}"
    names = cxl_tables.OPCODES[MemChannel(number)]
    return f"{cxl_tables.CHANNELS[number].split()[0]} {names.get(opcode, f'{code:#04x}')}"


def cxl_has_data(code: int) -> bool:
    return code >> 4 in _WITH_DATA


def is_from_host(code: int) -> bool:
    """Tells whether a CXL.mem message is M2S."""
    return code >> 4 <= MemChannel.M2S_BIRSP


def cache_name(code: int) -> str:
    """Names a CXL.cache message by channel and opcode: `RdOwn`, `D2H Data`."""
    return cache_tables.name_of(code >> 5, code & 0x1F)


def cache_has_data(code: int) -> bool:
    return code >> 5 in cache_tables.DATA_CHANNELS


def is_d2h(code: int) -> bool:
    """Tells whether a CXL.cache message is D2H."""
    return code >> 5 <= CacheChannel.D2H_DATA


def _asks(kind: int, code: int) -> bool:
    if kind == Kind.CXL_MEM:
        return code >> 4 in _REQUESTS
    return kind == Kind.PCIE_TLP and not is_completion(code) and not code & _MESSAGE


#: by kind << 8 | code: whether it is a request for data or with data
ASKS: tuple[bool, ...] = tuple(_asks(index >> 8, index & 0xFF) for index in range(3 << 8))


def crossing_name(kind: int, code: int) -> str:
    """Names a transfer of which only TLPs or CXL.mem messages are known."""
    return f"CXL.mem {cxl_name(code)}" if kind == Kind.CXL_MEM else f"PCIe {tlp_name(code)}"
