# SPDX-License-Identifier: BSD-3-Clause
"""Writes traces: each message is a send of one rank and a receive of another."""

from __future__ import annotations

from collections.abc import Mapping

from nupa.model.errors import ModelError
from nupa.model.formats.chakra.node import COMP, RECV, SEND, framed, metadata, put
from nupa.model.work.phase import ANSWERED
from nupa.model.work.schedule import Schedule


def write(schedule: Schedule) -> list[bytes]:
    """Returns the file of each rank.

    A message is a COMM_SEND_NODE, whose attribute `verb` says what it was, and a COMM_RECV_NODE.
    ModelError: an in-network operation; an operation waits for one of another rank that sends it
    nothing.
    """
    out = [bytearray(metadata()) for _ in range(schedule.ranks)]
    steps = schedule.steps
    receives = {
        before: index
        for index, step in enumerate(steps)
        if step.operation == "receive"
        for before in step.after
        if steps[before].rank != step.rank
    }
    sends = {index: before for before, index in receives.items()}
    tags: dict[tuple[int, int], int] = {}
    sent: dict[int, int] = {}
    for index, step in enumerate(steps):
        if step.peer < 0:
            raise ModelError(f"{schedule.name}: operation {index} is reduced by a switch")
        if step.peer != step.rank:
            pair = (step.rank, step.peer)
            sent[index] = tags[pair] = tags.get(pair, -1) + 1
    for index, step in enumerate(steps):
        deps = _deps(schedule, index, receives)
        if step.peer != step.rank:
            attributes: dict[str, int | str] = {
                "comm_size": step.bytes,
                "comm_dst": step.peer,
                "comm_tag": sent[index],
                "verb": step.operation,
                "lane": step.lane,
            }
            out[step.rank] += framed(put(2 * index, SEND, step.operation, deps, 0, attributes))
            if index not in receives and step.operation not in ANSWERED:
                attributes = {
                    "comm_size": step.bytes,
                    "comm_src": step.rank,
                    "comm_tag": sent[index],
                }
                out[step.peer] += framed(put(2 * index + 1, RECV, "receive", [], 0, attributes))
            continue
        send = sends.get(index)
        if step.operation == "receive" and send is not None:
            other = steps[send]
            attributes = {
                "comm_size": other.bytes,
                "comm_src": other.rank,
                "comm_tag": sent[send],
                "lane": step.lane,
            }
            out[step.rank] += framed(put(2 * index, RECV, "receive", deps, 0, attributes))
        else:
            attributes = {"duration_ns": step.compute_ns, "lane": step.lane}
            out[step.rank] += framed(
                put(2 * index, COMP, step.operation, deps, step.compute_ns, attributes)
            )
    return [bytes(each) for each in out]


def _deps(schedule: Schedule, index: int, receives: Mapping[int, int]) -> list[int]:
    """Returns the nodes that an operation waits for; of another rank's message, its receive."""
    step = schedule.steps[index]
    deps = []
    for before in step.after:
        other = schedule.steps[before]
        if other.rank == step.rank:
            deps.append(2 * before)
        elif other.peer != step.rank or (other.operation in ANSWERED and before not in receives):
            raise ModelError(
                f"{schedule.name}: operation {index} of rank {step.rank} waits for one of rank "
                f"{other.rank} that sends it nothing: a trace of one rank cannot say that"
            )
        elif receives.get(before) != index:
            deps.append(2 * receives[before] if before in receives else 2 * before + 1)
    return deps
