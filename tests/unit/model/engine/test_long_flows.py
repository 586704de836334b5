# SPDX-License-Identifier: BSD-3-Clause
"""Long flows that share links: the packet engine and max-min fairness agree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nupa.model.engine import fluid_compiled
from nupa.model.engine.fluid import fluid
from nupa.model.engine.packets import run
from nupa.model.engine.routes import GraphRoutes
from nupa.model.engine.transfers import transfers
from nupa.model.network.build import graph
from nupa.model.network.generators import fat_tree, one_switch
from nupa.model.network.network import Network
from nupa.model.work.phase import RankOperation

built = pytest.mark.skipif(not fluid_compiled.is_built(), reason="nupa._model is not built")
LONG_BYTES = 4 << 20


def _both(network: Network, work: list[RankOperation]) -> tuple[float, float]:
    drawn = graph(network)
    by_packets = run(drawn, transfers(network, work), seed=1).time_ns
    return by_packets, fluid(network, work, GraphRoutes(drawn)).time_ns


@built
@pytest.mark.parametrize("profile", ["ib-ndr", "uec-800", "nvlink4", "cxl-gen6x4"])
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
@pytest.mark.parametrize("shift", [1, 4, 7])
def test_sprayed_permutations_over_a_tree_take_by_packets_what_they_take_by_flows(
    shift: int,
) -> None:
    network = fat_tree(16, "uec-800", radix=8)
    work = [RankOperation(rank, (rank + shift) % 16, LONG_BYTES, "write") for rank in range(16)]
    by_packets, by_flows = _both(network, work)
    assert by_packets == pytest.approx(by_flows, rel=0.05)
