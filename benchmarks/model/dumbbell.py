# SPDX-License-Identifier: BSD-3-Clause
"""One network in the packet engine and in simpy: the same packets over the same links.

16 endpoints at one switch send to 16 at another; the trunk has the rate of four of them.  Switches
store and forward, and queues have room for all.  Both end at the same time, or it is an error.

As a program, it prints both sides' seconds and events: python -m benchmarks.model.dumbbell
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from math import ceil
from typing import Any, NamedTuple

PAIRS = 16
BYTES, QUICK_BYTES = 8_000_000, 200_000  # of each pair
PAYLOAD, HEADER = 4096, 64
RATE, TRUNK = 12.5e9, 50e9  # bytes a second
LATENCY_NS = 500.0
LINKS = 3  # of a path


class Side(NamedTuple):
    """The CPU time of one simulator for the work, and when the work ended in the network."""

    seconds: float
    events: int
    end_ns: float


def crossings(size: int) -> int:
    """Returns how many times a packet passes a link."""
    return PAIRS * ceil(size / PAYLOAD) * LINKS


def by_engine(size: int) -> Side:
    from nupa.model.engine.packets.protocol import PacketProtocol
    from nupa.model.engine.packets.run import PacketTransfer, run
    from nupa.model.network.graph import LinkKind
    from tests.unit.model.packets import topologies

    room = 2 * PAIRS * size
    graph = topologies.dumbbell(
        PAIRS,
        PAIRS,
        LinkKind("host", RATE, LATENCY_NS, room),
        LinkKind("trunk", TRUNK, LATENCY_NS, room),
    )
    protocol = PacketProtocol(
        flow_control="drop",
        transport="line",
        switching="store",
        payload_bytes=PAYLOAD,
        header_bytes=HEADER,
    )
    work = [PacketTransfer(at, PAIRS + at, size) for at in range(PAIRS)]
    begin = time.process_time()
    found = run(graph, work, protocols=protocol)
    return Side(time.process_time() - begin, found.totals.events, found.time_ns)


def by_simpy(size: int) -> Side:
    import simpy

    begin = time.process_time()
    env = simpy.Environment()
    arrived: list[float] = []

    def port(queue: Any, rate: float, onward: Any) -> Generator[Any, Any, None]:
        """Sends what is queued at a rate, and hands it on after the latency."""
        while True:
            packet = yield queue.get()
            yield env.timeout((packet[1] + HEADER) / rate * 1e9)
            env.timeout(LATENCY_NS, packet).callbacks.append(onward)

    receivers = [simpy.Store(env) for _ in range(PAIRS)]
    trunk = simpy.Store(env)
    env.process(port(trunk, TRUNK, lambda event: receivers[event.value[0]].put(event.value)))
    for at, queue in enumerate(receivers):
        env.process(port(queue, RATE, lambda _event: arrived.append(env.now)))
        sender = simpy.Store(env)
        env.process(port(sender, RATE, lambda event: trunk.put(event.value)))
        for offset in range(0, size, PAYLOAD):
            sender.put((at, min(PAYLOAD, size - offset)))
    env.run()
    if len(arrived) * LINKS != crossings(size):
        raise RuntimeError(f"simpy delivered {len(arrived)} packets")
    return Side(time.process_time() - begin, next(env._eid), max(arrived))


def measure(size: int) -> dict[str, dict[str, float]]:
    """Returns both sides; RuntimeError: they did not end at the same time."""
    sides = {"engine": by_engine(size), "simpy": by_simpy(size)}
    ends = [side.end_ns for side in sides.values()]
    if abs(ends[0] - ends[1]) > 1e-4 * ends[1]:
        raise RuntimeError(f"the engine ends after {ends[0]} ns, simpy after {ends[1]} ns")
    return {name: side._asdict() for name, side in sides.items()}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else BYTES)))
