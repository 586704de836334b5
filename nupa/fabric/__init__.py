# SPDX-License-Identifier: BSD-3-Clause
"""Fabrics: hosts, switches, ports, links, and the shared segment that holds them.

Knows topologies, routes, the places of segments, attachments, port states and counters, faults,
tenants, and the pool; never queue pairs or the contents of messages.  Rings are nupa.core's.
"""

from nupa import PROVIDERS
from nupa.base.errors import FabricError, LocalError, NupaError, RemoteError
from nupa.fabric.fabric import Fabric, default_topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nupa.fabric.fault import Fault, FaultEntry, FaultKind
    from nupa.fabric.faulty import Faulty
    from nupa.fabric.tenants.event import Events, EventSeverity, FabricEvent
    from nupa.fabric.tenants.partition import Member, Partition, Partitions
    from nupa.fabric.tenants.tenant import Quotas, Tenant, Tenants
    from nupa.memory.pool import Leak, Pool, PoolMemory, Quota
    from nupa.memory.region import Region
    from nupa.memory.window import Window, WindowError
    from nupa.topology.topology import Topology, TopologyError

__all__ = [
    "EventSeverity",
    "Events",
    "Fabric",
    "FabricError",
    "FabricEvent",
    "Fault",
    "FaultEntry",
    "FaultKind",
    "Faulty",
    "Leak",
    "LocalError",
    "Member",
    "NupaError",
    "Partition",
    "Partitions",
    "Pool",
    "PoolMemory",
    "Quota",
    "Quotas",
    "Region",
    "RemoteError",
    "Tenant",
    "Tenants",
    "Topology",
    "TopologyError",
    "Window",
    "WindowError",
    "default_topology",
]

# Imported at first use: `nupa run` needs none of them and takes 100 ms in all.
_LATER = {
    "FabricEvent": "nupa.fabric.tenants.event",
    "Events": "nupa.fabric.tenants.event",
    "Fault": "nupa.fabric.fault",
    "FaultEntry": "nupa.fabric.fault",
    "FaultKind": "nupa.fabric.fault",
    "Faulty": "nupa.fabric.faulty",
    "Leak": "nupa.memory.pool",
    "Member": "nupa.fabric.tenants.partition",
    "Partition": "nupa.fabric.tenants.partition",
    "Partitions": "nupa.fabric.tenants.partition",
    "Pool": "nupa.memory.pool",
    "PoolMemory": "nupa.memory.pool",
    "Quota": "nupa.memory.pool",
    "Quotas": "nupa.fabric.tenants.tenant",
    "Region": "nupa.memory.region",
    "EventSeverity": "nupa.fabric.tenants.event",
    "Tenant": "nupa.fabric.tenants.tenant",
    "Tenants": "nupa.fabric.tenants.tenant",
    "Topology": "nupa.topology.topology",
    "TopologyError": "nupa.topology.topology",
    "Window": "nupa.memory.window",
    "WindowError": "nupa.memory.window",
} | PROVIDERS


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name]), name)
