# SPDX-License-Identifier: BSD-3-Clause
"""The emulated fabric's own topologies (nupa.topology) as networks: presets and TOML files."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from nupa.model.errors import ModelError
from nupa.model.network.bare import at_rate
from nupa.model.network.graph import Graph, LinkKind
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.profile import Profile, load
from nupa.topology.topology import LinkConfig, Topology, speed_name

#: The profile of a x4 link by its speed; other speeds and widths scale the first one's rate.
_PROFILES = {32000: "cxl-gen5x4", 64000: "cxl-gen6x4"}
_X4 = 4


def profile_of(link: LinkConfig) -> Profile:
    """Returns the CXL profile of a link of that width and speed."""
    speed = link.speed_mtps if link.speed_mtps in _PROFILES else 32000
    base = load(_PROFILES[speed])
    factor = link.width_lanes / _X4 * link.speed_mtps / speed
    if factor == 1:
        return base
    return at_rate(base, factor, f"cxl-{speed_name(link.speed_mtps).lower()}x{link.width_lanes}")


def network(topology: Topology, profile: Profile | None = None) -> Network:
    """Returns the hosts of a topology as endpoints, in its order.

    Switches with equally many hosts are a level of their own.  *profile* replaces that of the
    hosts' links; trunks keep their rate relative to them.  ModelError: hosts' links differ.
    """
    links = {host.link for host in topology.hosts}
    if len(links) > 1:
        raise ModelError(
            f"{topology.name}: hosts have {len(links)} kinds of links: a network of levels has "
            "one; give the hosts equal links, or ask `--engine packets`"
        )
    host_link = links.pop()
    found = profile or profile_of(host_link)
    routes, ports = topology.routes, topology.ports
    hosts = len(topology.hosts)
    switches = max((len(route) // 2 - 1 for row in routes for route in row if route), default=1)
    counts = Counter(ports[ports[host].peer].node for host in range(hosts))
    each = next(iter(counts.values()))
    drawn = _graph(topology, found, host_link)
    order = [ports[ports[host].peer].node for host in range(hosts)]
    nested = all(len(set(order[at : at + each])) == 1 for at in range(0, hosts, each))
    if len(counts) == 1:
        levels: tuple[NetworkLevel, ...] = (NetworkLevel("switch", hosts, found),)
    elif set(counts.values()) == {each} and nested:
        share = _uniform_share(topology, host_link)
        crossing = (hosts - each) / (hosts - 1)
        levels = (
            NetworkLevel("switch", each, found),
            NetworkLevel(
                "trunks", hosts // each, found, switches, taper=share * crossing, stacked=True
            ),
        )
    else:
        share = _uniform_share(topology, host_link)
        levels = (NetworkLevel("switches", hosts, found, switches, taper=min(1.0, share)),)
    return Network(topology.name, levels, drawn)


def _rate(link: LinkConfig) -> int:
    return link.width_lanes * link.speed_mtps


def _uniform_share(topology: Topology, host_link: LinkConfig) -> float:
    """Returns the part of a host's rate at which all can send to all others, over their trunks."""
    load_of: Counter[int] = Counter()
    for row in topology.routes:
        for route in row:
            load_of.update(route[2:-2:2])
    hosts = len(topology.hosts)
    return min(
        _rate(topology.ports[port].link) / _rate(host_link) * (hosts - 1) / flows
        for port, flows in load_of.items()
    )


def _graph(topology: Topology, profile: Profile, host_link: LinkConfig) -> Graph:
    """Draws its links, and its routes: a pair's frames take one path, as in the emulator."""
    hosts, ports = len(topology.hosts), topology.ports
    made = Graph(topology.name, hosts, len(topology.switches))
    rate = profile["rate"] * profile.get("efficiency", 1.0) * profile.get("ports", 1.0)
    hop = profile.get("hop")
    links: dict[tuple[int, int], int] = {}
    for at, port in enumerate(ports):
        peer = ports[port.peer]
        node = port.node + hosts * port.is_switch
        target = peer.node + hosts * peer.is_switch
        name = "trunk" if port.is_switch and peer.is_switch else "host"
        name += "" if name == "trunk" else " in" if port.is_switch else " out"
        kind = made.add_kind(
            LinkKind(
                name,
                rate * _rate(port.link) / _rate(host_link),
                hop if peer.is_switch else 0.0,
                0,
                profile,
            )
        )
        links[at, port.peer] = made.add_link(node, target, kind)
    routes: dict[tuple[int, int], tuple[int, ...]] = {}
    for row in topology.routes:
        for destination, route in enumerate(row):
            for egress, ingress in pairwise(route):
                if (egress, ingress) in links and ports[egress].peer == ingress:
                    node = ports[egress].node + hosts * ports[egress].is_switch
                    routes[node, destination] = (links[egress, ingress],)
    made.routes = routes
    return made
