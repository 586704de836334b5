# SPDX-License-Identifier: BSD-3-Clause
"""Contention that others measured or computed: a shared memory, input queues, incast, pauses."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from nupa.model.engine.packets.protocol import PacketProtocol
from nupa.model.engine.packets.run import PacketTransfer, run
from nupa.model.network.graph import LinkKind
from nupa.model.validate import memchannel
from tests.unit.model.packets.test_packets import CREDITS, ROCE, TCP, UEC
from tests.unit.model.packets.topologies import GBPS, dumbbell, star


# --- MemChannel (NSDI'26): 64 B accesses beside a stream of 4 KiB, one CXL memory -------------
def test_a_line_beside_a_stream_takes_6_9_times_as_long_and_the_stream_keeps_97_8_percent() -> None:
    stream = memchannel.reads(0, memchannel.BLOCK_BYTES, 0)
    line = memchannel.reads(1, memchannel.LINE_BYTES, 0)[:1]
    alone, idle, both = (
        run(memchannel.memory(), work, protocols=memchannel.PROTOCOL)
        for work in (stream, line, memchannel.both())
    )
    assert idle.time_ns == pytest.approx(memchannel.IDLE_NS, rel=0.05)
    slower = memchannel.line_ns(both) / idle.time_ns
    kept = memchannel.block_ns(alone) / memchannel.block_ns(both)
    print(f"the line {slower:.2f} x slower, the stream keeps {kept:.1%}")
    assert slower == pytest.approx(6.9, rel=0.10)
    assert kept == pytest.approx(0.978, abs=0.01)


# --- input queues: Karol, Hluchyj and Morgan, IEEE Trans. Comm. 35 (1987), table I -------------
@pytest.mark.parametrize(("ports", "throughput"), [(2, 0.75), (4, 0.6553), (8, 0.6184)])
def test_one_queue_an_input_reaches_the_throughput_that_is_known(
    ports: int, throughput: float
) -> None:
    assert saturated(ports, virtual_queues=False) == pytest.approx(throughput, rel=0.03)


def test_virtual_queues_reach_the_full_rate() -> None:
    assert saturated(8, virtual_queues=True) > 0.97


def saturated(ports: int, virtual_queues: bool) -> float:
    """The part of the outputs' rate that inputs reach which always have packets for any output."""
    random = Random(1)
    each = 4000
    graph = star(2 * ports, LinkKind("link", 100 * GBPS, 0, 8 << 20))
    work = [
        PacketTransfer(source, ports + random.randrange(ports), 4096)
        for _ in range(each)
        for source in range(ports)
    ]
    protocol = PacketProtocol(virtual_queues=virtual_queues, switching="store")
    found = run(graph, work, protocols=protocol)
    done = sorted(found.times_ps[1::3])
    first, last = len(done) // 5, len(done) * 7 // 10
    packet_ps = 4096 * 80
    return (last - first) * packet_ps / ports / (done[last] - done[first])


# --- incast and pauses ------------------------------------------------------------------------
SENDERS, SIZE = 32, 400_000
LINK = LinkKind("link", 100 * GBPS, 1000, 400_000)


@pytest.mark.parametrize(("protocol", "most"), [(CREDITS, 1.02), (ROCE, 2.0), (UEC, 1.05)])
def test_an_incast_fills_the_last_link(protocol: PacketProtocol, most: float) -> None:
    work = [PacketTransfer(1 + at, 0, SIZE) for at in range(SENDERS)]
    found = run(star(SENDERS + 1, LINK), work, protocols=protocol)
    packets = SENDERS * -(-SIZE // 4096)
    wire_ns = (SENDERS * SIZE + packets * protocol.header_bytes) / 12.5
    assert wire_ns < found.time_ns < wire_ns * most + 2 * 2000


def test_what_an_incast_meets_is_the_protocols() -> None:
    work = [PacketTransfer(1 + at, 0, SIZE) for at in range(SENDERS)]
    last = 1  # the link to endpoint 0
    graph = star(SENDERS + 1, LINK)
    lossless = run(graph, work, protocols=CREDITS)
    assert sum(lossless.link(at).dropped for at in range(len(graph.source))) == 0
    paused = run(graph, work, protocols=ROCE)
    assert sum(paused.link(at).dropped for at in range(len(graph.source))) == 0
    assert paused.link(last).marked > 0
    without_marks = run(graph, work, protocols=replace(ROCE, transport="line", ecn_low_bytes=0))
    assert sum(without_marks.link(at).paused for at in range(len(graph.source))) >= SENDERS
    assert sum(without_marks.link(at).dropped for at in range(len(graph.source))) == 0
    trimmed = run(graph, work, protocols=UEC)
    assert trimmed.link(last).trimmed == trimmed.totals.resent_packets > 0
    dropped = run(graph, work, protocols=TCP)
    assert dropped.link(last).dropped > 0
    assert dropped.link(last).queue_bytes_max <= LINK.buffer_bytes


def test_a_pause_spreads_to_a_flow_that_shares_only_the_first_switch() -> None:
    """The victim's own path is free: pauses stop it, trims do not."""
    trunk = LINK._replace(name="trunk", rate_bytes_per_s=4 * LINK.rate_bytes_per_s)
    graph = dumbbell(9, 2, LINK, trunk)
    hot = [PacketTransfer(at, 9, 1_000_000) for at in range(8)]
    victim = PacketTransfer(8, 10, 1_000_000)
    alone_ns = 1_000_000 / 12.5
    pausing = replace(ROCE, transport="line", ecn_low_bytes=0)
    paused = run(graph, [*hot, victim], protocols=pausing).times(8).done_ns
    freed = run(graph, [*hot, victim], protocols=UEC).times(8).done_ns
    assert paused > 3 * alone_ns
    assert freed < 1.3 * alone_ns
