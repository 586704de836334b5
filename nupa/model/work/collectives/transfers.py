# SPDX-License-Identifier: BSD-3-Clause
"""The transfers of the algorithms.

Parts of the vector: of an all-to-all n x n, the part from rank s to rank d is s * n + d; of a send
to the neighbour rank r's; of trees as many chunks as follow each other; else one of each rank for
each ring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nupa.model.errors import ModelError
from nupa.model.work.collectives.schedule import TransferSchedule
from nupa.model.work.collectives.shape import Shape

#: Chunks of a tree that follow each other: each tree of two has as many.
CHUNKS = 8
_REDUCES = ("all-reduce", "barrier", "reduce-scatter")
#: A level, and the sets of ranks for which its switches act.
_Step = tuple[int, list[list[int]]]
_GATHERS = ("all-reduce", "barrier", "all-gather")


def _ring_reduce_scatter(
    plan: TransferSchedule, ring: Sequence[int], parts: Sequence[Sequence[int]]
) -> None:
    """Adds the parts on their way round: parts[i] ends at ring[i]."""
    count = len(ring)
    for step in range(1, count):
        for place, rank in enumerate(ring):
            plan.send(rank, ring[(place + 1) % count], parts[(place - step) % count], adds=True)


def _ring_all_gather(
    plan: TransferSchedule, ring: Sequence[int], parts: Sequence[Sequence[int]]
) -> None:
    """Passes the parts round: parts[i] begins at ring[i]."""
    count = len(ring)
    for step in range(count - 1):
        for place, rank in enumerate(ring):
            plan.send(rank, ring[(place + 1) % count], parts[(place - step) % count])


def ring(shape: Shape, operation: str) -> TransferSchedule:
    """Passes parts to the next rank; a broadcast and a reduction pass chunks along a chain.

    As many rings as a node has ranks leave it at different ranks, and use all of its adapters.
    """
    if operation in ("broadcast", "reduce"):
        return _chain(shape, operation)
    if operation == "all-to-all":
        return _ring_all_to_all(shape)
    local, channels = shape.local, shape.local if shape.nodes > 1 else 1
    plan = TransferSchedule(shape.ranks * channels)
    for channel in range(channels):
        order = [rank // local * local + (rank + channel) % local for rank in range(shape.ranks)]
        parts = [(rank * channels + channel,) for rank in order]
        if operation in _REDUCES:
            _ring_reduce_scatter(plan, order, parts)
        if operation in _GATHERS:
            _ring_all_gather(plan, order, parts)
    return plan


def _chain(shape: Shape, operation: str) -> TransferSchedule:
    plan = TransferSchedule(CHUNKS)
    last = shape.ranks - 1
    for chunk in range(CHUNKS):
        for place in range(last):
            if operation == "broadcast":
                plan.send(place, place + 1, (chunk,))
            else:
                plan.send(last - place, last - place - 1, (chunk,), adds=True)
    return plan


def _ring_all_to_all(shape: Shape) -> TransferSchedule:
    """Passes each block on until its target has it."""
    count = shape.ranks
    plan = TransferSchedule(count * count)
    for step in range(count - 1):
        for rank in range(count):
            source = (rank - step) % count
            blocks = [source * count + (rank + ahead) % count for ahead in range(1, count - step)]
            plan.send(rank, (rank + 1) % count, blocks)
    return plan


def _parents(count: int) -> list[int]:
    """Returns the parent of each of *count* places of a binary tree; the root is 0.

    Places are in order, so that leaves and inner places alternate.
    """
    parents = [0] * count
    pending = [(1, count, 0)]
    while pending:
        low, high, parent = pending.pop()
        if low >= high:
            continue
        middle = (low + high) // 2
        parents[middle] = parent
        pending += [(low, middle, middle), (middle + 1, high, middle)]
    return parents


def _tree_edges(shape: Shape, mirrored: bool, head: int = 0) -> list[tuple[int, int]]:
    """Returns (child, parent) from the leaves to the root: chains in the nodes, a tree over nodes.

    The chains end at place *head* of each node.  *mirrored*: the leaves of the other tree are its
    inner nodes, but the root is the same.
    """
    local, nodes, tray = shape.local, shape.nodes, shape.tray
    parents, trays = _parents(nodes), _parents(local // tray)
    inside = [(place, place - 1) for place in range(local - 1, 0, -1) if place % tray]
    inside += [
        (place * tray, trays[place] * tray)
        for place in sorted(range(1, local // tray), key=lambda each: -_depth(trays, each))
    ]
    order = [0, *range(2, nodes), 1][:nodes] if mirrored else list(range(nodes))
    edges = [
        (node * local + (child + head) % local, node * local + (parent + head) % local)
        for node in range(nodes)
        for child, parent in inside
    ]
    edges += [
        (order[place] * local + head, order[parents[place]] * local + head)
        for place in sorted(range(1, nodes), key=lambda each: -_depth(parents, each))
    ]
    return edges


def _tree(shape: Shape, operation: str, double: bool) -> TransferSchedule:
    trees = 2 if double else 1
    # A root is asked for, or the chains end at another rank for each chunk.
    heads = 1 if operation in ("broadcast", "reduce") else shape.local
    chunks = -(-CHUNKS // heads) * heads
    plan = TransferSchedule(chunks * trees)
    for chunk in range(chunks):
        for which in range(trees):
            edges = _tree_edges(shape, bool(which), chunk % heads)
            part = (chunk * trees + which,)
            if operation != "broadcast":
                for child, parent in edges:
                    plan.send(child, parent, part, adds=True)
            if operation != "reduce":
                for child, parent in reversed(edges):
                    plan.send(parent, child, part)
    return plan


def tree(shape: Shape, operation: str) -> TransferSchedule:
    """Adds along a tree to rank 0, and spreads the sum along it."""
    return _tree(shape, operation, False)


def double_tree(shape: Shape, operation: str) -> TransferSchedule:
    """Does so with two trees: each has half of the chunks, and other inner nodes."""
    return _tree(shape, operation, True)


def halving_doubling(shape: Shape, operation: str) -> TransferSchedule:
    """Exchanges half of what is left with the nearest partner first; doubles in reverse.

    So the largest halves stay in a node.  Ranks beyond a power of two give their vector to a
    partner first, and get the result last.
    """
    count = shape.ranks
    plan = TransferSchedule(count)
    power = 1 << (count.bit_length() - 1)
    extra = range(power, count)

    def alike(rank: int, low_bits: int) -> list[int]:
        """Returns the parts whose ranks have these low bits of *rank*; those beyond count too."""
        own = [each for each in range(power) if (each ^ rank) & low_bits == 0]
        return own + [power + each for each in own if power + each < count]

    bits = [1 << place for place in range(power.bit_length() - 1)]
    if operation in _REDUCES:
        for rank in extra:
            plan.send(rank, rank - power, range(count), adds=True)
        for bit in bits:
            for rank in range(power):
                plan.send(rank, rank ^ bit, alike(rank ^ bit, 2 * bit - 1), adds=True)
        if operation == "reduce-scatter":
            for rank in extra:
                plan.send(rank - power, rank, (rank,))
    if operation in _GATHERS:
        if operation == "all-gather":
            for rank in extra:
                plan.send(rank, rank - power, (rank,))
        for bit in reversed(bits):
            for rank in range(power):
                plan.send(rank, rank ^ bit, alike(rank, 2 * bit - 1))
        for rank in extra:
            missing = [each for each in range(count) if each != rank or operation != "all-gather"]
            plan.send(rank - power, rank, missing)
    return plan


def direct(shape: Shape, operation: str) -> TransferSchedule:
    """Sends each part to its rank at once, and from there to all."""
    count = shape.ranks
    if operation == "all-to-all":
        plan = TransferSchedule(count * count)
        for ahead in range(1, count):
            for rank in range(count):
                peer = (rank + ahead) % count
                plan.send(rank, peer, (rank * count + peer,))
        return plan
    plan = TransferSchedule(count)
    if operation == "send-recv":
        for rank in range(count):
            plan.send(rank, (rank + 1) % count, (rank,))
        return plan
    for adds in (True, False):
        if operation not in (_REDUCES if adds else _GATHERS):
            continue
        for ahead in range(1, count):
            for rank in range(count):
                peer = (rank + ahead) % count
                plan.send(rank, peer, (peer if adds else rank,), adds=adds)
    return plan


def hierarchical(shape: Shape, operation: str) -> TransferSchedule:
    """Adds in each node, then over the nodes with one place in theirs; gathers in reverse."""
    local, nodes, count = shape.local, shape.nodes, shape.ranks
    if operation == "all-to-all":
        return _hierarchical_all_to_all(shape)
    plan = TransferSchedule(count)
    rails = [[node * local + place for node in range(nodes)] for place in range(local)]
    groups = [[node * local + place for place in range(local)] for node in range(nodes)]
    own = [[rank] for rank in range(count)]
    if operation in _REDUCES:
        for group in groups:
            _ring_reduce_scatter(plan, group, rails)
        for rail in rails:
            _ring_reduce_scatter(plan, rail, [own[rank] for rank in rail])
    if operation in _GATHERS:
        for rail in rails:
            _ring_all_gather(plan, rail, [own[rank] for rank in rail])
        for group in groups:
            _ring_all_gather(plan, group, rails)
    return plan


def _hierarchical_all_to_all(shape: Shape) -> TransferSchedule:
    """Brings blocks to the place of their target in the own node, then to its node."""
    local, nodes, count = shape.local, shape.nodes, shape.ranks
    plan = TransferSchedule(count * count)
    for rank in range(count):
        node = rank // local
        for ahead in range(1, local):
            place = (rank + ahead) % local
            blocks = [rank * count + each * local + place for each in range(nodes)]
            plan.send(rank, node * local + place, blocks)
    for rank in range(count):
        node, place = divmod(rank, local)
        for ahead in range(1, nodes):
            target = (node + ahead) % nodes * local + place
            blocks = [(node * local + each) * count + target for each in range(local)]
            plan.send(rank, target, blocks)
    return plan


def pat(shape: Shape, operation: str) -> TransferSchedule:
    """Doubles the distance in each of log2(n) steps, for any n; a reduce-scatter halves it."""
    count = shape.ranks
    plan = TransferSchedule(count)
    distances = []
    distance = 1
    while distance < count:
        distances.append(distance)
        distance *= 2
    if operation == "all-gather":
        for distance in distances:
            for rank in range(count):
                held = range(min(distance, count - distance))
                plan.send(rank, (rank + distance) % count, [(rank - each) % count for each in held])
        return plan
    for distance in reversed(distances):
        for rank in range(count):
            held = range(min(distance, count - distance))
            parts = [(rank + distance + each) % count for each in held]
            plan.send(rank, (rank + distance) % count, parts, adds=True)
    return plan


def in_network(shape: Shape, operation: str) -> TransferSchedule:
    """Loads each part reduced, and multicasts it; between nodes the switches of the net do."""
    local, nodes, count = shape.local, shape.nodes, shape.ranks
    plan = TransferSchedule(count)
    groups = [[node * local + place for place in range(local)] for node in range(nodes)]
    rails = [[node * local + place for node in range(nodes)] for place in range(local)]
    steps: list[_Step] = [(0, groups)] if local > 1 else []
    if nodes > 1:
        steps.append((shape.first_net, rails))
    if operation in ("broadcast", "reduce"):
        return _in_network_rooted(plan, steps, operation)

    def parts(level: int, members: list[int], place: int) -> Sequence[int]:
        return rails[place] if level < shape.first_net else (members[place],)

    if operation in _REDUCES:
        for level, sets in steps:
            for members in sets:
                for place, rank in enumerate(members):
                    plan.reduce(rank, level, members, parts(level, members, place))
    if operation in _GATHERS:
        for level, sets in reversed(steps):
            for members in sets:
                for place, rank in enumerate(members):
                    plan.multicast(rank, level, members, parts(level, members, place))
    return plan


def _in_network_rooted(
    plan: TransferSchedule, steps: list[_Step], operation: str
) -> TransferSchedule:
    """Reduces to rank 0, or multicasts from it: over the net first, from the first rank of each."""
    everything = range(plan.parts)
    if operation == "reduce":
        for level, sets in steps:
            for members in sets if level == steps[0][0] else sets[:1]:
                plan.reduce(members[0], level, members, everything)
    else:
        for level, sets in reversed(steps):
            for members in sets if level == steps[0][0] else sets[:1]:
                plan.multicast(members[0], level, members, everything)
    return plan


def in_network_tree(shape: Shape, operation: str) -> TransferSchedule:
    """Loads parts reduced in each node, adds them over nodes along two trees, and multicasts."""
    local, nodes, count = shape.local, shape.nodes, shape.ranks
    if local == 1 or nodes == 1:
        raise ModelError(f"{operation}: nvls-tree joins nodes of several ranks")
    plan = TransferSchedule(count)
    parents = _parents(nodes)
    for node in range(nodes):
        members = range(node * local, (node + 1) * local)
        for place in range(local):
            plan.reduce(node * local + place, 0, members, range(place, count, local))
    ordered = sorted(range(1, nodes), key=lambda each: -_depth(parents, each))
    for place in range(local):
        for tree_of_two in range(2):
            parts = range(place, count, local)[tree_of_two::2]
            names = [0, *range(2, nodes), 1] if tree_of_two else list(range(nodes))
            edges = [(names[each], names[parents[each]]) for each in ordered]
            for child, parent in edges:
                plan.send(child * local + place, parent * local + place, parts, adds=True)
            for child, parent in reversed(edges):
                plan.send(parent * local + place, child * local + place, parts)
    for node in range(nodes):
        members = range(node * local, (node + 1) * local)
        for place in range(local):
            plan.multicast(node * local + place, 0, members, range(place, count, local))
    return plan


def _depth(parents: Sequence[int], place: int) -> int:
    steps = 0
    while place:
        place, steps = parents[place], steps + 1
    return steps


TRANSFERS: Mapping[str, Callable[[Shape, str], TransferSchedule]] = {
    "ring": ring,
    "tree": tree,
    "double-tree": double_tree,
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
