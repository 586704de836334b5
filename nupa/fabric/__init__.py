# SPDX-License-Identifier: BSD-3-Clause
"""Fabrics: hosts, switches, ports, links, and the shared segment that stands for them.

Knows topologies and routes, where segments are kept, who is attached, port states and counters, and
the pool's memory; never rings, queue pairs or what is in a message.
"""

from nupa.fabric.errors import FabricError, LocalError, NupaError, RemoteError
from nupa.fabric.fabric import Fabric
from nupa.fabric.pool import PoolMemory
from nupa.fabric.topology import Topology, TopologyError

__all__ = [
    "Fabric",
    "FabricError",
    "LocalError",
    "NupaError",
    "PoolMemory",
    "RemoteError",
    "Topology",
    "TopologyError",
]
