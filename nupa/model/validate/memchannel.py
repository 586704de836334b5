# SPDX-License-Identifier: BSD-3-Clause
"""MemChannel's contention (NSDI'26): accesses of 64 B beside a stream of 4 KiB, one CXL memory.

The file has ratios.  Here they are times: of an access, from that of an idle one, and of a block of
the stream, from its time on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nupa.model.engine.packets.protocol import PacketProtocol
from nupa.model.engine.packets.run import PacketTransfer, Run
from nupa.model.network.graph import Graph, LinkKind
from nupa.model.validate.case import Line, PacketCase

IDLE_NS = 750.0  #: a load through the switch (rig b of the same chip)
LINE_BYTES, BLOCK_BYTES = 64, 4096
#: A line of 64 B takes five slots of 16 B, and a flit of 68 B carries four (CXL 3.1, 4.2).
_SLOTS = 5 / 4
_RATE = 16e9 * 64 / 68
PROTOCOL = PacketProtocol(header_bytes=BLOCK_BYTES // 4, control_bytes=16, credit_bytes=64)
#: Lines that one core has under way, and blocks of the stream: not published, the usual ones.
_OUTSTANDING = 16
#: Operations of each, and those of them that are timed: both are under way.
_COUNT, _TIMED = 3000, range(500, 2500)


def memory() -> Graph:
    """Returns two hosts, 0 and 1, and a memory, 2, behind one switch."""
    graph = Graph("one memory behind a switch", 3, 1)
    kind = graph.add_kind(LinkKind("link", _RATE, IDLE_NS / 4, 1 << 20))
    for endpoint in range(3):
        graph.add_cable(endpoint, 3, kind)
    return graph


def reads(rank: int, size: int, first: int) -> list[PacketTransfer]:
    """Returns reads of the memory, a number of them at any time; *first* is the first's index."""
    return [
        PacketTransfer(
            rank, 2, size, (first + at - _OUTSTANDING,) if at >= _OUTSTANDING else (),
            read=True, payload_bytes=size, header_bytes=size // 4,
        )
        for at in range(_COUNT)
    ]  # fmt: skip


def both() -> list[PacketTransfer]:
    """Returns the stream's blocks, and then the lines beside it."""
    return reads(0, BLOCK_BYTES, 0) + reads(1, LINE_BYTES, _COUNT)


def line_ns(found: Run) -> float:
    """Returns the mean time of a line beside the stream."""
    times = [found.times(_COUNT + at) for at in _TIMED]
    return sum(each.done_ns - each.start_ns for each in times) / len(times)


def block_ns(found: Run) -> float:
    """Returns the mean time between two blocks of the stream."""
    first, last = _TIMED[0], _TIMED[-1]
    return (found.times(last).done_ns - found.times(first).done_ns) / (last - first)


def contention(lines: Sequence[Line]) -> Iterator[PacketCase]:
    """Reads the slow-down of a line, and the share of its rate that the stream keeps."""
    alone_ns = BLOCK_BYTES * _SLOTS / _RATE * 1e9
    for line in lines:
        if line["row"] != "contention" or "second case" in line["operation"]:
            continue
        value, label = float(line["value"]), f"contention: {line['operation']}"
        if line["quantity"].startswith("slow-down"):
            time_ns, measured_ns = line_ns, value * IDLE_NS
        else:
            time_ns, measured_ns = block_ns, alone_ns / (value / 100)
        yield PacketCase(label, memory(), both(), PROTOCOL, time_ns, measured_ns)
