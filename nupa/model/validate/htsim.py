# SPDX-License-Identifier: BSD-3-Clause
"""uet-htsim's experiments: networks of its defaults, its traffic, and the time of the last flow.

The rows are those of its published validation, with 100 Gb/s links of 1 us, packets of 4,150 bytes
and queues of one round trip.  Its time ends where the sender has the last acknowledgement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from nupa.model.engine.packets.protocol import PacketProtocol
from nupa.model.engine.packets.run import PacketTransfer, Run
from nupa.model.errors import ModelError
from nupa.model.network.graph import Graph, LinkKind
from nupa.model.validate.case import Line, PacketCase

# --- main_uec.cpp's defaults -----------------------------------------------------------------
_RATE = 12.5e9  # bytes a second
_PACKET = 4150  # of which 64 are headers
_HOP_NS = 1000.0


def _bdp_packets(links: int) -> int:
    """A round trip over that many links and back, in packets: the size of queues."""
    serial = (_PACKET + 64) / _RATE * 1e9
    round_trip = 2 * links * _HOP_NS + links * serial
    return int(-(-round_trip * 1e-9 * _RATE // _PACKET))


def htsim_protocol(window: int = 0, paths: int = 128, adapt: float | None = None) -> PacketProtocol:
    """Receiver-driven congestion control alone; what is None follows that simulator's rules."""
    return PacketProtocol(
        flow_control="trim",
        transport="pull",
        spread="packet",
        switching="store",
        payload_bytes=_PACKET - 64,
        header_bytes=64,
        control_bytes=64,
        paths=paths,
        ack_packets=4,
        window_packets=window or None,
        adapt_ns=adapt,
    )


def _htsim_kinds(graph: Graph, links: int) -> tuple[int, int]:
    room = _bdp_packets(links) * _PACKET
    return (
        graph.add_kind(LinkKind("up", _RATE, _HOP_NS, room)),
        graph.add_kind(LinkKind("failed", _RATE / 4, _HOP_NS, room // 4)),
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


# --- the rows of uet-htsim-fct-receiver.csv ---------------------------------------------------
MB2 = 2_000_000


def _overlapped(size: int) -> list[PacketTransfer]:
    """A long flow, and two short ones to the same endpoint 40 us later."""
    late = [PacketTransfer(source, 0, size // 8, start_ns=40_000) for source in (95, 61)]
    return [PacketTransfer(127, 0, size), *late]


class _Matrix(NamedTuple):
    """A matrix of connections: the switch ports of its fat tree, and its transfers."""

    ports: int
    transfers: Callable[[], list[PacketTransfer]]


_MATRICES: Mapping[str, _Matrix] = {
    "one.cm": _Matrix(8, lambda: [PacketTransfer(0, 100, MB2)]),
    "bidir.cm": _Matrix(8, lambda: [PacketTransfer(0, 100, MB2), PacketTransfer(100, 0, MB2)]),
    "incast.cm": _Matrix(4, lambda: incast(15, 16, MB2)),
    "incast_128.cm": _Matrix(8, lambda: incast(127, 128, MB2)),
    "incast_1024_100K.cm": _Matrix(16, lambda: incast(1023, 1024, 100_000)),
    "incast_3-1_overlapped.tm": _Matrix(8, lambda: _overlapped(MB2)),
    "outcast_incast.cm": _Matrix(8, lambda: outcast_incast(MB2)),
    "perm_16n_16c_2MB.cm": _Matrix(4, lambda: permutation(16, MB2, 1)),
    "perm_1024n_1024c_0u_2000000b.cm": _Matrix(16, lambda: permutation(1024, MB2, 1)),
}
#: Spines of the topologies with 32 hosts a leaf.
_SPINES: Mapping[str, int] = {
    "leaf_spine_1024_oversub.topo": 8,
    "leaf_spine_1024_oversub_8-1.topo": 4,
}
_ARGUMENT = re.compile(r"-(tm|topo|cwnd|paths|failed) (?:\w+/)?(\S+)")


def last_flow_ns(found: Run) -> float:
    """Returns when the last sender has its last acknowledgement."""
    return max(found.times_ps[2::3]) / 1e3


def experiments(lines: Sequence[Line]) -> Iterator[PacketCase]:
    """Reads the experiments by the arguments of that simulator's command.

    ModelError: a matrix or a topology that is not known here.
    """
    for line in lines:
        chosen = dict(_ARGUMENT.findall(line["arguments"]))
        matrix, topology = chosen.get("tm", ""), chosen.get("topo", "")
        if matrix not in _MATRICES or (topology and topology not in _SPINES):
            raise ModelError(f"{line['experiment']}: {line['arguments']!r}: no known matrix or "
                             "topology: add it to nupa/model/validate/htsim.py")  # fmt: skip
        ports, transfers = _MATRICES[matrix]
        paths = int(chosen.get("paths", 128))
        if paths == 1 and ports == 4:
            continue  # chance: see the file's left_out
        if topology:
            graph = leaf_spine(1024, 32, _SPINES[topology])
        else:
            graph = fat_tree(ports, failed="failed" in chosen)
        # Receivers adapt, as that simulator's do, where the topology is oversubscribed.
        protocol = htsim_protocol(int(chosen.get("cwnd", 0)), paths, None if topology else 0.0)
        yield PacketCase(
            line["experiment"],
            graph,
            transfers(),
            protocol,
            last_flow_ns,
            float(line["tail_fct_us"]) * 1e3,
        )
