# SPDX-License-Identifier: BSD-3-Clause
"""Long flows that share links: the packet engine and max-min fairness agree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nupa.model.engine.flows import compiled
from nupa.model.engine.flows.operations import fluid
from nupa.model.engine.packets.run import run
from nupa.model.engine.packets.transfers import transfers
from nupa.model.engine.routes import GraphRoutes
from nupa.model.network.build import graph
from nupa.model.network.generators import fat_tree, one_switch
from nupa.model.network.network import Network
from nupa.model.work.phase import RankOperation

built = pytest.mark.skipif(not compiled.is_built(), reason="nupa._model is not built")
LONG_BYTES = 4 << 20
#: DCQCN recovers in steps of 55 µs after each change of flows: long is 0.1 s and more.
DCQCN_LONG = {"roce-25": 320 << 20, "roce-100": 1280 << 20}


def _both(network: Network, work: list[RankOperation]) -> tuple[float, float]:
    drawn = graph(network)
    by_packets = run(drawn, transfers(network, work), seed=1).time_ns
    return by_packets, fluid(network, work, GraphRoutes(drawn)).time_ns


@built
@pytest.mark.parametrize(
    "profile",
    [
        "ib-ndr",
        "uec-800",
        "tcp-100g",
        "slingshot-11",
        "nvlink4",
        "ualink-200g",
        "cxl-gen6x4",
        "upn",
    ],
)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    into=st.booleans(),
)
@settings(deadline=None, max_examples=12)
def test_long_flows_into_or_out_of_one_port_share_it_in_both_engines(
    profile: str, sizes: list[int], into: bool
) -> None:
    network = one_switch(6, profile)
    work = [
        RankOperation(*((index + 1, 0) if into else (0, index + 1)), LONG_BYTES * size, "write")
        for index, size in enumerate(sizes)
    ]
    by_packets, by_flows = _both(network, work)
    assert by_packets == pytest.approx(by_flows, rel=0.05)


@built
@pytest.mark.parametrize("profile", ["ib-ndr", "nvlink4", "cxl-gen6x4"])
@given(
    pairs=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=10),
    longer=st.integers(1, 3),
)
@settings(deadline=None, max_examples=15)
def test_long_flows_over_virtual_queues_take_by_packets_what_they_take_by_flows(
    profile: str, pairs: set[tuple[int, int]], longer: int
) -> None:
    network = one_switch(6, profile)
    work = [
        RankOperation(rank, peer, LONG_BYTES * (longer if rank % 2 else 1), "write")
        for rank, peer in sorted(pairs)
        if rank != peer
    ]
    if work:
        by_packets, by_flows = _both(network, work)
        assert by_packets == pytest.approx(by_flows, rel=0.05)


@built
@pytest.mark.parametrize(("profile", "size"), DCQCN_LONG.items())
@given(sizes=st.lists(st.integers(1, 2), min_size=1, max_size=4), into=st.booleans())
@settings(deadline=None, max_examples=5)
def test_long_flows_under_dcqcn_share_a_port_as_flows_do(
    profile: str, size: int, sizes: list[int], into: bool
) -> None:
    network = one_switch(6, profile)
    work = [
        RankOperation(*((index + 1, 0) if into else (0, index + 1)), size * times, "write")
        for index, times in enumerate(sizes)
    ]
    by_packets, by_flows = _both(network, work)
    assert by_packets == pytest.approx(by_flows, rel=0.05)


@built
@given(
    pairs=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8),
    longer=st.integers(1, 2),
)
@settings(deadline=None, max_examples=6)
def test_long_flows_under_dcqcn_that_meet_several_full_links_are_nearly_max_min(
    pairs: set[tuple[int, int]], longer: int
) -> None:
    """A flow that is marked at one full link leaves its part of another to others."""
    network = one_switch(6, "roce-25")
    size = DCQCN_LONG["roce-25"]
    work = [
        RankOperation(rank, peer, size * (longer if rank % 2 else 1), "write")
        for rank, peer in sorted(pairs)
        if rank != peer
    ]
    if work:
        by_packets, by_flows = _both(network, work)
        assert by_packets == pytest.approx(by_flows, rel=0.10)


@built
@pytest.mark.parametrize("profile", ["roce-25", "roce-100", "roce-400"])
@pytest.mark.parametrize("flows", [2, 5])
def test_flows_shorter_than_dcqcns_recovery_lose_a_few_milliseconds_at_most(
    profile: str, flows: int
) -> None:
    """The first notifications halve the rates of all: the link is not full until they recover."""
    network = one_switch(6, profile)
    for size in (LONG_BYTES, 16 * LONG_BYTES):
        work = [RankOperation(rank + 1, 0, size, "write") for rank in range(flows)]
        by_packets, by_flows = _both(network, work)
        print(f"{profile}, {flows} x {size} B: {by_packets / by_flows - 1:+.1%}")
        assert 0.98 * by_flows < by_packets < by_flows + 6e6


@built
@pytest.mark.parametrize("profile", ["roce-25", "roce-100"])
def test_dcqcn_shares_a_port_evenly_in_time(profile: str) -> None:
    """Each of four flows that start together ends in the last tenth."""
    drawn = graph(network := one_switch(6, profile))
    work = [RankOperation(rank + 1, 0, DCQCN_LONG[profile], "write") for rank in range(4)]
    found = run(drawn, transfers(network, work), seed=1)
    ends = [found.times(at).done_ns for at in range(4)]
    assert min(ends) > 0.9 * max(ends)


@built
@pytest.mark.parametrize("shift", [1, 4, 7])
def test_sprayed_permutations_over_a_tree_take_by_packets_what_they_take_by_flows(
    shift: int,
) -> None:
    network = fat_tree(16, "uec-800", radix=8)
    work = [RankOperation(rank, (rank + shift) % 16, LONG_BYTES, "write") for rank in range(16)]
    by_packets, by_flows = _both(network, work)
    assert by_packets == pytest.approx(by_flows, rel=0.05)
