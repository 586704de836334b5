# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403
"""The constants of verbs, by their C names, as typed enumerations.

Each member is also a name of this module, as in pyverbs.  Values are those of
infiniband/verbs.h; a test compares them with csrc/abi/verbs_abi_enums.h.

>>> IBV_QPT_RC is ibv_qp_type.IBV_QPT_RC
True
>>> ibv_access_flags(3)
<ibv_access_flags.IBV_ACCESS_LOCAL_WRITE|IBV_ACCESS_REMOTE_WRITE: 3>
"""

from __future__ import annotations

from enum import EnumType
from typing import TYPE_CHECKING

from nupa.verbs.enums.completion import *
from nupa.verbs.enums.device import *
from nupa.verbs.enums.flow import *
from nupa.verbs.enums.memory import *
from nupa.verbs.enums.queue import *

# Constants of no enumeration.
IBV_LINK_LAYER_UNSPECIFIED = 0
IBV_LINK_LAYER_INFINIBAND = 1
IBV_LINK_LAYER_ETHERNET = 2
IBV_QPF_GRH_REQUIRED = 1 << 0
IBV_WC_STANDARD_FLAGS = 0x7F
IBV_ACCESS_OPTIONAL_FIRST = 1 << 20
IBV_ADVISE_MR_FLAG_FLUSH = 1 << 0

IBV_DEVICE_RAW_SCATTER_FCS = 1 << 34
IBV_DEVICE_PCI_WRITE_END_PADDING = 1 << 36
IBV_ALLOCATOR_USE_DEFAULT = (1 << 64) - 1

# pyverbs gives these an underscore, because C has them as macros.
_IBV_DEVICE_RAW_SCATTER_FCS = IBV_DEVICE_RAW_SCATTER_FCS
_IBV_DEVICE_PCI_WRITE_END_PADDING = IBV_DEVICE_PCI_WRITE_END_PADDING
_IBV_ALLOCATOR_USE_DEFAULT = IBV_ALLOCATOR_USE_DEFAULT
_IBV_ADVISE_MR_ADVICE_PREFETCH = 0
_IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1
_IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2
_IBV_ADVISE_MR_FLAG_FLUSH = 1 << 0

for _kind in [kind for kind in list(globals().values()) if isinstance(kind, EnumType)]:
    # IntEnum and IntFlag have no members.
    globals().update(_kind.__members__)

if TYPE_CHECKING:
    # A member by its own name, as in `enums.IBV_QPT_RC`.
    def __getattr__(name: str) -> int: ...


__all__ = [name for name in globals() if name.upper().lstrip("_").startswith("IBV_")]
