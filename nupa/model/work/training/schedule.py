# SPDX-License-Identifier: BSD-3-Clause
"""A training step operation by operation: each rank's computations and messages, as they depend.

Each stage runs its micro-batches in the order one forward, one backward (1F1B), after as many
forward passes as there are stages behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

from nupa.model.errors import ModelError
from nupa.model.work.expand import expand
from nupa.model.work.phase import RankOperation
from nupa.model.work.training.layout import Parallelism

OPERATIONS_MAX = 500_000
FORWARD, BACKWARD = 1, 2  # a backward pass takes twice a forward pass


@dataclass(frozen=True)
class Pass:
    """One pass of a micro-batch through a stage: the parts of each rank, forward.

    *layer_ns*: of a layer's computation; *head_ns*: of the output matrix, on the last stage.
    *tensors* and *experts*: collectives of a layer, and the bytes of each; *sent_bytes*: what a
    rank sends to the next stage.
    """

    layer_ns: float
    head_ns: float
    tensors: tuple[str, ...]
    tensor_bytes: int
    experts: int
    expert_bytes: int
    sent_bytes: int


@dataclass
class StepSchedule:
    """The operations of a step, in an order in which each follows what it waits for."""

    layout: Parallelism
    layers: int
    batches: int
    one: Pass
    recompute: bool = False
    operations: list[RankOperation] = field(default_factory=list)
    #: Operations that the next one of each rank waits for.
    last: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _arrived: dict[tuple[str, int, int, int], int] = field(default_factory=dict)

    def rank(self, tensor: int, data: int, stage: int) -> int:
        at = self.layout
        return tensor * at.stride("tp") + data * at.stride("dp") + stage * at.stride("pp")

    def ranks(self, stage: int) -> list[int]:
        """Returns the ranks of a stage, those of one tensor group side by side."""
        pairs = product(range(self.layout.dp), range(self.layout.tp))
        return [self.rank(tensor, data, stage) for data, tensor in pairs]

    def run(self, gradients: Callable[[StepSchedule], None]) -> list[RankOperation]:
        """Returns all operations.  ModelError: there are too many."""
        self._check(2 * self.batches * self.layers * self.layout.ranks)  # computations alone
        orders = [
            list(order(self.layout.pp, stage, self.batches)) for stage in range(self.layout.pp)
        ]
        done = [0] * self.layout.pp
        while any(done[stage] < len(orders[stage]) for stage in range(self.layout.pp)):
            before = list(done)
            for stage in range(self.layout.pp):
                while done[stage] < len(orders[stage]) and self._ready(
                    stage, *orders[stage][done[stage]]
                ):
                    self._pass(stage, *orders[stage][done[stage]])
                    done[stage] += 1
            if before == done:
                raise AssertionError("a stage waits for ever")
        gradients(self)
        return self.operations

    def _ready(self, stage: int, way: str, batch: int) -> bool:
        source = stage - 1 if way == "forward" else stage + 1
        first = source < 0 or source == self.layout.pp
        return first or (way, batch, stage, self.ranks(stage)[0]) in self._arrived

    def _pass(self, stage: int, way: str, batch: int) -> None:
        """Appends a pass of a micro-batch through a stage, and its message to the next one."""
        for rank in self.ranks(stage):
            arrived = self._arrived.get((way, batch, stage, rank))
            if arrived is not None:
                self.last[rank] = (*self.last.get(rank, ()), arrived)
        repeated = 1 if self.recompute else 0
        work = FORWARD if way == "forward" else BACKWARD + repeated
        exchanges = 1 if way == "forward" else 1 + repeated
        if way == "backward" and stage == self.layout.pp - 1:
            self.compute(stage, self.one.head_ns * BACKWARD)
        for _ in range(self.layers):
            self.compute(stage, self.one.layer_ns * work)
            for _ in range(exchanges):
                self._exchange(stage)
        if way == "forward" and stage == self.layout.pp - 1:
            self.compute(stage, self.one.head_ns)
        target = stage + 1 if way == "forward" else stage - 1
        if 0 <= target < self.layout.pp:
            self._send(stage, target, way, batch)

    def compute(self, stage: int, ns: float) -> None:
        """Appends a computation of each rank of a stage.  ModelError as `collective`."""
        self._check(self.layout.tp * self.layout.dp)
        for rank in self.ranks(stage):
            self.operations.append(
                RankOperation(rank, rank, 0, "compute", self.last.get(rank, ()), round(ns))
            )
            self.last[rank] = (len(self.operations) - 1,)

    def collective(self, name: str, ranks: list[int], size_bytes: int) -> None:
        """Appends a collective of some ranks.  ModelError: there are too many operations."""
        self._check(len(ranks) ** 2)
        after = [self.last.get(rank, ()) for rank in ranks]
        waits = expand(self.operations, name, ranks, size_bytes, after)
        self.last.update(zip(ranks, waits, strict=True))

    def _check(self, more: int) -> None:
        if len(self.operations) + more > OPERATIONS_MAX:
            raise ModelError(
                f"a step has more than {OPERATIONS_MAX} operations: give fewer ranks, layers or "
                "micro-batches, or leave the engine out"
            )

    def _exchange(self, stage: int) -> None:
        """Appends the collectives of a layer: of attention, and of the feed-forward network."""
        at, one = self.layout, self.one
        for data in range(at.dp if at.tp > 1 else 0):
            group = [self.rank(tensor, data, stage) for tensor in range(at.tp)]
            for name in 2 * one.tensors:
                self.collective(name, group, one.tensor_bytes)
        for first, tensor in product(range(0, at.dp, at.ep), range(at.tp)):
            group = [self.rank(tensor, first + each, stage) for each in range(at.ep)]
            for _ in range(one.experts if at.ep > 1 else 0):
                self.collective("all-to-all", group, one.expert_bytes)

    def _send(self, stage: int, target: int, way: str, batch: int) -> None:
        for source, to in zip(self.ranks(stage), self.ranks(target), strict=True):
            self.operations.append(
                RankOperation(source, to, self.one.sent_bytes, "send", self.last.get(source, ()))
            )
            self._arrived[way, batch, target, to] = len(self.operations) - 1


def order(stages: int, stage: int, batches: int) -> Iterator[tuple[str, int]]:
    """Yields the passes of a stage in 1F1B's order, with their micro-batches.

    >>> [f"{way[0]}{batch}" for way, batch in order(2, 0, 3)]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    ahead = min(batches, stages - stage)
    for batch in range(ahead):
        yield "forward", batch
    for batch in range(batches):
        yield "backward", batch
        if batch + ahead < batches:
            yield "forward", batch + ahead
