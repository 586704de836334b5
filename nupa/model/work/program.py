# SPDX-License-Identifier: BSD-3-Clause
"""Programs of ranks: their messages in order, with computations folded in, to compare ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule


class Wait(NamedTuple):
    """A message that a rank waited for: the n-th of its own, or the n-th of a peer, to it."""

    rank: int
    place: int


@dataclass
class Item:
    """A message of a rank, the computation before it, and what it waited for since the last one."""

    peer: int
    bytes: int
    operation: str
    computation_ns: int
    waits: list[Wait]


@dataclass
class RankProgram:
    """All messages of a rank.  *last_ns* and *last_waits* follow the last one."""

    items: list[Item] = field(default_factory=list)
    last_ns: int = 0
    last_waits: list[Wait] = field(default_factory=list)


def programs(schedule: Schedule) -> list[RankProgram] | str:
    """Returns the program of each rank; or why there is none: a rank has several threads."""
    found = [RankProgram() for _ in range(schedule.ranks)]
    place: dict[int, Wait] = {}
    counts = [0] * schedule.ranks
    lanes: list[set[int]] = [set() for _ in range(schedule.ranks)]
    for index, step in enumerate(schedule.steps):
        if step.peer != step.rank:
            place[index] = Wait(step.rank, counts[step.rank])
            counts[step.rank] += 1
            lanes[step.rank].add(step.lane)
    for rank, used in enumerate(lanes):
        if len(used) > 1:
            return f"{schedule.label(rank)} has {len(used)} threads that post"
    for step in schedule.steps:
        program = found[step.rank]
        waits = [place[before] for before in step.after if before in place]
        program.last_waits += [wait for wait in waits if wait not in program.last_waits]
        program.last_ns += step.compute_ns
        if step.peer != step.rank:
            program.items.append(
                Item(step.peer, step.bytes, step.operation, program.last_ns, program.last_waits)
            )
            program.last_ns, program.last_waits = 0, []
    return found


def assemble(found: Sequence[RankProgram]) -> list[RankOperation]:
    """Returns the operations of programs: a chain of computations for each rank."""
    steps: list[RankOperation] = []
    indices: dict[Wait, int] = {}
    waits: list[tuple[int, list[Wait]]] = []
    for rank, program in enumerate(found):
        chain: tuple[int, ...] = ()
        for number, item in enumerate(program.items):
            if item.computation_ns or item.waits or not chain:
                steps.append(RankOperation(rank, rank, 0, "compute", chain, item.computation_ns))
                chain = (len(steps) - 1,)
                waits.append((chain[0], item.waits))
            indices[Wait(rank, number)] = len(steps)
            steps.append(RankOperation(rank, item.peer, item.bytes, item.operation, chain))
        if program.last_ns or program.last_waits:
            steps.append(RankOperation(rank, rank, 0, "compute", chain, program.last_ns))
            waits.append((len(steps) - 1, program.last_waits))
    for index, needed in waits:
        more = sorted({indices[wait] for wait in needed} - set(steps[index].after))
        steps[index] = steps[index]._replace(after=(*steps[index].after, *more))
    return steps
