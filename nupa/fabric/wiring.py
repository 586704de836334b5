# SPDX-License-Identifier: BSD-3-Clause
"""The topology of a fabric that is up, from its segment: hosts, switches and their links."""

from __future__ import annotations

from collections.abc import Sequence

from nupa.core.segment import HostInfo, PortInfo
from nupa.topology.topology import HostConfig, LinkConfig, SwitchConfig, Topology, TrunkConfig


def topology_of(name: str, hosts: Sequence[HostInfo], ports: Sequence[PortInfo]) -> Topology:
    """Returns a topology whose `ports` are in the order of the segment's.

    These are the hosts', the switches' towards them, and both ends of each trunk in turn.
    TopologyError: they cannot be a topology's.
    """
    inner = ports[len(hosts) :]
    names = {port.node: port.name.rpartition("/")[0] for port in inner}
    sizes = {node: max(port.number for port in inner if port.node == node) for node in names}
    return Topology(
        name,
        tuple(SwitchConfig(names[node], sizes[node]) for node in sorted(names)),
        tuple(
            HostConfig(host.name, names[end.node], end.number, _link(end))
            for host in hosts
            for end in [ports[ports[host.port].peer]]
        ),
        tuple(
            TrunkConfig((names[a.node], names[b.node]), (a.number, b.number), _link(a))
            for a, b in zip(inner[len(hosts) :: 2], inner[len(hosts) + 1 :: 2], strict=True)
        ),
        hosts[0].link_layer,
    )


def _link(port: PortInfo) -> LinkConfig:
    return LinkConfig(port.width_lanes, port.speed_mtps)
