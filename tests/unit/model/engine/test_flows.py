# SPDX-License-Identifier: BSD-3-Clause
"""The flow engine: plans by classes, operations one by one, and both against the closed form."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nupa.model.engine.flows import compiled
from nupa.model.engine.flows.operations import Done, fluid
from nupa.model.engine.flows.plans import flows
from nupa.model.engine.message import message, wire_bytes
from nupa.model.engine.routes import GraphRoutes, LevelRoutes
from nupa.model.engine.stages import stages
from nupa.model.errors import ModelError
from nupa.model.network import fabric
from nupa.model.network.build import graph
from nupa.model.network.generators import (
    dragonfly,
    fat_tree,
    hpn_upn,
    nvl,
    one_switch,
    rail,
)
from nupa.model.network.graph import Graph, LinkKind
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.profile import Profile, load
from nupa.model.work.collective import Collective
from nupa.model.work.perftest import Perftest
from nupa.model.work.phase import Phase, Plan, RankOperation
from nupa.topology import file as topology_file

HDR = load("ib-hdr")
MIB = 1 << 20


def _only_rate(rate: float = 1e9) -> Profile:
    """Returns a profile without latency, headers or limits."""
    figures = {"rate": HDR.figures["rate"]._replace(value=rate, low=rate, high=rate)}
    return replace(HDR, name="wire", figures=figures)


WIRE = _only_rate()


def _run(network: Network, operations: list[RankOperation], drawn: bool = False) -> Done:
    routes = GraphRoutes(graph(network)) if drawn else LevelRoutes(network)
    return fluid(network, operations, routes, compiled=False)


def _plan(*phases: Phase, pipelined: bool = False) -> Plan:
    return Plan(phases, "mine", "asked", phases[0].bytes, 2, pipelined=pipelined)


# --- plans ----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["all-reduce", "all-gather", "all-to-all", "broadcast"])
@pytest.mark.parametrize("size", [8, 64 << 10, 64 << 20])
@pytest.mark.parametrize(
    "network",
    [one_switch(8, HDR), nvl(8, "nvlink4"), fat_tree(128, "ib-ndr"), rail(64)],
    ids=lambda network: network.name,
)
def test_flows_are_the_closed_form_where_nothing_is_shared(
    network: Network, size: int, operation: str
) -> None:
    plan = Collective(operation, size).plan(network)
    closed = sum(stage.ns for stage in stages(network, plan))
    found = flows(network, plan)
    # What two levels carry over one port adds up; the closed form has the slower one alone.
    assert closed * (1 - 1e-9) <= found.time_ns <= closed * 1.35
    if len(network.levels) == 1:
        assert found.time_ns == pytest.approx(closed)


@pytest.mark.parametrize("in_flight", [1, 16])
def test_perftest_by_flows_is_perftest_by_stages(in_flight: int) -> None:
    network = one_switch(2, HDR)
    for size in (2, 256, 65536, MIB):
        plan = Perftest("write", size, in_flight, 100).plan(network)
        closed = sum(stage.ns for stage in stages(network, plan))
        assert flows(network, plan).time_ns == pytest.approx(closed)


def test_the_bottleneck_and_the_busy_share_of_a_tapered_tree_are_named() -> None:
    network = fat_tree(128, WIRE, radix=16, taper=0.25)
    top = len(network.levels) - 1
    plan = _plan(Phase("swap", "write", top, MIB, pattern="pairs"))
    found = flows(network, plan)
    assert found.time_ns == pytest.approx(4 * MIB)
    assert found.bottleneck == f"{network.levels[top].name} up"
    busy = {load.name: load.busy for load in found.links}
    assert busy["leaf out"] == pytest.approx(0.25)
    assert busy[found.bottleneck] == pytest.approx(1)
    assert found.sent == found.received == 128 * MIB


def test_an_all_to_all_leaves_a_leaf_as_often_as_its_peers_are_elsewhere() -> None:
    network = fat_tree(32, WIRE, radix=8, taper=0.5)
    assert [level.groups for level in network.levels] == [4, 8]
    plan = _plan(Phase("all", "write", 1, 1000, peers=31, pattern="all-to-all"))
    up = {load.name: load.bytes for load in flows(network, plan).links}["spine up"]
    assert up == pytest.approx(4 * 28 * 1000)


def test_phases_that_run_at_once_share_the_links_of_both() -> None:
    network = one_switch(4, WIRE)
    one = Phase("a", "write", 0, 1000, pattern="ring")
    follow = flows(network, _plan(one, replace(one, name="b")))
    together = flows(network, _plan(one, replace(one, name="b"), pipelined=True))
    assert follow.time_ns == together.time_ns == pytest.approx(2000)


@pytest.mark.parametrize("algorithm", ["hierarchical", "ring", "direct"])
def test_bytes_out_are_bytes_in_on_100_000_gpus(algorithm: str) -> None:
    network = hpn_upn(100_000)
    found = flows(network, Collective("all-reduce", 1 << 30, algorithm).plan(network))
    assert found.sent == pytest.approx(found.received)
    assert all(0 <= load.busy <= 1 for load in found.links)
    assert max(load.busy for load in found.links) > 0


@pytest.mark.parametrize(
    ("network", "algorithm", "limit_s"),
    [(hpn_upn(100_000), "hierarchical", 1.0), (fat_tree(1024), "ring", 0.01)],
    ids=["100,000 GPUs in a second", "1,024 ranks in 10 ms"],
)
def test_a_plan_costs_what_its_phases_cost_whatever_the_ranks(
    network: Network, algorithm: str, limit_s: float
) -> None:
    work = Collective("all-reduce", 1 << 30, algorithm)

    def taken() -> float:
        start = perf_counter()
        flows(network, work.plan(network))
        return perf_counter() - start

    tracemalloc.start()
    flows(network, work.plan(network))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1 << 20
    assert min(taken() for _ in range(5)) < limit_s


# --- operations ------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "read", "send", "atomic"])
@pytest.mark.parametrize("size", [0, 8, 4096, MIB])
def test_one_operation_takes_what_the_closed_form_says(operation: str, size: int) -> None:
    network = fat_tree(64, HDR)
    done = _run(network, [RankOperation(0, 63, size, operation)])
    path = network.path(0, 63)
    assert done.time_ns == pytest.approx(sum(s.ns for s in message(path, operation, size)))
    assert sum(stage.ns for stage in done.stages) == pytest.approx(done.time_ns)


def test_a_computation_takes_its_own_time_and_delays_what_follows() -> None:
    network = one_switch(2, WIRE)
    done = _run(
        network,
        [RankOperation(0, 0, 0, "write", (), 500), RankOperation(0, 1, 1000, "write", (0,))],
    )
    assert done.ends_ns == pytest.approx([500, 1500])
    assert {stage.name: stage.ns for stage in done.stages} == {
        "computation": 500, "serialisation": pytest.approx(1000),
    }  # fmt: skip


def test_computations_of_one_lane_run_one_at_a_time() -> None:
    network = one_switch(2, WIRE)
    work = [RankOperation(0, 0, 0, "write", (), 500, lane) for lane in (0, 0, 1)]
    done = _run(network, [*work, RankOperation(0, 1, 1000, "write")])
    assert done.ends_ns == pytest.approx([500, 1000, 500, 2000])


@pytest.mark.parametrize("drawn", [False, True])
def test_an_incast_shares_the_last_link_and_the_shorter_flow_ends_first(drawn: bool) -> None:
    network = one_switch(5, WIRE)
    work = [
        RankOperation(rank, 4, size, "write") for rank, size in enumerate([1000, 2000, 2000, 2000])
    ]
    done = _run(network, work, drawn)
    assert done.ends_ns == pytest.approx([4000, 7000, 7000, 7000])
    assert done.bottleneck == "switch in"
    assert dict(done.stages)["sharing switch in"] == pytest.approx(5000)


def test_a_later_flow_takes_half_of_the_link_from_then_on() -> None:
    network = one_switch(3, WIRE)
    work = [
        RankOperation(0, 2, 2000, "write"),
        RankOperation(1, 1, 0, "write", (), 1000),
        RankOperation(1, 2, 2000, "write", (1,)),
    ]
    assert _run(network, work).ends_ns == pytest.approx([3000, 1000, 4000])


def test_flows_of_one_pair_share_its_rate_as_one_class() -> None:
    network = one_switch(2, WIRE)
    sizes = [1000, 3000, 2000]
    lanes = [RankOperation(0, 1, size, "write", lane=at) for at, size in enumerate(sizes)]
    assert _run(network, lanes).ends_ns == pytest.approx([3000, 6000, 5000])


def test_flows_of_one_connection_follow_each_other_in_the_order_of_their_starts() -> None:
    network = one_switch(2, WIRE)
    work = [RankOperation(0, 1, size, "write") for size in (1000, 3000, 2000)]
    work += [RankOperation(0, 0, 0, "compute", (), 1500, 1)]
    work += [RankOperation(0, 1, 1000, "write", (3,), lane=1)]
    done = _run(network, work)
    # Lane 1's flow shares the pair's rate from 1,500 to 3,500, with one flow of lane 0.
    assert done.ends_ns == pytest.approx([1000, 5000, 7000, 1500, 3500])


def test_a_queue_depth_keeps_the_link_full() -> None:
    network = one_switch(2, HDR)
    work = list(Perftest("write", 65536, 16, 200).operations(network))
    done = _run(network, work)
    full = 200 * wire_bytes(HDR, 65536) / network.levels[0].port_bytes_per_s * 1e9
    assert full <= done.time_ns <= full * 1.02


def test_the_rate_of_small_messages_is_the_queue_pairs() -> None:
    network = one_switch(2, HDR)
    done = _run(network, [RankOperation(0, 1, 8, "write") for _ in range(1000)])
    assert done.time_ns == pytest.approx(999 / HDR["message_rate"] * 1e9, rel=0.01)
    assert dict(done.stages)["message rate"] == pytest.approx(999 / HDR["message_rate"] * 1e9)


def _exchange(ranks: int, size: int) -> Iterator[RankOperation]:
    for rank in range(ranks):
        for step in range(1, ranks):
            yield RankOperation(rank, (rank + step) % ranks, size, "write")


@pytest.mark.parametrize("network", [fat_tree(32, WIRE, radix=8, taper=0.5), one_switch(12, WIRE)])
def test_levels_and_graph_share_an_all_to_all_alike(network: Network) -> None:
    work = list(_exchange(network.endpoints, 1000))
    by_levels, by_graph = _run(network, work), _run(network, work, drawn=True)
    assert by_graph.time_ns == pytest.approx(by_levels.time_ns)
    assert by_graph.ends_ns == pytest.approx(by_levels.ends_ns)


@pytest.mark.parametrize(
    ("network", "least", "most"),
    [
        (rail(32, HDR, HDR, node=4, radix=16), 0.99, 1.01),
        (fabric.network(topology_file.load("gpu24"), HDR), 0.99, 1.01),
        (fabric.network(topology_file.load("storage16"), HDR), 0.99, 1.01),
        (fat_tree(32, HDR, radix=8, taper=0.5), 0.99, 1.01),
        (dragonfly(48, HDR, radix=8), 0.7, 1.01),  # its notes say so
    ],
    ids=lambda each: each.name if isinstance(each, Network) else "",
)
def test_levels_take_for_an_all_to_all_what_the_graph_takes(
    network: Network, least: float, most: float
) -> None:
    assert (least < 0.9) == bool(network.notes)
    work = list(_exchange(network.endpoints, MIB))
    by_levels = fluid(network, work, LevelRoutes(network))
    by_graph = fluid(network, work, GraphRoutes(graph(network)))
    assert least <= by_levels.time_ns / by_graph.time_ns <= most


def test_operations_of_an_all_to_all_take_what_its_plan_takes() -> None:
    network = fat_tree(32, WIRE, radix=8, taper=0.5)
    plan = _plan(Phase("all", "write", 1, 1000, peers=31, pattern="all-to-all"))
    done = _run(network, list(_exchange(32, 1000)))
    # The plan ends when the busiest class of links has carried its bytes.
    assert done.time_ns == pytest.approx(flows(network, plan).time_ns, rel=0.02)


def test_in_network_reduction_loads_each_port_once() -> None:
    network = nvl(8, "nvlink4")
    work = list(Collective("all-reduce", 64 * MIB, "nvls").operations(network))
    assert any(each.peer < 0 for each in work)
    done = _run(network, work)
    level = network.levels[0]
    # Each port carries the whole vector out and in, and a part the other way.
    size = wire_bytes(level.profile, 64 * MIB) * 9 / 8
    loads = {load.name: load.bytes for load in done.links}
    assert loads["NVLink out"] == loads["NVLink in"] == pytest.approx(size)
    # The reduction precedes the multicast: the schedule has no pipeline.
    assert done.time_ns == pytest.approx(
        2 * wire_bytes(level.profile, 64 * MIB) / level.port_bytes_per_s * 1e9, rel=0.01
    )


@st.composite
def _works(draw: st.DrawFn) -> tuple[Network, list[RankOperation]]:
    networks = [fat_tree(16, WIRE, radix=8), rail(16, WIRE, WIRE, node=4), fat_tree(16, HDR)]
    network = draw(st.sampled_from(networks))
    ranks = st.integers(0, network.endpoints - 1)
    work: list[RankOperation] = []
    for index in range(draw(st.integers(1, 25))):
        after = draw(st.sets(st.integers(0, index - 1), max_size=2)) if index else set()
        rank, peer = draw(ranks), draw(ranks)
        compute_ns = draw(st.integers(0, 3000)) if rank == peer else 0
        size = draw(st.integers(1, 5000))
        lane = draw(st.integers(0, 1))
        work.append(RankOperation(rank, peer, size, "write", tuple(after), compute_ns, lane))
    return network, work


@given(_works(), st.booleans())
@settings(deadline=None)
def test_what_is_sent_is_received_and_no_link_is_above_its_rate(
    asked: tuple[Network, list[RankOperation]], drawn: bool
) -> None:
    network, work = asked
    done = _run(network, work, drawn)
    assert done.received == pytest.approx(done.sent)
    assert sum(stage.ns for stage in done.stages) == pytest.approx(done.time_ns)
    assert all(load.busy <= 1 + 1e-9 for load in done.links)
    rate = network.levels[0].port_bytes_per_s
    for index, each in enumerate(work):
        start = max((done.ends_ns[earlier] for earlier in each.after), default=0)
        alone = each.compute_ns if each.rank == each.peer else each.bytes / rate * 1e9
        assert done.ends_ns[index] - start >= alone * (1 - 1e-9)
    assert done.ends_ns == _run(network, work, drawn).ends_ns, "the same again"


@pytest.mark.skipif(not compiled.is_built(), reason="nupa._model is not built")
@given(_works(), st.booleans())
@settings(deadline=None)
def test_the_engine_in_c_finds_what_the_one_in_python_finds(
    asked: tuple[Network, list[RankOperation]], drawn: bool
) -> None:
    network, work = asked
    routes = GraphRoutes(graph(network)) if drawn else LevelRoutes(network)
    slow, fast = (fluid(network, work, routes, compiled) for compiled in (False, True))
    assert fast.ends_ns == pytest.approx(slow.ends_ns)
    assert fast.received == pytest.approx(slow.received)
    assert fast.energy_pj == slow.energy_pj
    # Of two resources that are full at one rate, either may be named.
    parts = [
        {name: ns for name, ns in done.stages if "sharing" not in name} for done in (fast, slow)
    ]
    assert parts[0] == pytest.approx(parts[1], abs=1e-6)


@pytest.mark.skipif(not compiled.is_built(), reason="nupa._model is not built")
def test_the_engine_in_c_names_operations_that_wait_in_a_circle() -> None:
    network = one_switch(2, WIRE)
    with pytest.raises(ModelError, match="operation 0 never starts"):
        fluid(network, [RankOperation(0, 1, 1, "write", (0,))], LevelRoutes(network), compiled=True)
    assert fluid(network, [], LevelRoutes(network), compiled=True).time_ns == 0


def test_one_hashed_path_is_as_slow_as_its_collisions_and_spraying_is_not() -> None:
    network = fat_tree(32, WIRE, radix=8)
    drawn = graph(network)
    work = [RankOperation(rank, (rank + 4) % 32, 1000, "write") for rank in range(32)]
    sprayed = fluid(network, work, GraphRoutes(drawn))
    hashed = fluid(network, work, GraphRoutes(drawn, spread=False, seed=3))
    assert sprayed.time_ns == pytest.approx(1000)
    assert hashed.time_ns >= 2000
    assert hashed.ends_ns == fluid(network, work, GraphRoutes(drawn, False, 3)).ends_ns


@pytest.mark.parametrize(
    ("work", "message_"),
    [
        ([RankOperation(0, 9, 1, "write")], "operation 0 is of rank 9"),
        ([RankOperation(0, 1, 1, "write", (4,))], "waits for 4, which there is not"),
        ([RankOperation(0, 1, 1, "write", (0,))], "in a circle"),
        ([RankOperation(0, 1, -1, "write")], "-1 B"),
        ([RankOperation(0, -3, 1, "reduce")], "level 2, which there is not"),
    ],
)
def test_impossible_operations_are_errors(work: list[RankOperation], message_: str) -> None:
    with pytest.raises(ModelError, match=message_):
        _run(one_switch(2, WIRE), work)


def test_endpoints_without_a_path_are_an_error() -> None:
    drawn = Graph("apart", 2, 1)
    drawn.add_link(0, 2, drawn.add_kind(LinkKind("host", 1e9)))
    network = Network("apart", (NetworkLevel("switch", 2, WIRE),), drawn)
    with pytest.raises(ModelError, match="no path from endpoint 0 to 1"):
        _run(network, [RankOperation(0, 1, 1, "write")], drawn=True)
