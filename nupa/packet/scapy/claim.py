# SPDX-License-Identifier: BSD-3-Clause
"""Who dissects RoCE in this process: these layers, or those of scapy's contrib/roce.

As soon as contrib/roce is loaded, by whom and when ever, UDP port 4791 and Ethertype 0x8915 are
its: a program that is written for its layers finds them.  `claim()` decides otherwise.
"""

from __future__ import annotations

import sys
from typing import Any

from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, split_layers

UDP_PORT = 4791  # A17.3.2
ETHERTYPE = 0x8915  # A16.4: RoCE

_SCAPYS = "scapy.contrib.roce"
_claimed = False


def claim() -> None:
    """NUPA's layers dissect RoCE from now on, also where scapy's contrib/roce is loaded."""
    global _claimed
    _claimed = True
    theirs = sys.modules.get(_SCAPYS)
    if theirs is not None:  # what is bound first is found first
        split_layers(UDP, theirs.BTH, dport=UDP_PORT)
        split_layers(Ether, theirs.GRH, type=ETHERTYPE)


def ours_or_scapys(ours: type[Packet], underlayer: Any) -> type[Packet]:
    """What dissects on top of *underlayer*: *ours*, or scapy's layer of that name."""
    theirs = None if _claimed else sys.modules.get(_SCAPYS)
    if theirs is None or not isinstance(underlayer, (UDP, Ether)):
        return ours
    return getattr(theirs, ours.__name__, ours)
