# SPDX-License-Identifier: BSD-3-Clause
"""Small networks, and those of uet-htsim's experiments, as graphs."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from nupa.model.engine.packets.protocol import PacketProtocol
from nupa.model.engine.packets.run import PacketTransfer
from nupa.model.network.graph import Graph, LinkKind

GBPS = 1.25e8  # bytes a second


def star(endpoints: int, kind: LinkKind) -> Graph:
    """One switch."""
    graph = Graph("star", endpoints, 1)
    index = graph.add_kind(kind)
    for endpoint in range(endpoints):
        graph.add_cable(endpoint, endpoints, index)
    return graph


def line(switches: int, kind: LinkKind) -> Graph:
    """Two endpoints, and switches in a row between them."""
    graph = Graph("line", 2, switches)
    index = graph.add_kind(kind)
    nodes = [0, *range(2, 2 + switches), 1]
    for a, b in pairwise(nodes):
        graph.add_cable(a, b, index)
    return graph


def dumbbell(left: int, right: int, host: LinkKind, trunk: LinkKind) -> Graph:
    """Two switches with endpoints each, and one link between them."""
    graph = Graph("dumbbell", left + right, 2)
    edge, middle = graph.add_kind(host), graph.add_kind(trunk)
    a, b = left + right, left + right + 1
    for endpoint in range(left + right):
        graph.add_cable(endpoint, a if endpoint < left else b, edge)
    graph.add_cable(a, b, middle)
    return graph


# --- uet-htsim: main_uec.cpp's defaults ------------------------------------------------------
HTSIM_RATE = 100 * GBPS
HTSIM_PACKET = 4150  # of which 64 are headers
HTSIM_HOP_NS = 1000.0


def htsim_bdp_packets(links: int) -> int:
    """A round trip over that many links and back, in packets: the size of queues."""
    serial = (HTSIM_PACKET + 64) / HTSIM_RATE * 1e9
    round_trip = 2 * links * HTSIM_HOP_NS + links * serial
    return int(-(-round_trip * 1e-9 * HTSIM_RATE // HTSIM_PACKET))


def htsim_protocol(window: int = 0, paths: int = 128, adapt: float | None = None) -> PacketProtocol:
    """Receiver-driven congestion control alone; what is None follows that simulator's rules."""
    return PacketProtocol(
        flow_control="trim",
        transport="pull",
        spread="packet",
        switching="store",
        payload_bytes=HTSIM_PACKET - 64,
        header_bytes=64,
        control_bytes=64,
        paths=paths,
        ack_packets=4,
        window_packets=window or None,
        adapt_ns=adapt,
    )


def _htsim_kinds(graph: Graph, links: int) -> tuple[int, int]:
    room = htsim_bdp_packets(links) * HTSIM_PACKET
    return (
        graph.add_kind(LinkKind("up", HTSIM_RATE, HTSIM_HOP_NS, room)),
        graph.add_kind(LinkKind("failed", HTSIM_RATE / 4, HTSIM_HOP_NS, room // 4)),
    )


def fat_tree(ports: int, failed: bool = False) -> Graph:
    """Three tiers of switches with that many ports.  *failed*: a link down has a quarter."""
    half = ports // 2
    hosts, edges, cores = ports * half * half, ports * half, half * half
    graph = Graph("fat tree", hosts, 2 * edges + cores)
    up, slow = _htsim_kinds(graph, 6)
    for host in range(hosts):
        graph.add_cable(host, hosts + host // half, up)
    for pod in range(ports):
        for a in range(half):
            for b in range(half):
                graph.add_cable(hosts + pod * half + a, hosts + edges + pod * half + b, up)
    for pod in range(ports):
        for a in range(half):
            for b in range(half):
                core, middle = hosts + 2 * edges + a * half + b, hosts + edges + pod * half + a
                graph.add_link(middle, core, up)
                first = failed and pod == a == b == 0
                graph.add_link(core, middle, slow if first else up)
    return graph


def leaf_spine(hosts: int, down: int, spines: int) -> Graph:
    """Two tiers; *down* hosts a leaf, and a link to each spine."""
    leaves = hosts // down
    graph = Graph("leaf spine", hosts, leaves + spines)
    up, _ = _htsim_kinds(graph, 4)
    for host in range(hosts):
        graph.add_cable(host, hosts + host // down, up)
    for leaf in range(leaves):
        for spine in range(spines):
            graph.add_cable(hosts + leaf, hosts + leaves + spine, up)
    return graph


def permutation(hosts: int, size: int, seed: int) -> list[PacketTransfer]:
    """Each host sends to one other, and receives from one."""
    random = Random(seed)
    targets = list(range(hosts))
    while any(source == target for source, target in enumerate(targets)):
        random.shuffle(targets)
    return [PacketTransfer(source, target, size) for source, target in enumerate(targets)]


def incast(senders: int, hosts: int, size: int) -> list[PacketTransfer]:
    """*senders* to endpoint 0, from places all over the network."""
    return [PacketTransfer(1 + at * (hosts - 1) // senders, 0, size) for at in range(senders)]


def outcast_incast(size: int) -> list[PacketTransfer]:
    """Three senders to endpoint 0; two of them to nine others each as well."""
    work = [PacketTransfer(source, 0, size) for source in (1, 2, 3)]
    others = iter(range(4, 22))
    return work + [
        PacketTransfer(source, next(others), size) for source in (2, 3) for _ in range(9)
    ]
