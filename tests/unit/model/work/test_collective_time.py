# SPDX-License-Identifier: BSD-3-Clause
"""The plans of collectives: known closed forms, and what NVLink's generations make of a ring."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.model.engine.predict import predict
from nupa.model.engine.stages import stages
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.profile import load
from nupa.model.work.collective import Collective
from nupa.model.work.collectives.names import OPERATIONS
from nupa.model.work.collectives.rates import LibraryRates
from nupa.model.work.collectives.shape import Shape
from nupa.model.work.phase import Pace

MIB = 1 << 20
GIB = 1 << 30


def node(gpus: int, fabric: str = "nvlink4") -> Network:
    return Network(fabric, (NetworkLevel("node", gpus, load(fabric)),))


def nodes(count: int, gpus: int, net: str = "ib-ndr") -> Network:
    inside = NetworkLevel("node", gpus, load("nvlink4"))
    return Network("nodes", (inside, NetworkLevel("net", count, load(net), 3)))


def sent(network: Network, work: Collective) -> list[float]:
    """Returns the bytes that a rank sends over each level."""
    found = [0.0] * len(network.levels)
    for phase in work.plan(network).phases:
        found[phase.level] += phase.bytes * phase.steps * phase.peers
    return found


@pytest.mark.parametrize("ranks", [2, 3, 8, 17])
def test_bus_factors_are_those_of_nccl_tests(ranks: int) -> None:
    whole = {"broadcast", "reduce", "send-recv", "barrier"}
    for name, operation in OPERATIONS.items():
        factor = operation.bus_factor(ranks)
        expected = 1.0 if name in whole else (ranks - 1) / ranks * (1 + (name == "all-reduce"))
        assert factor == pytest.approx(expected)


@given(st.integers(2, 64), st.integers(20, 34))
def test_a_ring_all_reduce_sends_two_s_of_n_less_one_over_n(ranks: int, exponent: int) -> None:
    size = 1 << exponent
    (found,) = sent(node(ranks), Collective("all-reduce", size, "ring"))
    assert found == pytest.approx(2 * size * (ranks - 1) / ranks, rel=1e-3)


@given(st.integers(2, 64))
def test_in_network_a_rank_sends_s_and_its_part(ranks: int) -> None:
    (found,) = sent(node(ranks), Collective("all-reduce", GIB, "nvls"))
    assert found == pytest.approx(GIB * (1 + 1 / ranks), rel=1e-6)
    (gathered,) = sent(node(ranks), Collective("all-gather", GIB, "nvls"))
    assert gathered == GIB


def test_rings_of_nodes_leave_by_all_adapters() -> None:
    inside, between = sent(nodes(4, 8), Collective("all-reduce", GIB, "ring"))
    total = 2 * GIB * 31 / 32
    assert inside == pytest.approx(total * 7 / 8, rel=1e-6)
    assert between == pytest.approx(total / 8, rel=1e-6)


def test_the_trees_of_two_nodes_send_the_vector_once_over_the_net() -> None:
    _, two = sent(nodes(2, 8), Collective("all-reduce", GIB, "double-tree"))
    _, four = sent(nodes(4, 8), Collective("all-reduce", GIB, "double-tree"))
    assert (two, four) == (GIB / 8, 2 * GIB / 8)


def test_halving_and_doubling_and_a_direct_exchange_send_no_more_than_a_ring() -> None:
    ring = sum(sent(node(8), Collective("all-reduce", GIB, "ring")))
    for algorithm in ("halving-doubling", "direct", "hierarchical"):
        found = sum(sent(node(8), Collective("all-reduce", GIB, algorithm)))
        assert found == pytest.approx(ring, rel=1e-6), algorithm


def test_an_exchange_between_nodes_sends_what_is_elsewhere() -> None:
    inside, between = sent(nodes(4, 8), Collective("all-to-all", GIB))
    assert inside == pytest.approx(GIB * 7 / 32)
    assert between == pytest.approx(GIB * 24 / 32)


def test_channels_of_a_pair_double_with_the_size() -> None:
    shape = Shape(node(8), load("nccl"))
    found = {
        exponent: LibraryRates(shape, "send-recv", "Simple", 1 << exponent).pair_channels()
        for exponent in (25, 26, 27, 28, 29, 34)
    }
    # 8 x H100: 80 GB/s to 64 MiB, then 162, 299 and the link's 356.
    assert found == {25: 4, 26: 4, 27: 8, 28: 16, 29: 32, 34: 32}


@pytest.mark.parametrize(("local", "channels"), [(2, 2), (4, 2), (8, 1)])
def test_a_pair_over_the_net_has_fewer_channels_where_many_ranks_share_them(
    local: int, channels: int
) -> None:
    """Checks NCCL 2.18 to 2.28, paths.cc: 2 channels, halved while ranks x channels > 4 x 32."""
    shape = Shape(nodes(10, local), load("nccl"))
    rates = LibraryRates(shape, "send-recv", "Simple", 1 << 30)
    assert rates.net_channels() == channels
    port = 0.525 * 50e9
    assert rates.limit("peer", shape.first_net)[0] == pytest.approx(min(port, 14e9 * channels))


def test_small_exchanges_have_one_channel_to_each_peer() -> None:
    shape = Shape(nodes(10, 4), load("nccl"))
    small = LibraryRates(shape, "all-to-all", "Simple", 40 * 65536)
    large = LibraryRates(shape, "all-to-all", "Simple", 40 << 20)
    assert (small.net_channels(), large.net_channels()) == (1, 2)


def test_chunks_of_in_network_reduction_double_at_64_mib_and_1_gib() -> None:
    def rate(size: int) -> float:
        (phase,) = Collective("all-reduce", size).plan(node(8)).phases
        return phase.limit

    assert rate(64 * MIB - 4) < 0.95 * rate(64 * MIB) < 0.95 * rate(GIB)
    assert rate(64 * MIB) == pytest.approx(rate(GIB - 4))
    assert rate(GIB) == pytest.approx(rate(16 * GIB))


def test_a_proxy_hides_behind_long_transfers_only() -> None:
    pace = Pace(10, 50.0, 1.0)
    assert pace.visible_ns(0.0) == 500
    assert pace.visible_ns(200.0) == 300
    assert pace.visible_ns(1000.0) == 0
    assert Pace(10, 50.0, 0.0).visible_ns(1000.0) == 500


def test_a_process_with_more_gpus_launches_later() -> None:
    one, eight = (
        sum(stage.ns for stage in stages(node(8), work.plan(node(8))))
        for work in (Collective("all-reduce", 8), Collective("all-reduce", 8, gpus_per_process=8))
    )
    assert eight - one == pytest.approx(7 * 1200)


def test_a_tree_in_a_large_domain_is_no_chain_of_all_ranks() -> None:
    shape = Shape(node(1024, "ualink-200g"), load("nccl"))
    assert shape.chain_hops == 7 + 7
    assert predict(Collective("all-reduce", 8), node(1024, "ualink-200g")).time_ns < 100e3


def test_more_bytes_never_take_less_time_with_one_algorithm() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for algorithm in ("ring", "double-tree", "halving-doubling", "direct", "hierarchical"):
        network = nodes(rng.choice([2, 4, 8]), 8)
        sizes = sorted(rng.randrange(1, 1 << 34) for _ in range(20))
        times = [
            sum(each.ns for each in stages(network, work.plan(network)))
            for work in (Collective("all-reduce", size, algorithm, "Simple") for size in sizes)
        ]
        assert all(b >= a * 0.999 for a, b in pairwise(times)), algorithm


def test_a_slower_net_is_slower() -> None:
    times = [
        predict(Collective("all-reduce", GIB, "ring"), nodes(8, 8, net)).time_ns
        for net in ("ib-xdr", "ib-ndr", "ib-hdr", "ib-edr")
    ]
    assert all(a <= b * 1.001 for a, b in pairwise(times))
    assert times[-1] > 2.5 * times[1]


def test_the_channels_of_8_hoppers_a_node_bound_rings_below_their_adapters() -> None:
    # 10 x 8 H100: 324 GB/s of the 392 of the adapters; 16 channels of 20.4 GB/s.
    answer = predict(Collective("all-gather", 16 * GIB), nodes(10, 8))
    assert answer.busbw_bytes_per_s == pytest.approx(324e9, rel=0.02)
    tuned = predict(Collective("all-gather", 16 * GIB, channels=32), nodes(10, 8))
    assert tuned.busbw_bytes_per_s == pytest.approx(390e9, rel=0.02)


def test_an_adapter_that_two_gpus_share_halves_the_rate() -> None:
    alone = nodes(8, 4)
    shared = replace(alone, levels=(alone.levels[0], replace(alone.levels[1], nics=0.5)))
    times = [
        predict(Collective("all-gather", 4 * GIB, "ring"), each).time_ns for each in (alone, shared)
    ]
    assert times[1] / times[0] == pytest.approx(2, rel=0.03)


@pytest.mark.parametrize("operation", ["all-reduce", "all-gather", "reduce-scatter"])
@pytest.mark.parametrize("algorithm", ["ring", "direct", "hierarchical", "halving-doubling"])
@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (4, 8)], ids=str)
def test_single_transfers_and_plans_send_the_same_over_each_level(
    shape: tuple[int, int], algorithm: str, operation: str
) -> None:
    network = nodes(*shape)
    work = Collective(operation, 1 << 20, algorithm)
    singly = [0.0, 0.0]
    for each in work.operations(network):
        singly[network.level_between(each.rank, each.peer)] += each.bytes
    planned = [each * network.endpoints for each in sent(network, work)]
    assert singly == pytest.approx(planned, rel=1e-3)


def test_single_transfers_and_plans_of_an_exchange_send_the_same_over_each_level() -> None:
    network = nodes(4, 8)
    work = Collective("all-to-all", 1 << 20)
    singly = [0.0, 0.0]
    for each in work.operations(network):
        singly[network.level_between(each.rank, each.peer)] += each.bytes
    assert singly == pytest.approx([each * 32 for each in sent(network, work)], rel=1e-3)


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_single_transfers_and_plans_of_trees_send_alike(count: int) -> None:
    network = nodes(count, 4)
    for algorithm in ("tree", "double-tree"):
        work = Collective("all-reduce", 1 << 20, algorithm)
        singly = [0.0, 0.0]
        for each in work.operations(network):
            singly[network.level_between(each.rank, each.peer)] += each.bytes
        inside, between = (each * network.endpoints for each in sent(network, work))
        assert singly[0] == pytest.approx(inside, rel=1e-3)
        # A plan has the port of an inner node, of which there are fewer than nodes.
        assert singly[1] <= between * 1.001
