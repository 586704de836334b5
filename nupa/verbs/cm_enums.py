# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: N801
"""The constants of rdma_cm, by their C names (rdma/rdma_cma.h), as typed enumerations."""

from __future__ import annotations

from enum import EnumType, IntEnum, IntFlag
from typing import TYPE_CHECKING


class rdma_cm_event_type(IntEnum):
    """rdma_cm_event.event."""

    RDMA_CM_EVENT_ADDR_RESOLVED = 0
    RDMA_CM_EVENT_ADDR_ERROR = 1
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2
    RDMA_CM_EVENT_ROUTE_ERROR = 3
    RDMA_CM_EVENT_CONNECT_REQUEST = 4
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5
    RDMA_CM_EVENT_CONNECT_ERROR = 6
    RDMA_CM_EVENT_UNREACHABLE = 7
    RDMA_CM_EVENT_REJECTED = 8
    RDMA_CM_EVENT_ESTABLISHED = 9
    RDMA_CM_EVENT_DISCONNECTED = 10
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11
    RDMA_CM_EVENT_MULTICAST_JOIN = 12
    RDMA_CM_EVENT_MULTICAST_ERROR = 13
    RDMA_CM_EVENT_ADDR_CHANGE = 14
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15
    RDMA_CM_EVENT_ADDRINFO_RESOLVED = 16
    RDMA_CM_EVENT_ADDRINFO_ERROR = 17
    RDMA_CM_EVENT_USER = 18
    RDMA_CM_EVENT_INTERNAL = 19


class rdma_port_space(IntEnum):
    """The spaces of port numbers."""

    RDMA_PS_IPOIB = 0x0002
    RDMA_PS_TCP = 0x0106
    RDMA_PS_UDP = 0x0111
    RDMA_PS_IB = 0x013F


class rdma_cm_join_mc_attr_mask(IntFlag):
    """rdma_cm_join_mc_attr_ex.comp_mask."""

    RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1 << 0
    RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1


class rdma_cm_mc_join_flags(IntEnum):
    """rdma_cm_join_mc_attr_ex.join_flags."""

    RDMA_MC_JOIN_FLAG_FULLMEMBER = 0
    RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1


# Constants of no enumeration: rdma_addrinfo.ai_flags, and levels and names of rdma_set_option().
RAI_PASSIVE = 0x1
RAI_NUMERICHOST = 0x2
RAI_NOROUTE = 0x4
RAI_FAMILY = 0x8
RAI_SA = 0x10
RAI_DNS = 0x20
RDMA_OPTION_ID = 0
RDMA_OPTION_ID_TOS = 0
RDMA_OPTION_ID_REUSEADDR = 1
RDMA_OPTION_ID_AFONLY = 2
RDMA_OPTION_ID_ACK_TIMEOUT = 3

for _kind in [kind for kind in list(globals().values()) if isinstance(kind, EnumType)]:
    # IntEnum and IntFlag have no members.
    globals().update(_kind.__members__)

if TYPE_CHECKING:
    # A member by its own name, as in `cm_enums.RDMA_PS_TCP`.
    def __getattr__(name: str) -> int: ...


__all__ = [name for name in globals() if name.upper().startswith(("RDMA_", "RAI_"))]
