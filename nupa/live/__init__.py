# SPDX-License-Identifier: BSD-3-Clause
"""A running fabric to look at: snapshots of its whole state, rates between them, those who follow.

Knows what a fabric, its interfaces and its machines show; changes nothing in them.  Encoders for
HTTP are nupa.serve's.
"""

from nupa.live.observed import Observed
from nupa.live.rates import FabricRates, TrafficRate, between
from nupa.live.snapshot import VERSION, Snapshot, take
from nupa.live.snapshots import Snapshots

__all__ = [
    "VERSION",
    "FabricRates",
    "Observed",
    "Snapshot",
    "Snapshots",
    "TrafficRate",
    "between",
    "take",
]
