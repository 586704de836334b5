# SPDX-License-Identifier: BSD-3-Clause
"""Connection management, under pyverbs' module name."""

from nupa.verbs.unsupported import (
    CMID,
    AddrInfo,
    CMEvent,
    CMEventChannel,
    ConnParam,
    JoinMCAttrEx,
    UDParam,
)

__all__ = ["CMID", "AddrInfo", "CMEvent", "CMEventChannel", "ConnParam", "JoinMCAttrEx", "UDParam"]
