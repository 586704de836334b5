# SPDX-License-Identifier: BSD-3-Clause
"""From a work's operations to the packet engine's, and from its run to the stages of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from nupa.model.answer.answer import StageTime
from nupa.model.engine.message import MEMORY, issue_ns, message, wire_bytes
from nupa.model.engine.packets.protocol import PacketProtocol, protocol_of
from nupa.model.engine.packets.run import PacketTransfer, Run
from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.network.path import Path
from nupa.model.work.phase import RankOperation

#: Stages that the engine runs itself, and those of an operation's end; all others are before.
_WIRE = frozenset({"serialisation", "switches", "media"})
_END = frozenset({"receive", "write to memory", "completion", "arrival", "jitter"})


def transfers(network: Network, operations: Iterable[RankOperation]) -> Iterator[PacketTransfer]:
    """Yields each operation with the times of its endpoints, which the closed form has as well.

    ModelError: an operation of a switch, which this engine has not.
    """
    known: dict[tuple[int, str, int], PacketTransfer] = {}
    lanes: dict[tuple[int, int], int] = {}
    connections: dict[tuple[int, int, int, bool], int] = {}
    for index, one in enumerate(operations):
        if one.peer < 0:
            raise ModelError(
                f"operation {index}: {one.operation}: the packet engine has no switches that "
                "compute: take another engine, or an algorithm of hosts"
            )
        lane = lanes.setdefault((one.rank, one.lane), len(lanes) + 1)
        if one.rank == one.peer:
            took = one.compute_ns
            yield PacketTransfer(
                one.rank, one.peer, 0, one.after, before_ns=took, busy_ns=took, lane=lane
            )
            continue
        level = network.level_between(one.rank, one.peer)
        key = (level, one.operation, one.bytes)
        if key not in known:
            known[key] = _transfer(network.level_path(level), one)
        made = known[key]
        pair = (one.rank, one.peer, one.lane, made.read)
        yield made._replace(
            rank=one.rank,
            peer=one.peer,
            after=one.after,
            before_ns=made.before_ns + one.compute_ns,
            busy_ns=made.busy_ns + one.compute_ns,
            lane=lane,
            connection=connections.setdefault(pair, len(connections) + 1),
        )


def _transfer(path: Path, one: RankOperation) -> PacketTransfer:
    profile = path.profile
    stages = message(path, one.operation, one.bytes)
    payload, header = _packet(path, one)
    rate = profile.get("flow_rate") * wire_bytes(profile, one.bytes, one.operation)
    return PacketTransfer(
        one.rank,
        one.peer,
        one.bytes,
        before_ns=sum(stage.ns for stage in stages if stage.name not in _WIRE | _END),
        after_ns=sum(stage.ns for stage in stages if stage.name in _END),
        read=one.operation in ("read", "load", "atomic"),
        payload_bytes=payload,
        header_bytes=header,
        busy_ns=issue_ns(profile, one.operation),
        limit_bytes_per_s=rate / max(1, one.bytes),
    )


def _packet(path: Path, one: RankOperation) -> tuple[int, int]:
    """Returns payload and header of a packet, where lines of memory travel; else 0: the protocol's.

    A packet stands for as many lines as fit one of the fabric's full packets.
    """
    profile = path.profile
    if one.operation not in MEMORY or "line" not in profile.figures:
        return 0, 0
    protocol: PacketProtocol = protocol_of(profile)
    line, header = round(profile["line"]), round(profile.get("line_header"))
    lines = (protocol.payload_bytes + protocol.header_bytes) // (line + header)
    lines = max(1, min(lines, ceil(one.bytes / line)))
    return lines * line, lines * header


def critical_stages(
    network: Network, operations: Sequence[RankOperation], run: Run
) -> tuple[StageTime, ...]:
    """Returns what the run's time consists of: the stages of the operations that waited for each
    other until the last completion, and the queues that they met beyond their closed form."""
    times = run.times_ps
    at = max(range(len(operations)), key=lambda index: times[3 * index + 1])
    total: dict[str, float] = {}
    while True:
        one = operations[at]
        taken = (times[3 * at + 1] - times[3 * at]) / 1e3
        level = network.level_between(one.rank, one.peer) if one.rank != one.peer else None
        closed = [StageTime("computation", taken)]
        if level is not None:
            closed = list(message(network.level_path(level), one.operation, one.bytes))
            if one.compute_ns:
                closed.append(StageTime("computation", one.compute_ns))
        closed.append(StageTime("queues", taken - sum(stage.ns for stage in closed)))
        for stage in closed:
            total[stage.name] = total.get(stage.name, 0.0) + stage.ns
        if not one.after:
            break
        start = times[3 * at]
        at = max(one.after, key=lambda index: _seen(operations, run, index, one.rank))
        # An acknowledgement, from the arrival of the bytes to their sender.
        total["queues"] += (start - times[3 * at + 1]) / 1e3
    return tuple(StageTime(name, ns) for name, ns in total.items() if abs(ns) >= 1e-6)


def _seen(operations: Sequence[RankOperation], run: Run, index: int, rank: int) -> int:
    """Returns when *rank* knew that an operation had completed."""
    one = operations[index]
    receiver = one.rank if one.operation in ("read", "load", "atomic") else one.peer
    return run.times_ps[3 * index + (1 if receiver == rank else 2)]
