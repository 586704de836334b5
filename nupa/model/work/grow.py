# SPDX-License-Identifier: BSD-3-Clause
"""Grows a recording to more ranks, where its pattern says what they would do.

Patterns are recognised by the peers of each rank, relative to it.  Computations are those that were
recorded.  What cannot be known is said: see Schedule.notes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median_low

from nupa.model.errors import ModelError
from nupa.model.work.grow_tree import grow_tree, tree_of
from nupa.model.work.phase import RankOperation
from nupa.model.work.program import Item, RankProgram, Wait, assemble, programs
from nupa.model.work.schedule import OPERATIONS_MAX, Schedule


@dataclass(frozen=True)
class _Pattern:
    """Blocks of messages that all ranks send alike: *block* here, *grown* there.

    *peer* returns the target of message i of a block, for a rank of n; *size* its bytes.
    """

    name: str
    block: int
    grown: int
    peer: Callable[[int, int], int]
    source: Callable[[int, int], int]
    size: Callable[[int], int]
    note: str


def grow(schedule: Schedule, ranks: int) -> Schedule:
    """Returns the schedule on *ranks* ranks.  ModelError: its pattern does not say how, and why."""
    count = schedule.ranks
    if ranks == count:
        return schedule
    if ranks < 2:
        raise ModelError(f"{schedule.name}: {ranks} ranks have nothing to say to each other")
    found = programs(schedule)
    if isinstance(found, str):
        raise _refused(schedule, ranks, found)
    if _are_groups(found) and ranks % count == 0:
        return _repeat(schedule, found, ranks)
    total = sum(len(program.items) for program in found) * ranks // count
    tree = tree_of(found)
    pattern = tree or _pattern(found, ranks)
    if isinstance(pattern, str):
        raise _refused(schedule, ranks, pattern)
    if isinstance(pattern, _Pattern):
        total = total * pattern.grown // pattern.block
    if total > OPERATIONS_MAX:
        raise _refused(schedule, ranks, f"that would be more than {OPERATIONS_MAX} messages")
    if isinstance(pattern, _Pattern):
        grown = [_program(found, pattern, rank, ranks) for rank in range(ranks)]
        note = pattern.note
    else:
        grown = grow_tree(found, pattern, ranks)
        note = "sizes as recorded"
    return replace(
        schedule,
        ranks=ranks,
        steps=assemble(grown),
        labels=(),
        recorded_ns=0.0,
        notes=(*schedule.notes, f"grown from {count} ranks: {pattern.name}; {note}"),
    )


def _refused(schedule: Schedule, ranks: int, why: str) -> ModelError:
    return ModelError(
        f"{schedule.name} with {schedule.ranks} ranks cannot be grown to {ranks}: {why}; record it "
        "with more ranks, or without --ranks"
    )


# --- pairs -----------------------------------------------------------------------------


def _are_groups(found: Sequence[RankProgram]) -> bool:
    """Whether ranks talk in pairs alone, as a benchmark's two ends do."""
    peers = [{item.peer for item in program.items} for program in found]
    for rank, mine in enumerate(peers):
        others = {other for other, its in enumerate(peers) if rank in its}
        if len(mine | others) > 1:
            return False
    return True


