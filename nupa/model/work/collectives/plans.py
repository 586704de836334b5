# SPDX-License-Identifier: BSD-3-Clause
"""The plans of the algorithms: which levels carry how much, in how many steps, at which rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, log2

from nupa.model.errors import ModelError
from nupa.model.work.collectives.names import OPERATIONS
from nupa.model.work.collectives.rates import LibraryRates
from nupa.model.work.phase import NO_PACE, Pace, Pattern, Phase

#: The part of the vector that a ring, or a rank with its peers, carries; of an all-reduce twice.
_TWICE = "all-reduce"
_PATTERNS: Mapping[str, Pattern] = {
    "ring": "ring",
    "tree": "tree",
    "nvls-tree": "tree",
    "all-to-all": "all-to-all",
}


def traffic(operation: str, size_bytes: int, ranks: int) -> float:
    """Returns the bytes that each rank sends in an algorithm without waste: nccl-tests' bus."""
    return size_bytes * OPERATIONS[operation].bus_factor(ranks)


def _phase(
    rates: LibraryRates, pattern: str, level: int, steps: int, total: float, peers: int = 1
) -> Phase:
    """Returns a phase of *steps* that carries *total* bytes of a rank to all of its peers."""
    net = level >= rates.shape.first_net
    limit, limit_name = rates.limit(pattern, level)
    return Phase(
        pattern,
        "write",
        level,
        ceil(total / steps / peers),
        steps,
        peers,
        _PATTERNS.get(pattern, "pairs"),
        0.0 if pattern == "ring" and not net else rates.hop_ns(pattern, net, level, peers),
        wire=rates.wire,
        limit=limit,
        limit_name=limit_name,
        start=net,
    )


def _inside(rates: LibraryRates, level: int) -> int:
    """Returns the ranks of a group of the level below: they share what passes the level."""
    return rates.shape.network.group_size(level - 1) if level else 1


def _used(rates: LibraryRates) -> Iterator[tuple[int, int]]:
    """Yields the levels that have more than one group, and those groups."""
    for index, level in enumerate(rates.shape.network.levels):
        if level.groups > 1:
            yield index, level.groups


def ring(rates: LibraryRates, operation: str, size_bytes: int) -> Iterator[Phase]:
    """Yields the phases of rings, as many as a node has ranks: each step passes all edges.

    The rings leave a node at different ranks: of a node of 8, a rank's link carries 7 of 8 rings.
    """
    shape = rates.shape
    ranks = shape.ranks
    rounds = 2 if operation in (_TWICE, "barrier") else 1
    total = traffic(operation, size_bytes, ranks)
    if operation == "all-to-all":
        total = size_bytes * (ranks - 1) / 2  # a block passes half of the ring on average
    for index, _groups in _used(rates):
        inside = _inside(rates, index)
        groups = ranks // shape.network.group_size(index)
        edges = ranks // inside - groups
        closing = 1 if groups == 1 else 0  # the highest level's edge back to the first rank
        share = (edges + closing) / ranks
        yield _phase(rates, "ring", index, rounds * edges, total * share)


def tree(
    rates: LibraryRates, operation: str, size_bytes: int, double: bool = True, pattern: str = "tree"
) -> Iterator[Phase]:
    """Yields a tree over nodes with a chain in each; two trees share the inner nodes' work."""
    shape = rates.shape
    rounds = 2 if operation in (_TWICE, "barrier") else 1
    if shape.local > 1:
        # The chain ends at another rank for each channel: all but one of a node send.
        total = rounds * size_bytes * (shape.local - 1) / shape.local
        yield _phase(rates, "tree", 0, rounds * shape.chain_hops, total)
    for index, level in shape.net_levels():
        depth = max(1, int(log2(level.groups)))
        share = rounds / 2 if level.groups == 2 and double else rounds
        children = 1.0 if double or level.groups == 2 else 1.5  # one tree: an inner node's port
        total = share * children * size_bytes / _inside(rates, index)
        yield _phase(rates, pattern, index, rounds * depth, total)


def pace(rates: LibraryRates, algorithm: str, operation: str) -> Pace:
    """Returns the library's steps of an algorithm that the transfer hides in part."""
    if algorithm == "ring":
        rounds = 2 if operation in (_TWICE, "barrier") else 1
        return rates.ring_pace(rounds * (rates.shape.ranks - 1))
    return rates.tree_pace() if algorithm in ("tree", "double-tree") else NO_PACE


def halving_doubling(rates: LibraryRates, operation: str, size_bytes: int) -> Iterator[Phase]:
    """Yields recursive halving and doubling: log2(n) steps of halving or doubling parts."""
    shape = rates.shape
    ranks = shape.ranks
    halves = 2 if operation in (_TWICE, "barrier") else 1
    power = 1 << int(log2(ranks))
    rest = ranks - power
    for index, _groups in _used(rates):
        inside = _inside(rates, index)
        size = min(shape.network.group_size(index), ranks)
        steps = max(1, int(log2(size)) - int(log2(inside)))
        total = halves * size_bytes * (1 / inside - 1 / size) if size_bytes else 0.0
        yield _phase(rates, "pairs", index, halves * steps, total)
    if rest:  # ranks beyond a power of two give their vector away first, and get the result
        last = len(shape.network.levels) - 1
        yield _phase(rates, "pairs", last, 2, float(2 * size_bytes))


