# SPDX-License-Identifier: BSD-3-Clause
"""GOAL, the text of LogGOPSim and ATLAHS: operations of each rank, by labels.

num_ranks 2
rank 0 {
l1: calc 100
l2: send 8b to 1 tag 0
l2 requires l1
}

A calc is in ns.  `requires` waits for an operation's end, `irequires` for its start.  A receive is
an operation of no time, which waits for the send that has its source, target and tag.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nupa.model.errors import ModelError
from nupa.model.work.phase import ANSWERED, RankOperation
from nupa.model.work.schedule import OPERATIONS_MAX, Schedule

RANKS_MAX = 1 << 20
_NUMBER_MAX = 1 << 63
_DIGITS_MAX = 19  # of numbers below that
_PASSED_MAX = 4_000_000
_ANY = -1
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_WORDS = {
    "ranks": re.compile(r"num_ranks\s+(\d+)"),
    "rank": re.compile(r"rank\s+(\d+)\s*\{"),
    "end": re.compile(r"\}"),
    "calc": re.compile(
        r"(?:([a-zA-Z]\w*)\s*:\s*)?calc\s+(\d+)(?:\s+cpu\s+(\d+))?(?:\s+nic\s+\d+)?"
    ),
    "send": re.compile(
        r"(?:([a-zA-Z]\w*)\s*:\s*)?send\s+(\d+)\s*b\s+to\s+(\d+)"
        r"(?:\s+tag\s+(\d+))?(?:\s+cpu\s+(\d+))?(?:\s+nic\s+\d+)?"
    ),
    "recv": re.compile(
        r"(?:([a-zA-Z]\w*)\s*:\s*)?recv\s+(\d+)\s*b\s+from\s+(\d+|-1)"
        r"(?:\s+tag\s+(\d+|-1))?(?:\s+cpu\s+(\d+))?(?:\s+nic\s+\d+)?"
    ),
    "needs": re.compile(r"([a-zA-Z]\w*)\s+(i?requires)\s+([a-zA-Z]\w*)"),
}


@dataclass
class _Item:
    """An operation as the text has it; *peer* and *tag* may be _ANY in a receive."""

    kind: str
    line: int
    rank: int
    size: int
    peer: int = 0
    tag: int = 0
    lane: int = 0
    after: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)


# --- reading ---------------------------------------------------------------------------


def read(text: str, name: str) -> Schedule:
    """Reads a schedule.  ModelError names *name* and the line of what is wrong."""
    return _Reader(name).read(text)


class _Sends:
    """Sends that have no receive yet, by target, source and tag; the first of each comes first."""

    def __init__(self) -> None:
        self._left: dict[int, dict[int, dict[int, deque[int]]]] = {}

    def add(self, index: int, item: _Item) -> None:
        sources = self._left.setdefault(item.peer, {})
        sources.setdefault(item.rank, {}).setdefault(item.tag, deque()).append(index)

    def take(self, receive: _Item) -> int | None:
        """Returns and removes the send for a receive: of the lowest source, if of any."""
        sources = self._left.get(receive.rank, {})
        for source in sorted(sources) if receive.peer == _ANY else (receive.peer,):
            tags = sources.get(source, {})
            tag = receive.tag
            if tag == _ANY and tags:
                tag = min(tags, key=lambda each: tags[each][0])
            if tag in tags:
                index = tags[tag].popleft()
                if not tags[tag]:
                    del tags[tag]
                if not tags:
                    del sources[source]
                return index
        return None


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._ranks = 0
        self._rank = -1
        self._items: list[_Item] = []
        self._labels: dict[str, int] = {}
        self._needs: list[tuple[int, str, str, bool]] = []
        self._seen: set[int] = set()
        self._passed = 0  # operations in chains of `irequires`

    def _error(self, line: int, what: str) -> ModelError:
        return ModelError(f"{self._name}: line {line}: {what}")

    def read(self, text: str) -> Schedule:
        line = 0
        blank = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
        for line, each in enumerate(blank.splitlines(), 1):
            stripped = each.strip()
            if stripped:
                self._line(line, stripped)
        if self._rank >= 0:
            raise self._error(line, f"rank {self._rank} has no closing bracket")
        if not self._ranks:
            raise self._error(line, "there is no `num_ranks N`: a schedule begins with it")
        if not self._items:
            raise self._error(line, "no rank has an operation")
        self._match()
        return Schedule(self._name, self._ranks, self._operations())

    def _line(self, line: int, text: str) -> None:
        for kind, pattern in _WORDS.items():
            found = pattern.fullmatch(text)
            if found:
                self._take(line, kind, found)
                return
        raise self._error(
            line, f"{text[:60]!r}: one of num_ranks, rank N {{, calc, send, recv, requires, }}"
        )

    def _take(self, line: int, kind: str, found: re.Match[str]) -> None:
        if kind == "ranks":
            self._ranks = self._number(line, found[1], RANKS_MAX)
        elif kind == "rank":
            self._begin(line, self._number(line, found[1], RANKS_MAX))
        elif self._rank < 0:
            raise self._error(line, f"{found[0][:60]!r} stands outside of `rank N {{`")
        elif kind == "end":
            self._end()
        elif kind == "needs":
            self._needs.append((line, found[1], found[3], found[2] == "irequires"))
        else:
            self._add(line, kind, found)

    def _begin(self, line: int, rank: int) -> None:
        if self._rank >= 0:
            raise self._error(line, f"rank {self._rank} has no closing bracket")
        if rank >= self._ranks:
            raise self._error(line, f"rank {rank}: there are {self._ranks}, from 0")
        if rank in self._seen:
            raise self._error(line, f"rank {rank} is there twice")
        self._seen.add(rank)
        self._rank = rank

    def _add(self, line: int, kind: str, found: re.Match[str]) -> None:
        item = _Item(kind, line, self._rank, self._number(line, found[2], _NUMBER_MAX))
        lane = found[3] if kind == "calc" else found[5]
        item.lane = self._number(line, lane or "0", 1 << 16)
        if kind != "calc":
            item.peer = _ANY if found[3] == "-1" else self._number(line, found[3], RANKS_MAX)
            item.tag = (
                _ANY if found[4] == "-1" else self._number(line, found[4] or "0", _NUMBER_MAX)
            )
            if item.peer >= self._ranks:
                raise self._error(line, f"rank {item.peer}: there are {self._ranks}, from 0")
        label = found[1]
        if label:
            if label in self._labels:
                raise self._error(line, f"rank {self._rank} has the label {label} twice")
            self._labels[label] = len(self._items)
        self._items.append(item)
        if len(self._items) > OPERATIONS_MAX:
            raise self._error(line, f"more than {OPERATIONS_MAX} operations")

    def _end(self) -> None:
        for line, label, before, start in self._needs:
            for each in (label, before):
                if each not in self._labels:
                    raise self._error(line, f"rank {self._rank} has no operation {each}")
            item = self._items[self._labels[label]]
            (item.starts if start else item.after).append(self._labels[before])
        self._labels.clear()
        self._needs.clear()
        self._rank = -1

    def _number(self, line: int, text: str, most: int) -> int:
        if len(text) > _DIGITS_MAX or int(text) >= most:
            raise self._error(line, f"{text[:40]} is too large: less than {most} is read")
        return int(text)

    def _match(self) -> None:
        """Makes each receive wait for the first send that fits and has no receive yet."""
        sends = _Sends()
        for index, item in enumerate(self._items):
            if item.kind == "send":
                sends.add(index, item)
        for item in self._items:
            if item.kind == "recv":
                sender = sends.take(item)
                if sender is None:
                    raise self._error(
                        item.line,
                        f"rank {item.rank} receives from {item.peer} with tag {item.tag}: no send "
                        "is left for it",
                    )
                item.after.append(sender)

    def _operations(self) -> list[RankOperation]:
        begun: list[tuple[int, ...]] = []
        for index, item in enumerate(self._items):
            begun.append(self._begun(index, item, begun))
        return [
            self._operation(item, after) for item, after in zip(self._items, begun, strict=True)
        ]

    def _begun(
        self, index: int, item: _Item, earlier: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Returns what an operation waits for: for a start, what that one waits for.

        *earlier* has that of the operations before.
        """
        after = dict.fromkeys(item.after)
        left, seen = list(item.starts), {index, *item.starts}
        while left:
            start = left.pop()
            if start < index:
                after |= dict.fromkeys(earlier[start])
                self._passed += len(earlier[start])
            else:
                other = self._items[start]
                after |= dict.fromkeys(other.after)
                left += [each for each in other.starts if each not in seen]
                seen.update(other.starts)
            self._passed += 1
            if self._passed > _PASSED_MAX:
                raise self._error(item.line, "the chains of `irequires` are too long")
        return tuple(after)

    def _operation(self, item: _Item, after: tuple[int, ...]) -> RankOperation:
        if item.kind == "send" and item.peer != item.rank:
            return RankOperation(item.rank, item.peer, item.size, "send", after, 0, item.lane)
        size = item.size if item.kind == "recv" else 0
        time_ns = item.size if item.kind == "calc" else 0
        name = {"calc": "compute", "recv": "receive", "send": "receive"}[item.kind]
        return RankOperation(item.rank, item.rank, size, name, after, time_ns, item.lane)