def _repeat(schedule: Schedule, found: Sequence[RankProgram], ranks: int) -> Schedule:
    count = schedule.ranks
    steps: list[RankOperation] = []
    for copy in range(ranks // count):
        base = len(steps)
        for step in schedule.steps:
            steps.append(
                step._replace(
                    rank=step.rank + copy * count,
                    peer=step.peer + copy * count,
                    after=tuple(before + base for before in step.after),
                )
            )
    return replace(
        schedule,
        ranks=ranks,
        steps=steps,
        labels=(),
        recorded_ns=0.0,
        notes=(*schedule.notes, f"grown from {count} ranks: pairs, {ranks // len(found)} times"),
    )


# --- patterns that all ranks follow ----------------------------------------------------


def _pattern(found: Sequence[RankProgram], ranks: int) -> _Pattern | str:
    """Returns the pattern; or why none is recognised, naming the first rank that differs."""
    count = len(found)
    first = found[0].items
    if not first:
        return "rank 0 sends nothing"
    for rank, program in enumerate(found):
        if len(program.items) != len(first):
            return f"rank 0 sends {len(first)} messages and rank {rank} {len(program.items)}"
    for place, item in enumerate(first):
        for rank, program in enumerate(found):
            its = program.items[place]
            if (its.bytes, its.operation) != (item.bytes, item.operation):
                return (
                    f"message {place} is a {item.operation} of {item.bytes} B at rank 0 and a "
                    f"{its.operation} of {its.bytes} B at rank {rank}"
                )
    shifts = [(item.peer - 0) % count for item in first]
    by_shift = all(
        program.items[place].peer == (rank + shift) % count
        for rank, program in enumerate(found)
        for place, shift in enumerate(shifts)
    )
    if by_shift:
        return _shifted(first, shifts, count, ranks)
    by_xor = all(
        program.items[place].peer == rank ^ item.peer
        for rank, program in enumerate(found)
        for place, item in enumerate(first)
    )
    if by_xor:
        return _exchanged(first, count, ranks)
    return "the ranks' peers are not the same distance away, nor pairs that differ in one bit"


def _shifted(first: Sequence[Item], shifts: list[int], count: int, ranks: int) -> _Pattern | str:
    used = set(shifts)
    if used in ({1}, {count - 1}):
        return _ring(first, shifts[0], count, ranks)
    if used == {1, count - 1}:
        sign = [1 if shift == 1 else -1 for shift in shifts]
        return _keep("neighbours", first, lambda i, _n: sign[i], "sizes and steps as recorded")
    block = count - 1
    if used == set(range(1, count)) and all(
        shifts[at : at + block] == shifts[:block] for at in range(0, len(shifts), block)
    ):
        return _all_to_all(first, shifts, count, ranks)
    bits = (count - 1).bit_length()
    powers = [1 << bit for bit in range(bits)]
    for sequence in (powers, powers[::-1]):
        if shifts == sequence * (len(shifts) // bits):
            return _logarithmic("dissemination", first, sequence, ranks, _add)
    return f"distances {', '.join(map(str, sorted(used)))} are no pattern that is known"


def _add(rank: int, distance: int, count: int) -> int:
    return (rank + distance) % count


def _xor(rank: int, distance: int, _count: int) -> int:
    return rank ^ distance


def _keep(
    name: str, first: Sequence[Item], distance: Callable[[int, int], int], note: str
) -> _Pattern:
    """Returns the pattern whose steps do not depend on the number of ranks."""
    block = len(first)
    return _Pattern(
        name,
        block,
        block,
        lambda i, n: distance(i, n),
        lambda i, n: -distance(i, n),
        lambda i: first[i].bytes,
        note,
    )


def _ring(first: Sequence[Item], shift: int, count: int, ranks: int) -> _Pattern:
    step = 1 if shift == 1 else -1
    sizes = {item.bytes for item in first}
    if len(first) % (count - 1) or len(sizes) > 1:
        return _keep("ring", first, lambda _i, _n: step, "sizes and steps as recorded")
    reduces = len(first) % (2 * (count - 1)) == 0
    block = (2 if reduces else 1) * (count - 1)
    size = first[0].bytes
    grown_size = -(-size * count // ranks) if reduces else size
    return _Pattern(
        "ring",
        block,
        block // (count - 1) * (ranks - 1),
        lambda _i, _n: step,
        lambda _i, _n: -step,
        lambda _i: grown_size,
        f"{block} steps are an all-reduce: its buffer keeps its size"
        if reduces
        else f"{block} steps are an all-gather or reduce-scatter: each rank's part keeps its size",
    )


def _all_to_all(first: Sequence[Item], shifts: list[int], count: int, ranks: int) -> _Pattern | str:
    block = count - 1
    if len({item.bytes for item in first[:block]}) > 1:
        return "an all-to-all with different sizes does not say what further ranks would send"
    down = shifts[0] > shifts[block - 1]
    size = first[0].bytes
    return _Pattern(
        "all-to-all",
        block,
        ranks - 1,
        lambda i, n: n - 1 - i if down else i + 1,
        lambda i, n: -(n - 1 - i if down else i + 1),
        lambda _i: size,
        "each pair exchanges as much as recorded",
    )


def _exchanged(first: Sequence[Item], count: int, ranks: int) -> _Pattern | str:
    bits = (count - 1).bit_length()
    if ranks & (ranks - 1):
        return f"pairwise exchange is of a power of two of ranks: {ranks} is none"
    masks = [item.peer for item in first]
    powers = [1 << bit for bit in range(bits)]
    for sequence in (powers, powers[::-1]):
        if masks == sequence * (len(masks) // bits):
            return _logarithmic("pairwise exchange", first, sequence, ranks, _xor)
    return f"exchanges over {', '.join(map(str, masks[:8]))} are no pattern that is known"


def _logarithmic(
    name: str,
    first: Sequence[Item],
    sequence: list[int],
    ranks: int,
    reach: Callable[[int, int, int], int],
) -> _Pattern | str:
    block = len(sequence)
    grown = (ranks - 1).bit_length()
    up = sequence[0] == 1
    sizes = [item.bytes for item in first[:block]]
    near = sizes if up else sizes[::-1]  # by distance
    ratios = {b / a for a, b in pairwise(near) if a} or {1.0}
    if len(ratios) > 1 or (0 in near and any(near)):
        return f"sizes {', '.join(map(str, sizes))} B are neither equal nor in one ratio"
    ratio = ratios.pop()

    def distance(i: int) -> int:
        return 1 << (i if up else grown - 1 - i)

    def size(i: int) -> int:
        bit = i if up else grown - 1 - i
        return round(near[0] * ratio**bit)

    pattern = _Pattern(
        name,
        block,
        grown,
        lambda i, _n: distance(i),
        lambda i, _n: -distance(i),
        size,
        "sizes in the recorded ratio" if ratio != 1 else "sizes as recorded",
    )
    if reach is _xor:
        return replace(pattern, name=f"{name} by bits", source=lambda i, _n: distance(i))
    return pattern


# --- growing ---------------------------------------------------------------------------


def _program(found: Sequence[RankProgram], pattern: _Pattern, rank: int, ranks: int) -> RankProgram:
    """Returns what *rank* does: each block of the recording, stretched."""
    template = found[rank % len(found)]
    reach = _xor if pattern.name.endswith("by bits") else _add
    blocks = len(template.items) // pattern.block
    grown = RankProgram()
    usual_ns = [
        median_low(item.computation_ns for item in template.items[i :: pattern.block])
        for i in range(pattern.block)
    ]

    def source(place: int) -> int:
        return reach(rank, pattern.source(place % pattern.grown, ranks), ranks)

    def waits(needed: list[Wait], owner: int, old: int, new: int) -> list[Wait]:
        """Maps what the message *old* waited for to the message *new*."""
        mapped: dict[Wait, None] = {}
        for far in (False, True):
            old_places = {wait.place for wait in needed if (wait.rank != owner) == far}
            places: list[int] = []
            for block in {place // pattern.block for place in old_places}:
                whole = set(range(block * pattern.block, (block + 1) * pattern.block))
                if whole <= old_places:
                    old_places -= whole
                    places += range(block * pattern.grown, (block + 1) * pattern.grown)
            places += [new - (old - place) for place in old_places]
            for place in sorted(places):
                if 0 <= place < blocks * pattern.grown:
                    mapped[Wait(source(place) if far else rank, place)] = None
        return list(mapped)

    owner = rank % len(found)
    for new in range(blocks * pattern.grown):
        block, i = divmod(new, pattern.grown)
        j = i if i < pattern.block else max(pattern.block - 1, 0)
        old = block * pattern.block + j
        item = template.items[old]
        grown.items.append(
            Item(
                reach(rank, pattern.peer(i, ranks), ranks),
                pattern.size(i),
                item.operation,
                item.computation_ns if i == j else usual_ns[j],
                waits(item.waits, owner, old, new),
            )
        )
    end = blocks * pattern.grown
    grown.last_ns = template.last_ns
    grown.last_waits = waits(template.last_waits, owner, len(template.items), end)
    return grown
