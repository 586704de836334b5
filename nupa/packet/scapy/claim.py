# SPDX-License-Identifier: BSD-3-Clause
"""Decides which layers dissect RoCE in this process: NUPA's, or those of scapy's contrib/roce.

Once contrib/roce is loaded, it has UDP port 4791 and Ethertype 0x8915, so programs written for its
layers work unchanged.  `claim()` gives both to NUPA's layers.
"""

from __future__ import annotations

import sys
from typing import Any

from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, split_layers

from nupa.packet.tables.ip import Ethertype

UDP_PORT = 4791  # A17.3.2

_SCAPYS = "scapy.contrib.roce"
_claimed = False


def claim() -> None:
    """Gives RoCE to NUPA's layers from now on, even if scapy's contrib/roce is loaded."""
    global _claimed
    _claimed = True
    theirs = sys.modules.get(_SCAPYS)
    if theirs is not None:  # scapy takes the layer that was bound first
        split_layers(UDP, theirs.BTH, dport=UDP_PORT)
        split_layers(Ether, theirs.GRH, type=int(Ethertype.ROCE))


def ours_or_scapys(ours: type[Packet], underlayer: Any) -> type[Packet]:
    """Returns the layer on top of *underlayer*: *ours*, or scapy's of that name."""
    theirs = None if _claimed else sys.modules.get(_SCAPYS)
    if theirs is None or not isinstance(underlayer, (UDP, Ether)):
        return ours
    return getattr(theirs, ours.__name__, ours)