# --- writing ---------------------------------------------------------------------------


def write(schedule: Schedule) -> str:
    """Returns a schedule as GOAL text.

    Operations of verbs become sends and receives: a read is a send of 0 bytes and one back.
    ModelError: an in-network operation, which GOAL has no word for.
    """
    return "".join(_Writer(schedule).lines())


class _Writer:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._lines: list[list[str]] = [[] for _ in range(schedule.ranks)]
        self._count = [0] * schedule.ranks
        self._tags: dict[tuple[int, int], int] = {}
        self._own: dict[int, str] = {}  # label of an operation, for its own rank
        self._far: dict[int, str] = {}  # and for the other: its receive
        self._first: dict[int, str] = {}  # what has to wait for what it was after

    def lines(self) -> Iterator[str]:
        steps = self._schedule.steps
        taken = self._receives()
        for index, step in enumerate(steps):
            if step.peer < 0:
                raise ModelError(
                    f"{self._schedule.name}: operation {index} is reduced by a switch: GOAL has "
                    "sends and receives only"
                )
            if step.peer == step.rank:
                if index not in taken:
                    label = self._add(step.rank, f"calc {step.compute_ns}", step.lane)
                    self._own[index] = self._first[index] = label
            else:
                self._message(index, step)
        for receive, send in taken.items():
            self._own[receive] = self._first[receive] = self._far[send]
        for index, step in enumerate(steps):
            self._wait(step, index, taken.get(index))
        yield f"num_ranks {self._schedule.ranks}\n"
        for rank, lines in enumerate(self._lines):
            yield f"\nrank {rank} {{\n"
            yield from lines
            yield "}\n"

    def _receives(self) -> dict[int, int]:
        """Returns the send of each operation that only receives; each send has one of those."""
        steps = self._schedule.steps
        taken: dict[int, int] = {}
        used: set[int] = set()
        for index, step in enumerate(steps):
            if step.operation != "receive":
                continue
            for before in step.after:
                other = steps[before]
                if other.rank != step.rank and other.peer == step.rank and before not in used:
                    taken[index] = before
                    used.add(before)
                    break
        return taken

    def _add(self, rank: int, text: str, lane: int) -> str:
        self._count[rank] += 1
        label = f"l{self._count[rank]}"
        self._lines[rank].append(f"{label}: {text}{f' cpu {lane}' if lane else ''}\n")
        return label

    def _pair(self, source: int, target: int, size_bytes: int, lane: int) -> tuple[str, str]:
        tag = self._tags.get((source, target), 0)
        self._tags[source, target] = tag + 1
        return (
            self._add(source, f"send {size_bytes}b to {target} tag {tag}", lane),
            self._add(target, f"recv {size_bytes}b from {source} tag {tag}", 0),
        )

    def _message(self, index: int, step: RankOperation) -> None:
        if step.operation not in ANSWERED:
            self._own[index], self._far[index] = self._pair(
                step.rank, step.peer, step.bytes, step.lane
            )
            self._first[index] = self._own[index]
            return
        there, arrived = self._pair(step.rank, step.peer, 0, step.lane)
        back, self._own[index] = self._pair(step.peer, step.rank, step.bytes, 0)
        self._require(step.peer, back, arrived)
        self._first[index], self._far[index] = there, back

    def _wait(self, step: RankOperation, index: int, send: int | None) -> None:
        for before in step.after:
            if before == send:
                continue
            other = self._schedule.steps[before]
            label = self._own[before] if other.rank == step.rank else None
            if other.rank != step.rank and other.peer == step.rank:
                label = self._far[before]
            if label is None:
                raise ModelError(
                    f"{self._schedule.name}: operation {index} of rank {step.rank} waits for one "
                    f"of rank {other.rank} that sends it nothing: GOAL cannot say that"
                )
            self._require(step.rank, self._first[index], label)

    def _require(self, rank: int, label: str, before: str) -> None:
        self._lines[rank].append(f"{label} requires {before}\n")
