# SPDX-License-Identifier: BSD-3-Clause
"""This machine's copy of the segment, with the generation that all machines agree on."""

from __future__ import annotations

from nupa.core.segment import TrunkPart
from nupa.fabric import Fabric
from nupa.trunk.cluster import SLOTS_DEFAULT, Cluster, Machine


def first_slots(slots: int, machines: int) -> list[int]:
    """Returns the first slot of each machine; slot 0 is not used.

    >>> first_slots(256, 2), first_slots(8, 3)
    ([1, 129], [1, 4, 6])
    """
    each, more = divmod(slots - 1, machines)
    return [1 + index * each + min(index, more) for index in range(machines)]


def create(cluster: Cluster, machine: Machine, generation: int) -> Fabric:
    """Makes the copy and uses it.  LocalError: it exists; FabricError: no room."""
    topology = cluster.topology
    slots = topology.segment.slots or SLOTS_DEFAULT
    topology.segment = topology.segment._replace(slots=slots)
    part = TrunkPart(
        generation,
        cluster.number(machine.name),
        first_slots(slots, len(cluster.machines)),
        [cluster.number(cluster.machine_of(host.name).name) for host in topology.hosts],
    )
    return Fabric.create(cluster.name, topology, trunk=part)
