# SPDX-License-Identifier: BSD-3-Clause
"""The packet engine: conservation, rates, order, seeds, closed forms and errors."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nupa.model.engine.message import message
from nupa.model.engine.packets.protocol import PacketProtocol, protocol_of
from nupa.model.engine.packets.run import PacketTransfer, Run, RunProgress, run
from nupa.model.engine.packets.transfers import critical_stages, transfers
from nupa.model.errors import ModelError
from nupa.model.network.graph import Graph, LinkKind
from nupa.model.network.network import Network, NetworkLevel
from nupa.model.network.path import Cable
from nupa.model.profile.profile import load
from nupa.model.validate.htsim import fat_tree
from nupa.model.work.phase import RankOperation
from tests.unit.model.packets.topologies import GBPS, dumbbell, line, star

CREDITS = PacketProtocol(header_bytes=64, ack_packets=8)
ROCE = PacketProtocol(
    "pause", "dcqcn", payload_bytes=4096, header_bytes=82, ack_packets=8,
    ecn_low_bytes=50_000, ecn_high_bytes=200_000, ecn_share=0.2, xoff_bytes=100_000,
    xon_bytes=80_000, increase_bytes_per_s=5e7,
)  # fmt: skip
UEC = PacketProtocol(
    "trim", "pull", "packet", header_bytes=64, ack_packets=4, window_packets=32,
    ecn_low_bytes=40_000, ecn_high_bytes=100_000,
)  # fmt: skip
TCP = PacketProtocol(
    "drop", "window", "flow", "store", header_bytes=94, ack_packets=2, window_packets=10
)
TABLES = replace(CREDITS, spread="destination")
EACH = {"credits": CREDITS, "tables": TABLES, "roce": ROCE, "uec": UEC, "tcp": TCP}

works = st.lists(
    st.tuples(
        st.integers(0, 15), st.integers(0, 15), st.integers(0, 300_000), st.integers(0, 20_000),
        st.booleans(), st.integers(0, 3),
    ),
    min_size=1,
    max_size=40,
)  # fmt: skip


def drawn(work: list[tuple[int, int, int, int, bool, int]]) -> list[PacketTransfer]:
    """Each operation may wait for one before it; half of the pairs are connections."""
    numbers: dict[tuple[int, int, bool], int] = {}
    return [
        PacketTransfer(
            rank, peer, size, (at - back,) if back and at >= back else (), start, 100, 50, read,
            connection=(rank + peer) % 2
            and numbers.setdefault((rank, peer, read), len(numbers) + 1),
        )
        for at, (rank, peer, size, start, read, back) in enumerate(work)
    ]  # fmt: skip


def check_conservation(found: Run, work: list[PacketTransfer]) -> None:
    totals = found.totals
    assert totals.payload_sent_bytes == totals.payload_received_bytes
    sent = sum(one.bytes for one in work if one.rank != one.peer)
    assert totals.payload_received_bytes == sent
    end = max(found.times_ps) / 1e3
    for index, link in enumerate(found.graph.links()):
        use = found.link(index)
        assert use.bytes / link.kind.rate_bytes_per_s * 1e9 <= end + 2000
        assert use.busy_ns == pytest.approx(use.bytes / link.kind.rate_bytes_per_s * 1e9)


@pytest.mark.parametrize("name", EACH)
@settings(deadline=None, max_examples=25)
@given(works, st.integers(0, 1 << 32))
def test_bytes_in_are_bytes_out_and_no_link_is_above_its_rate(
    name: str, work: list[tuple[int, int, int, int, bool, int]], seed: int
) -> None:
    asked = drawn(work)
    found = run(fat_tree(4), asked, protocols=EACH[name], seed=seed)
    check_conservation(found, asked)
    for at, one in enumerate(asked):
        times = found.times(at)
        assert times.start_ns >= one.start_ns
        assert all(times.start_ns >= found.times(before).done_ns for before in one.after)
        assert times.acked_ns >= times.done_ns >= times.start_ns + one.before_ns


@pytest.mark.parametrize("name", EACH)
@settings(deadline=None, max_examples=10)
@given(works, st.integers(0, 1 << 32))
def test_the_same_seed_gives_the_same_answer(
    name: str, work: list[tuple[int, int, int, int, bool, int]], seed: int
) -> None:
    one, two = (run(fat_tree(4), drawn(work), protocols=EACH[name], seed=seed) for _ in range(2))
    assert one.times_ps == two.times_ps
    assert one.links_raw == two.links_raw
    assert one.totals == two.totals


def test_another_seed_gives_another_answer() -> None:
    work = [PacketTransfer(at, 15 - at, 1_000_000) for at in range(16)]
    answers = {
        tuple(run(fat_tree(4), work, protocols=CREDITS, seed=seed).times_ps) for seed in range(4)
    }
    assert len(answers) > 1


def pair(profile: str, switches: int, length_m: float) -> tuple[Network, Graph]:
    """One path of a profile, as a network of one level and as a graph."""
    level = NetworkLevel("pair", 2, load(profile), switches, Cable(load("dac"), length_m))
    rate = level.profile["rate"] * level.profile.get("efficiency", 1.0)
    kind = LinkKind("in", rate, level.link.latency_ns, 0, level.profile)
    through = kind._replace(name="out", latency_ns=kind.latency_ns + level.profile.get("hop"))
    graph = Graph("pair", 2, switches)
    last, inner = graph.add_kind(kind), graph.add_kind(through)
    nodes = [0, *range(2, 2 + switches), 1]
    for a, b in pairwise(nodes):
        graph.add_link(a, b, last if b == 1 else inner)
        graph.add_link(b, a, last if a == 0 else inner)
    return Network("pair", (level,)), graph


@settings(deadline=None, max_examples=120)
@given(
    st.sampled_from(
        [
            "ib-hdr",
            "ib-edr",
            "roce-25",
            "roce-400",
            "uec-800",
            "slingshot-11",
            "cxl-gen5x4",
            "cxl-gen6x4",
            "nupa-448",
            "nvlink4",
            "xgmi-mi300x",
            "ualink-200g",
            "upn",
        ]
    ),
    st.sampled_from(["write", "read", "send", "load", "store"]),
    st.integers(1, 4 << 20),
    st.integers(1, 5),
    st.floats(0, 2),
)
def test_a_path_without_contention_is_the_closed_form(
    profile: str, operation: str, size: int, switches: int, length_m: float
) -> None:
    network, graph = pair(profile, switches, length_m)
    memory = "line" in network.levels[0].profile.figures
    assume(memory or operation not in ("load", "store"))
    work = [RankOperation(0, 1, size, operation)]
    found = run(graph, transfers(network, work))
    wanted = sum(stage.ns for stage in message(network.levels[0].path(), operation, size))
    assert found.time_ns == pytest.approx(wanted, rel=0.02)
    stages = {stage.name: stage.ns for stage in critical_stages(network, work, found)}
    assert abs(stages.pop("queues", 0.0)) <= 0.02 * wanted
    assert sum(stages.values()) == pytest.approx(wanted, rel=0.02)


@pytest.mark.parametrize("name", EACH)
def test_one_message_reaches_the_rate_of_its_link(name: str) -> None:
    kind = LinkKind("link", 100 * GBPS, 500)
    protocol = EACH[name]
    found = run(line(3, kind), [PacketTransfer(0, 1, 10_000_000)], protocols=protocol)
    packets = -(-10_000_000 // 4096)
    wire_ns = (10_000_000 + packets * protocol.header_bytes) / kind.rate_bytes_per_s * 1e9
    # TCP's window grows from 10 packets, and halves for the first loss.
    assert wire_ns < found.time_ns < wire_ns * (1.6 if name == "tcp" else 1.02) + 2000


def test_equal_flows_share_a_link_equally() -> None:
    kind = LinkKind("link", 100 * GBPS, 500)
    graph = dumbbell(8, 8, kind, kind._replace(name="trunk"))
    work = [PacketTransfer(at, 8 + at, 1_000_000) for at in range(8)]
    ideal_ns = 8 * 1_000_000 * 1.0156 / 12.5
    # Eight receivers pull eight times what the trunk carries, and have to find their shares.
    for protocol, most, fair in ((CREDITS, 1.01, 0.95), (UEC, 1.2, 0.3)):
        found = run(graph, work, protocols=protocol)
        done = [found.times(at).done_ns for at in range(8)]
        assert ideal_ns < max(done) < most * ideal_ns
        assert min(done) > fair * max(done)


def test_an_operation_waits_for_all_before_it_and_for_its_computation() -> None:
    graph = star(4, LinkKind("link", 100 * GBPS, 100))
    work = [
        PacketTransfer(0, 1, 4096),
        PacketTransfer(2, 1, 40_960),
        PacketTransfer(1, 1, 0, (0, 1), before_ns=5000),
        PacketTransfer(1, 3, 0, (2,)),
    ]
    found = run(graph, work, protocols=CREDITS)
    first = max(found.times(0).done_ns, found.times(1).done_ns)
    assert found.times(2).start_ns == first
    assert found.times(2).done_ns == first + 5000
    assert found.times(3).start_ns == first + 5000


def test_progress_is_reported_and_an_exception_ends_the_run() -> None:
    class StopError(Exception):
        pass

    seen: list[RunProgress] = []

    def stop(progress: RunProgress) -> None:
        seen.append(progress)
        if len(seen) == 2:
            raise StopError

    work = [PacketTransfer(at, (at + 5) % 16, 60_000_000) for at in range(16)]
    with pytest.raises(StopError):
        run(fat_tree(4), work, protocols=CREDITS, progress=stop)
    assert seen[0].events < seen[1].events
    assert seen[1].operations == 16


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ([], "0 operations"),
        ([PacketTransfer(0, 9, 1)], "rank 0 and peer 9 of 4 endpoints"),
        ([PacketTransfer(0, -1, 1)], "numbers are not negative"),
        ([PacketTransfer(0, 1, 1 << 64)], "numbers are not negative"),
        ([PacketTransfer(0, 1, 1 << 60)], "2\\^32 - 2 packets"),
        (
            [PacketTransfer(0, 1, 1, (1,)), PacketTransfer(1, 0, 1, (0,))],
            "2 operations never complete",
        ),
        ([PacketTransfer(0, 1, 1, (0,))], "operation 0 waits for 0"),
        ([PacketTransfer(0, 1, 1, start_ns=1e30)], "numbers are not negative"),
        ([PacketTransfer(0, 1, 1, start_ns=2e15)], "13 days"),
    ],
)
def test_an_impossible_work_is_refused(work: list[PacketTransfer], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        run(star(4, LinkKind("link", GBPS)), work)


def test_endpoints_without_a_path_are_named() -> None:
    graph = Graph("two islands", 4, 2)
    kind = graph.add_kind(LinkKind("link", GBPS))
    for endpoint in range(4):
        graph.add_cable(endpoint, 4 + endpoint // 2, kind)
    with pytest.raises(ModelError, match="two islands: operation 0: no path from endpoint 1 to 2"):
        run(graph, [PacketTransfer(1, 2, 1)])


def test_explicit_routes_replace_shortest_paths_and_circles_are_refused() -> None:
    graph = line(2, LinkKind("link", GBPS))
    around = graph.add_switch()
    first, back = graph.add_cable(2, around, 0)
    onward, _ = graph.add_cable(around, 3, 0)
    graph.routes = {(2, 1): (first,)}
    found = run(graph, [PacketTransfer(0, 1, 1000)])
    assert found.link(onward).packets == 1
    graph.routes = {(2, 1): (first,), (around, 1): (back,)}
    with pytest.raises(ModelError, match="do not end there"):
        run(graph, [PacketTransfer(0, 1, 1000)])


def test_a_profile_says_how_its_packets_travel() -> None:
    hdr = load("ib-hdr")
    protocol = protocol_of(replace(hdr, packets={"flow_control": "pause", "transport": "dcqcn"}))
    assert (protocol.flow_control, protocol.payload_bytes, protocol.header_bytes) == (
        "pause",
        4096,
        26,
    )
    with pytest.raises(ModelError, match="transport is 'dcqnc': one of line, pull"):
        protocol_of(replace(hdr, packets={"transport": "dcqnc"}))


def test_ports_of_an_endpoint_are_used_together() -> None:
    graph = Graph("two planes", 2, 2)
    kind = graph.add_kind(LinkKind("link", 100 * GBPS, 500))
    for endpoint in range(2):
        for plane in range(2):
            graph.add_cable(endpoint, 2 + plane, kind)
    work = [PacketTransfer(0, 1, 4_000_000)]
    one_port = 4_000_000 * 1.0156 / 12.5
    both = run(graph, work, protocols=replace(CREDITS, spread="packet")).time_ns
    assert both == pytest.approx(one_port / 2, rel=0.02)
    assert run(graph, work, protocols=CREDITS).time_ns == pytest.approx(one_port, rel=0.02)


def test_random_graphs_run_with_each_protocol() -> None:
    random = Random(3)
    for _ in range(20):
        endpoints, switches = random.randint(2, 12), random.randint(1, 6)
        graph = Graph("random", endpoints, switches)
        for rate, latency in ((100, 500), (25, 50), (400, 3000)):
            graph.add_kind(LinkKind(f"{rate}", rate * GBPS, latency))
        for endpoint in range(endpoints):
            for _ in range(random.randint(1, 2)):
                graph.add_cable(
                    endpoint, endpoints + random.randrange(switches), random.randrange(3)
                )
        for switch in range(1, switches):
            graph.add_cable(
                endpoints + switch, endpoints + random.randrange(switch), random.randrange(3)
            )
        work = [
            PacketTransfer(
                random.randrange(endpoints), random.randrange(endpoints), random.randint(0, 99999)
            )
            for _ in range(30)
        ]
        for protocol in EACH.values():
            check_conservation(run(graph, work, protocols=protocol), work)


def test_a_lane_starts_its_operations_in_turn() -> None:
    graph = star(3, LinkKind("link", 100 * GBPS, 100))
    work = [PacketTransfer(0, 1 + at % 2, 64, busy_ns=400, lane=1 + at % 2) for at in range(10)]
    work.append(PacketTransfer(0, 0, 0, before_ns=1000, busy_ns=1000, lane=1))
    work.append(PacketTransfer(0, 1, 64, lane=1))
    found = run(graph, work, protocols=CREDITS)
    assert [found.times(at).start_ns for at in range(0, 10, 2)] == [0, 400, 800, 1200, 1600]
    assert [found.times(at).start_ns for at in range(1, 10, 2)] == [0, 400, 800, 1200, 1600]
    assert found.times(10) == (2000, 3000, 3000)
    assert found.times(11).start_ns == 3000


def test_an_operation_is_no_faster_than_its_own_limit() -> None:
    graph = star(2, LinkKind("link", 100 * GBPS, 100))
    for protocol in EACH.values():
        work = [PacketTransfer(0, 1, 4_000_000, limit_bytes_per_s=18.9 * GBPS)]
        wire = 4_000_000 + -(-4_000_000 // 4096) * protocol.header_bytes
        took = run(graph, work, protocols=protocol).time_ns
        assert took == pytest.approx(wire / 18.9 / GBPS * 1e9, rel=0.01)


@pytest.mark.parametrize("lane", [-1, 2, 1 << 32])
def test_lanes_are_numbered_from_1(lane: int) -> None:
    with pytest.raises(ModelError, match=r"lane 2 of 1|numbers are not negative"):
        run(star(2, LinkKind("link", GBPS)), [PacketTransfer(0, 1, 1, lane=lane)])
