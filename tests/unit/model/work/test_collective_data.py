# SPDX-License-Identifier: BSD-3-Clause
"""The operations of each algorithm move the right data, in any order that they permit."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from nupa.model.errors import ModelError
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.profile import load
from nupa.model.work.collective import Collective
from nupa.model.work.collectives.names import OPERATIONS
from nupa.model.work.collectives.schedule import PartsTransfer, TransferSchedule
from nupa.model.work.collectives.shape import Shape
from nupa.model.work.collectives.transfers import TRANSFERS

ONE_LEVEL = ("in-network", "nvls", "ualink", "sharp")
NODES = ("nvls-tree", "collnet")


def _network(nodes: int, local: int) -> Network:
    node = NetworkLevel("node", local, load("nvlink4"))
    if nodes == 1:
        return Network("node", (node,))
    return Network("nodes", (node, NetworkLevel("net", nodes, load("ib-ndr-sharp"))))


@dataclass
class Ranks:
    """The vectors of all ranks: vector[rank, part], and which parts of it are defined."""

    vectors: np.ndarray
    local: int

    def members(self, each: PartsTransfer) -> list[int]:
        count = len(self.vectors)
        if each.peer == -1 and self.local > 1:
            first = each.rank // self.local * self.local
            return list(range(first, first + self.local))
        return list(range(each.rank % self.local, count, self.local))

    def run(self, each: PartsTransfer) -> None:
        parts = list(each.parts)
        if each.operation == "reduce":
            total = sum(self.vectors[member, parts] for member in self.members(each))
            self.vectors[each.rank, parts] = total
        elif each.operation == "multicast":
            for member in self.members(each):
                self.vectors[member, parts] = self.vectors[each.rank, parts]
        elif each.adds:
            self.vectors[each.peer, parts] += self.vectors[each.rank, parts]
        else:
            self.vectors[each.peer, parts] = self.vectors[each.rank, parts]


def _execute(schedule: TransferSchedule, ranks: Ranks, rng: random.Random) -> None:
    """Runs the transfers in a random order among those whose predecessors have completed."""
    missing = [len(each.after) for each in schedule.transfers]
    followers: list[list[int]] = [[] for _ in schedule.transfers]
    for index, each in enumerate(schedule.transfers):
        assert all(before < index for before in each.after)
        for before in each.after:
            followers[before].append(index)
    ready = [index for index, count in enumerate(missing) if not count]
    done = 0
    while ready:
        index = ready.pop(rng.randrange(len(ready)))
        ranks.run(schedule.transfers[index])
        done += 1
        for follower in followers[index]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    assert done == len(schedule.transfers)


def _start(operation: str, count: int, parts: int, rng: random.Random) -> np.ndarray:
    """Returns what the ranks have before: integers, so that sums are exact in any order."""
    values = np.array([[rng.randrange(1, 1000) for _ in range(parts)] for _ in range(count)])
    if operation in ("all-gather", "send-recv"):
        return values * np.repeat(np.eye(count, dtype=int), parts // count, axis=1)
    if operation == "all-to-all":
        own = np.zeros((count, parts), dtype=int)
        for rank in range(count):
            own[rank, rank * count : (rank + 1) * count] = 1
        return values * own
    return values


def _check(operation: str, before: np.ndarray, after: np.ndarray) -> None:
    count = len(before)
    total = before.sum(axis=0)
    for rank in range(count):
        if operation in ("all-reduce", "barrier", "all-gather"):
            assert (after[rank] == total).all(), f"rank {rank}"
        elif operation == "reduce-scatter":
            each = len(total) // count
            own = slice(rank * each, (rank + 1) * each)
            assert (after[rank, own] == total[own]).all(), f"rank {rank}"
        elif operation == "broadcast":
            assert (after[rank] == before[0]).all(), f"rank {rank}"
        elif operation == "send-recv":
            previous = (rank - 1) % count
            assert after[rank, previous] == before[previous, previous], f"rank {rank}"
        elif operation == "all-to-all":
            for source in range(count):
                part = source * count + rank
                assert after[rank, part] == before[source, part], f"{source} to {rank}"
    if operation == "reduce":
        assert (after[0] == total).all()


SHAPES = [(1, count) for count in range(2, 18)] + [(2, 4), (3, 3), (4, 1), (5, 2), (7, 1), (6, 3)]
CASES = [
    (operation, algorithm, nodes, local)
    for operation, known in OPERATIONS.items()
    for algorithm in known.algorithms
    for nodes, local in SHAPES
    if not (algorithm in ONE_LEVEL and nodes > 1)
    if not (algorithm in NODES and (nodes == 1 or local == 1))
]


@pytest.mark.parametrize(("operation", "algorithm", "nodes", "local"), CASES)
def test_the_transfers_move_the_right_data(
    operation: str, algorithm: str, nodes: int, local: int
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    shape = Shape(_network(nodes, local), load("nccl"))
    schedule = TRANSFERS[algorithm](shape, operation)
    before = _start(operation, shape.ranks, schedule.parts, rng)
    ranks = Ranks(before.copy(), local)
    _execute(schedule, ranks, rng)
    _check(operation, before, ranks.vectors)


@pytest.mark.parametrize("count", range(2, 18))
def test_a_ring_all_reduce_sends_two_s_of_n_less_one_over_n_from_each_rank(count: int) -> None:
    size = 1000 * count
    work = Collective("all-reduce", size, "ring")
    sent = [0] * count
    for each in work.operations(_network(1, count)):
        sent[each.rank] += each.bytes
    assert sent == [2 * size * (count - 1) // count] * count


@pytest.mark.parametrize("count", range(2, 18))
def test_in_network_each_rank_loads_and_stores_its_part_only(count: int) -> None:
    size = 1000 * count
    operations = list(Collective("all-reduce", size, "nvls").operations(_network(1, count)))
    for kind in ("reduce", "multicast"):
        assert [each.bytes for each in operations if each.operation == kind] == [1000] * count
    assert all(each.peer == -1 for each in operations)


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "direct", "hierarchical"])
def test_algorithms_without_waste_send_the_same_bytes(algorithm: str) -> None:
    network = _network(2, 4)
    operations = Collective("all-reduce", 8 << 20, algorithm).operations(network)
    assert sum(each.bytes for each in operations) == 8 * 2 * (8 << 20) * 7 // 8


def test_a_double_tree_divides_the_work_of_inner_nodes() -> None:
    network = replace(_network(16, 1), name="net")
    sent = {}
    for algorithm in ("tree", "double-tree"):
        of_rank = [0] * 16
        for each in Collective("all-reduce", 1 << 20, algorithm).operations(network):
            of_rank[each.rank] += each.bytes
        sent[algorithm] = max(of_rank)
    assert sent["double-tree"] < sent["tree"]


def test_in_network_without_a_switch_that_reduces_names_the_fabric() -> None:
    network = Network("node", (NetworkLevel("node", 8, load("nvlink3")),))
    with pytest.raises(ModelError, match="nvlink3 does not reduce"):
        list(Collective("all-reduce", 1024, "nvls").operations(network))
