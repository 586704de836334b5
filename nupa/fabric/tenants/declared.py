# SPDX-License-Identifier: BSD-3-Clause
"""Tenants, partitions, free places and the policy that a topology declares, made in its fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nupa.fabric.tenants.policy import set_policy
from nupa.fabric.tenants.tenant import Quotas

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric
    from nupa.topology.topology import Topology


def declare(fabric: Fabric, topology: Topology) -> None:
    """Makes what *topology* declares; *fabric* is new.

    LocalError, FabricError: as of fabric.tenants and fabric.partitions.
    """
    for wanted in topology.tenants:
        tenant = fabric.tenants.add(wanted.name, rate=wanted.rate, quotas=Quotas(*wanted.quotas))
        for host in wanted.hosts:
            tenant.assign(host)
    for asked in topology.partitions:
        partition = fabric.partitions.add(
            asked.name,
            tenant=asked.tenant or None,
            pkey=asked.pkey or None,
            service_level=asked.service_level,
            rate=asked.rate,
            kind=asked.kind,
        )
        for member in asked.members:
            partition.join(
                member.name if member.kind == "host" else f"{member.kind}:{member.name}",
                member.membership,
                rate=member.rate,
                keep_default=member.keep_default,
                service_level=asked.service_level,
            )
    for place in topology.hosts:
        if place.state != "ready":
            fabric.set_host_state(place.name, place.state)
            fabric.set_port(place.name, False)
    if topology.admission is not None:
        set_policy(fabric, topology.admission)
