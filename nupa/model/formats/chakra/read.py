# SPDX-License-Identifier: BSD-3-Clause
"""Reads traces: sends meet receives, and the n-th collective of each rank of a group is one."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from nupa.model.bounded import read_bytes
from nupa.model.errors import ModelError
from nupa.model.formats.chakra.node import (
    COLL,
    COMP,
    MEM_LOAD,
    MEM_STORE,
    METADATA,
    RECV,
    SEND,
    TraceNode,
    Value,
    nodes,
)
from nupa.model.formats.wire import Scalar
from nupa.model.work.expand import expand
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import OPERATIONS_MAX, Schedule

FILE_BYTES_MAX = 256 << 20
_SUFFIX = re.compile(r"(.*)\.(\d+)\.et")
#: Lanes of nodes that name none: the CPU's, an accelerator's, and that of communication.
_CPU, _ACCELERATOR, _COMMUNICATION = range(3)
_TYPES = {METADATA, MEM_LOAD, MEM_STORE, COMP, SEND, RECV, COLL}
_COLLECTIVES = (
    "all-reduce",
    "reduce",
    "all-gather",
    "gather",
    "scatter",
    "broadcast",
    "all-to-all",
    "reduce-scatter",
    "reduce-scatter",
    "barrier",
)


def read(path: str) -> Schedule:
    """Reads the traces of all ranks: *path* is the one of any rank, or NAME without `.0.et`.

    ModelError names the file and the node, or the offset, of what is wrong.
    """
    found = _SUFFIX.fullmatch(path)
    stem = found[1] if found else path
    paths = sorted(
        (int(match[2]), each)
        for each in Path(stem).parent.glob("*.et")
        if (match := _SUFFIX.fullmatch(str(each))) and Path(match[1]) == Path(stem)
    )
    if not paths:
        raise ModelError(f"{path}: no trace {stem}.0.et, {stem}.1.et, ...")
    if [rank for rank, _ in paths] != list(range(len(paths))):
        raise ModelError(
            f"{stem}: the traces are of ranks {', '.join(str(rank) for rank, _ in paths)}: one of "
            "each rank from 0 is needed"
        )
    traces = []
    for _, each in paths:
        data = read_bytes(each, FILE_BYTES_MAX)
        traces.append(list(nodes(data, str(each))))
    return _TraceAssembly(Path(stem).name, [str(each) for _, each in paths], traces).schedule()


def _values(found: Value) -> tuple[Scalar, ...]:
    return found if isinstance(found, tuple) else (found,)


class _TraceAssembly:
    """Makes operations of the nodes of all ranks."""

    def __init__(
        self, name: str, sources: Sequence[str], traces: Sequence[list[TraceNode]]
    ) -> None:
        self._name = name
        self._sources = sources
        self._traces = traces
        named = [
            [node.number("lane") for node in each if "lane" in node.attributes] for each in traces
        ]
        #: By rank, the lane of collectives' messages; None where nodes name no lane.
        self._beside = [max(lanes) + 1 if lanes else None for lanes in named]
        self._steps: list[RankOperation] = []
        self._ends: list[dict[int, tuple[int, ...]]] = [{} for _ in traces]
        self._notes: dict[str, int] = {}

    def schedule(self) -> Schedule:
        sends: dict[tuple[int, int, int], deque[int]] = {}
        receives: list[tuple[int, int, TraceNode]] = []
        collectives: list[list[TraceNode]] = []
        for rank, trace in enumerate(self._traces):
            mine: list[TraceNode] = []
            for node in trace:
                self._add(rank, node, sends, receives, mine)
            collectives.append(mine)
        self._wait()
        for index, rank, node in receives:
            self._receive(index, rank, node, sends)
        starts = self._starts(collectives)
        self._expand(collectives, starts)
        notes = tuple(f"{count} {what}" for what, count in self._notes.items())
        return Schedule(self._name, len(self._traces), self._steps, notes=notes)

    def _lane(self, rank: int, node: TraceNode) -> int:
        """Returns the lane of a node: computation goes on while messages pass, as on a GPU.

        Nodes of ours name lanes: posts and computations of a thread take turns.
        """
        beside = self._beside[rank]
        if "lane" in node.attributes:
            return node.number("lane")
        if node.type in (SEND, RECV, COLL, METADATA):
            return _COMMUNICATION if beside is None else beside
        return _CPU if node.attributes.get("is_cpu_op", True) else _ACCELERATOR

    def _error(self, rank: int, node: TraceNode, what: str) -> ModelError:
        return ModelError(f"{self._sources[rank]}: node {node.id} ({node.name!r}): {what}")

    def _peer(self, rank: int, node: TraceNode, name: str) -> int:
        if name not in node.attributes:
            raise self._error(rank, node, f"has no attribute {name}")
        peer = node.number(name)
        if not 0 <= peer < len(self._traces):
            raise self._error(
                rank, node, f"{name} is {peer}: there are ranks 0 to {len(self._traces) - 1}"
            )
        return peer

    def _size(self, rank: int, node: TraceNode) -> int:
        size_bytes = node.number("comm_size")
        if not 0 <= size_bytes < 1 << 50:
            raise self._error(rank, node, f"comm_size is {size_bytes} bytes")
        return size_bytes

    def _add(
        self,
        rank: int,
        node: TraceNode,
        sends: dict[tuple[int, int, int], deque[int]],
        receives: list[tuple[int, int, TraceNode]],
        collectives: list[TraceNode],
    ) -> None:
        if node.type not in _TYPES:
            raise self._error(rank, node, f"is of type {node.type}: 1 to {COLL} are read")
        if node.id in self._ends[rank]:
            raise self._error(rank, node, "the number is there twice")
        index = len(self._steps)
        if index >= OPERATIONS_MAX:
            raise self._error(rank, node, f"more than {OPERATIONS_MAX} operations")
        self._ends[rank][node.id] = (index,)
        lane = self._lane(rank, node)
        if node.type == SEND:
            peer = self._peer(rank, node, "comm_dst")
            name = node.attributes.get("verb", "send")
            if peer == rank:
                raise self._error(rank, node, "sends to its own rank")
            sends.setdefault((rank, peer, node.number("comm_tag")), deque()).append(index)
            size_bytes = self._size(rank, node)
            self._steps.append(RankOperation(rank, peer, size_bytes, str(name), (), 0, lane))
            return
        if node.type == RECV:
            receives.append((index, rank, node))
            operation = "receive"
        else:
            operation = "compute"
        if node.type == COLL:
            collectives.append(node)
        memory = node.type in (MEM_LOAD, MEM_STORE)
        if (memory or "num_ops" in node.attributes) and not node.duration_ns:
            what = "accesses to memory" if memory else "computations, of which num_ops is known,"
            note = f"{what} have no duration, and take no time"
            self._notes[note] = self._notes.get(note, 0) + 1
        time_ns = node.duration_ns if node.type in (COMP, MEM_LOAD, MEM_STORE) else 0
        if time_ns < 0:
            raise self._error(rank, node, f"takes {time_ns} ns")
        self._steps.append(RankOperation(rank, rank, 0, operation, (), time_ns, lane))

    def _wait(self) -> None:
        for rank, trace in enumerate(self._traces):
            for node in trace:
                after: dict[int, None] = {}
                for before in node.deps:
                    if before not in self._ends[rank]:
                        raise self._error(rank, node, f"waits for node {before}: there is none")
                    after |= dict.fromkeys(self._ends[rank][before])
                (index,) = self._ends[rank][node.id]
                self._steps[index] = self._steps[index]._replace(after=tuple(after))

    def _receive(
        self, index: int, rank: int, node: TraceNode, sends: dict[tuple[int, int, int], deque[int]]
    ) -> None:
        source = self._peer(rank, node, "comm_src")
        left = sends.get((source, rank, node.number("comm_tag")), deque())
        if not left:
            raise self._error(
                rank,
                node,
                f"receives from rank {source} with tag {node.number('comm_tag')}: no send is left",
            )
        step = self._steps[index]
        self._steps[index] = step._replace(after=(*step.after, left.popleft()))

    # --- collectives -------------------------------------------------------------------

    def _starts(self, collectives: Sequence[list[TraceNode]]) -> list[list[int]]:
        """Makes an operation of each collective's start, as its own one becomes its end."""
        starts: list[list[int]] = []
        for rank, mine in enumerate(collectives):
            starts.append([])
            for node in mine:
                (end,) = self._ends[rank][node.id]
                step = self._steps[end]
                self._steps.append(
                    RankOperation(rank, rank, 0, "compute", step.after, 0, step.lane)
                )
                starts[rank].append(len(self._steps) - 1)
        return starts

    def _expand(self, collectives: Sequence[list[TraceNode]], starts: list[list[int]]) -> None:
        """The n-th collective of a group is one: groups are named by the attribute pg_name."""
        groups: dict[tuple[str, int], list[tuple[int, TraceNode, int]]] = {}
        for rank, mine in enumerate(collectives):
            counts: dict[str, int] = {}
            for node, start in zip(mine, starts[rank], strict=True):
                group = str(node.attributes.get("pg_name", ""))
                place = counts.get(group, 0)
                counts[group] = place + 1
                groups.setdefault((group, place), []).append((rank, node, start))
        for members in groups.values():
            self._collective(members)

    def _collective(self, members: list[tuple[int, TraceNode, int]]) -> None:
        rank, node, _ = members[0]
        number = node.number("comm_type")
        if "comm_type" not in node.attributes or not 0 <= number < len(_COLLECTIVES):
            raise self._error(rank, node, "has no comm_type from 0 to 9")
        size_bytes = self._size(rank, node)
        dimensions = node.attributes.get("involved_dim", ())
        if "pg_name" not in node.attributes and not all(_values(dimensions)):
            raise self._error(
                rank,
                node,
                f"is of some dimensions of a network, involved_dim {list(_values(dimensions))}: "
                "which ranks these are, a trace does not say; pg_name names them",
            )
        for other, its, _ in members:
            if (its.number("comm_type"), self._size(other, its)) != (number, size_bytes):
                raise self._error(
                    other,
                    its,
                    f"is {_COLLECTIVES[its.number('comm_type') % 10]} of {self._size(other, its)} "
                    f"B: rank {rank} has {_COLLECTIVES[number]} of {size_bytes} B there",
                )
        ends = expand(
            self._steps,
            _COLLECTIVES[number],
            [member[0] for member in members],
            size_bytes,
            [(member[2],) for member in members],
            [self._lane(member[0], member[1]) for member in members],
        )
        if len(self._steps) > OPERATIONS_MAX:
            raise self._error(rank, node, f"more than {OPERATIONS_MAX} operations of collectives")
        for (other, its, _), after in zip(members, ends, strict=True):
            (index,) = self._ends[other][its.id]
            self._steps[index] = self._steps[index]._replace(after=after)