def direct(rates: LibraryRates, operation: str, size_bytes: int) -> Iterator[Phase]:
    """Yields one exchange with all peers at once, an all-reduce two."""
    shape = rates.shape
    ranks = shape.ranks
    rounds = 2 if operation == _TWICE else 1
    if operation == "send-recv":
        yield from _neighbour(rates, size_bytes)
        return
    for index, _groups in _used(rates):
        inside = _inside(rates, index)
        peers = shape.network.group_size(index) - inside
        total = rounds * size_bytes * peers / ranks
        yield _phase(rates, "all-to-all", index, rounds, total, peers)


def _neighbour(rates: LibraryRates, size_bytes: int) -> Iterator[Phase]:
    """Yields what a ring of neighbours sends: the slowest pair is the highest level's."""
    last = [index for index, level in enumerate(rates.shape.network.levels) if level.groups > 1][-1]
    yield _phase(rates, "peer", last, 1, float(size_bytes))


def hierarchical(rates: LibraryRates, operation: str, size_bytes: int) -> Iterator[Phase]:
    """Yields a reduce-scatter in each group, an all-reduce of the parts above, an all-gather.

    Each rank of a group has a part, and all ports of a node work at once.
    """
    rounds = 2 if operation == _TWICE else 1
    for index, groups in _used(rates):
        # An all-to-all passes everything at each level; the others a rank's part of it.
        inside = 1 if operation == "all-to-all" else _inside(rates, index)
        total = rounds * size_bytes / inside * (groups - 1) / groups
        yield _phase(rates, "ring", index, rounds * (groups - 1), total)


def pat(rates: LibraryRates, operation: str, size_bytes: int) -> Iterator[Phase]:
    """Yields parallel aggregated trees: log2(n) steps, and each rank sends what it must.

    The far steps carry the least, and all levels together what a rank must send.
    """
    del operation
    shape = rates.shape
    for index, groups in _used(rates):
        inside, size = _inside(rates, index), shape.network.group_size(index)
        total = size_bytes * (1 / inside - 1 / size)
        yield _phase(rates, "pat", index, ceil(log2(groups)), total)


def in_network(rates: LibraryRates, operation: str, size_bytes: int) -> Iterator[Phase]:
    """Yields an operation in the switch: a rank loads its part reduced, and multicasts it.

    The switch loads the whole vector from a rank, which stores its part: S (1 + 1/n) bytes.
    """
    shape = rates.shape
    parts = {"all-reduce": 1 + 1 / shape.local, "barrier": 1 + 1 / shape.local}
    total = size_bytes * parts.get(operation, 1.0)
    if shape.nodes == 1:
        yield rates.in_network(0, total)
        return
    if shape.local > 1:
        if "reduce_efficiency" in shape.node.profile.figures:
            yield rates.in_network(0, total)
        else:
            yield from ring_in_node(rates, operation, size_bytes)
    for index, _level in shape.net_levels():
        yield rates.in_network(index, size_bytes / shape.local)


def ring_in_node(rates: LibraryRates, operation: str, size_bytes: int) -> Iterator[Phase]:
    """Yields a reduce-scatter and an all-gather in each node, around what passes the net."""
    local = rates.shape.local
    rounds = 2 if operation == _TWICE else 1
    total = rounds * size_bytes * (local - 1) / local
    yield _phase(rates, "ring", 0, rounds * (local - 1), total)


def in_network_tree(rates: LibraryRates, operation: str, size_bytes: int) -> Iterator[Phase]:
    """Yields in-network reduction in each node, and double trees between nodes."""
    shape = rates.shape
    if shape.nodes == 1 or shape.local == 1:
        raise ModelError(
            f"{shape.network.name}: nvls-tree joins nodes of several ranks: {shape.nodes} nodes of "
            f"{shape.local} ranks were found"
        )
    yield rates.in_network(0, size_bytes * (1 + 1 / shape.local))
    for phase in tree(rates, operation, size_bytes, pattern="nvls-tree"):
        if phase.level:
            yield phase


PLANS: Mapping[str, Callable[[LibraryRates, str, int], Iterator[Phase]]] = {
    "ring": ring,
    "tree": tree,
    "double-tree": tree,
    "halving-doubling": halving_doubling,
    "direct": direct,
    "hierarchical": hierarchical,
    "pat": pat,
    "in-network": in_network,
    "nvls": in_network,
    "ualink": in_network,
    "sharp": in_network,
    "collnet": in_network,
    "nvls-tree": in_network_tree,
}
