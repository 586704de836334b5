# SPDX-License-Identifier: BSD-3-Clause
"""Runs the operations of a schedule in order of time: ports and threads serve one at a time.

Each message takes the closed form's time.  Messages of one sender share its port, and messages to
one target share that.  Switches add latency and no queues: the packet engine has those.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from nupa.model.answer.answer import StageTime
from nupa.model.engine.costs import Costs, MessageCost
from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.work.phase import RankOperation
from nupa.model.work.schedule import Schedule

_TICK_EVERY = 1 << 14


class Timeline:
    """The times of operations, by their index, in ns.

    *start*: it was posted.  *seen*: its requester knew of its end.  *arrived*: its target did.
    """

    def __init__(self, schedule: Schedule, network: Network) -> None:
        self.schedule = schedule
        self.steps = list(schedule.operations(network))
        self._costs = Costs(network)
        count = len(self.steps)
        self.start = array("d", bytes(8 * count))
        self.seen = array("d", bytes(8 * count))
        self.arrived = array("d", bytes(8 * count))
        self._cause = array("q", [-1]) * count  # the operation that it waited for last
        self._lanes: dict[tuple[int, int], tuple[float, int]] = {}
        self._queues: dict[tuple[int, int], list[int]] = {}  # operations that wait for their lane
        self._sends: dict[int, tuple[float, int]] = {}
        self._receives: dict[int, float] = {}

    # --- running -----------------------------------------------------------------------

    def run(self, tick: Callable[[int], None] = lambda _done: None) -> None:
        """Runs everything.  ModelError: operations wait for each other in a circle."""
        followers, waiting = self._followers()
        # At one time by rank: the order of the file does not matter.
        ranks = [step.rank for step in self.steps]
        ready = [(0.0, ranks[i], i) for i, n in enumerate(waiting) if not n]
        heapify(ready)
        lanes: list[tuple[int, int]] = []  # -1 - i in *ready* wakes the queue of lanes[i]
        done = 0
        while ready:
            at, rank, index = heappop(ready)
            lane = lanes[-1 - index] if index < 0 else (rank, self.steps[index].lane)
            free, by = self._lanes.get(lane, (0.0, -1))
            if free > at:
                if index < 0:
                    heappush(ready, (free, rank, index))
                elif lane in self._queues:
                    heappush(self._queues[lane], index)
                else:
                    self._queues[lane] = [index]
                    lanes.append(lane)
                    heappush(ready, (free, rank, -len(lanes)))
                continue
            if index < 0:
                queue = self._queues[lane]
                token, index = index, heappop(queue)
                self._cause[index] = by
                self._run_one(at, index)
                if queue:
                    heappush(ready, (max(at, self._lanes[lane][0]), rank, token))
                else:
                    del self._queues[lane]
            else:
                self._run_one(at, index)
            done += 1
            for follower in followers.get(index, ()):
                known = self._known(index, self.steps[follower].rank)
                if known >= self.start[follower]:
                    self.start[follower] = known
                    self._cause[follower] = index
                waiting[follower] -= 1
                if not waiting[follower]:
                    heappush(ready, (self.start[follower], ranks[follower], follower))
            if done % _TICK_EVERY == 0:
                tick(done)
        if done < len(self.steps):
            stuck = next(i for i, n in enumerate(waiting) if n)
            raise ModelError(
                f"{self.schedule.name}: {len(self.steps) - done} operations wait for each other in "
                f"a circle: operation {stuck} of {self.schedule.label(self.steps[stuck].rank)}"
            )

    def _followers(self) -> tuple[dict[int, list[int]], array[int]]:
        followers: dict[int, list[int]] = {}
        waiting = array("l", bytes(array("l").itemsize * len(self.steps)))
        for index, step in enumerate(self.steps):
            for before in step.after:
                if not 0 <= before < len(self.steps):
                    raise ModelError(
                        f"{self.schedule.name}: operation {index} waits for operation {before}: "
                        f"there are {len(self.steps)}"
                    )
                followers.setdefault(before, []).append(index)
            waiting[index] = len(step.after)
        return followers, waiting

    def _known(self, index: int, rank: int) -> float:
        """Returns when *rank* knew that an operation had ended."""
        return self.seen[index] if self.steps[index].rank == rank else self.arrived[index]

    def _run_one(self, at: float, index: int) -> None:
        """Runs one operation, whose lane is free."""
        step = self.steps[index]
        lane = (step.rank, step.lane)
        self.start[index] = at
        if step.peer == step.rank:
            self.seen[index] = self.arrived[index] = at + step.compute_ns
            if step.compute_ns:
                self._lanes[lane] = (self.seen[index], index)
            return
        if step.peer < 0:
            raise ModelError(
                f"{self.schedule.name}: operation {index} is reduced by a switch: "
                "`nupa model predict` has engines for it"
            )
        cost = self._costs.of(step.rank, step.peer, step.operation, step.bytes)
        self._lanes[lane] = (at + cost.post, index)
        self._send(index, step, at, cost)

    def _send(self, index: int, step: RankOperation, at: float, cost: MessageCost) -> None:
        source, target = (step.rank, step.peer)
        if cost.answered:
            source, target = target, source
        begin = at + cost.lead
        free, by = self._sends.get(source, (0.0, -1))
        if free > begin:
            begin = free
            self._cause[index] = by
        self._sends[source] = (begin + cost.wire, index)
        there = begin + cost.flight
        there = max(there, self._receives.get(target, 0.0) + cost.wire)
        self._receives[target] = there
        self.arrived[index] = there + cost.tail
        self.seen[index] = there + cost.back

    # --- results -----------------------------------------------------------------------

    def end(self, rank: int) -> float:
        """Returns when the last operation of a rank had ended."""
        ends = (self.seen[i] for i, step in enumerate(self.steps) if step.rank == rank)
        return max(ends, default=0.0)

    @property
    def end_ns(self) -> float:
        return max(self.seen)

    def critical(self) -> Iterator[StageTime]:
        """Yields the stages of the chain that ends last, from its end to its start."""
        index = max(range(len(self.steps)), key=self.seen.__getitem__)
        until = self.seen[index]
        while index >= 0:
            begin = self.start[index]
            yield from self._stages(index, until - begin)
            index, until = self._cause[index], begin

    def _stages(self, index: int, ns: float) -> Iterator[StageTime]:
        """Yields what an operation's *ns* of the chain consist of."""
        step = self.steps[index]
        if step.peer == step.rank:
            yield StageTime("computation", ns)
            return
        cost = self._costs.of(step.rank, step.peer, step.operation, step.bytes)
        left = ns
        for stage in cost.stages:
            part = min(stage.ns, left)
            left -= part
            if part > 0:
                yield StageTime(stage.name, part)
        if left > 0:
            yield StageTime("acknowledgement" if left <= cost.back else "waiting for a port", left)
