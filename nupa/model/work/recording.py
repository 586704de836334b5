# SPDX-License-Identifier: BSD-3-Clause
"""Recordings as work: `nupa run --record` once, and the same operations on any network."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter

from nupa.model.recording.layout import OPERATIONS, CallKind
from nupa.model.recording.recording import Recording, read
from nupa.model.work.phase import RankOperation
from nupa.model.work.recorded import CallReader, PostedMessage, RecordedCall, Thread
from nupa.model.work.schedule import Schedule

POLLS_MEMORY = 0.7  # of a thread's posts: so many find a write that landed since its last call

_Landings = list[tuple[float, PostedMessage]]


def from_folder(path: str, seen_ns: float = 0.0) -> Schedule:
    """Reads the recording in a folder; see schedule_of()."""
    return schedule_of(read(path), seen_ns)


def schedule_of(recording: Recording, seen_ns: float = 0.0) -> Schedule:
    """Returns the operations of a recording, each process a rank.

    Ranks are those of MPI, if a launcher said so; else the order in which processes attached.
    *seen_ns*: how long a landed write took to be seen by a program that polls memory, where it was
    recorded; that is the fabric's time, and no computation.
    ModelError: no process posted anything.
    """
    reader = CallReader(recording)
    by_rank = reader.collect()
    assembly = _Assembly(reader, seen_ns)
    for rank, mine in by_rank.items():
        for thread in reader.threads(rank, mine):
            assembly.add(thread)
    movers = Counter(message.call.mover for message in reader.messages)
    movers.pop("none", None)
    processes = reader.processes
    return Schedule(
        recording.name,
        len(processes),
        assembly.finish(),
        labels=tuple(f"{process.name} {process.program}" for process in processes),
        recorded_ns=_span_ns(reader),
        mover=movers.most_common(1)[0][0] if movers else "",
        notes=(*recording.warnings, *(f"{n} {what}" for what, n in reader.notes.items())),
    )


def _span_ns(reader: CallReader) -> float:
    calls = [
        call
        for process in reader.processes
        for call in process.calls
        if call.kind in (CallKind.POST, CallKind.COMPLETION)
    ]
    last = max(call.at_ns + (call.took_ns if call.kind == CallKind.POST else 0.0) for call in calls)
    return last - min(call.at_ns for call in calls)


class _Assembly:
    """Operations in the making: what they wait for has no index yet."""

    def __init__(self, reader: CallReader, seen_ns: float) -> None:
        self._landings = reader.landings
        self._seen_ns = seen_ns
        self._operations: list[RankOperation] = []
        self._waits: list[tuple[int, list[PostedMessage]]] = []

    def finish(self) -> list[RankOperation]:
        """Returns the operations, each with the indices of what it waits for."""
        for index, messages in self._waits:
            operation = self._operations[index]
            found = {message.index for message in messages if message.index >= 0}
            self._operations[index] = operation._replace(
                after=(*operation.after, *sorted(found - set(operation.after)))
            )
        return self._operations

    def add(self, thread: Thread) -> None:
        """Adds the chain of a thread, and what hangs on it."""
        landed = self._landings.get(thread.rank, [])
        polls = self._polls_memory(thread, landed)
        chain = -1
        pending: list[PostedMessage] = []
        last_post_ns = float("-inf")
        for step in thread.steps:
            computation_ns = step.computation_ns
            if polls and step.posted:
                message = _last_landed(landed, last_post_ns, step.at_ns)
                if message:
                    pending.append(message)
                    seen = min(message.landed_ns, step.at_ns) + self._seen_ns
                    computation_ns = min(computation_ns, max(step.at_ns - seen, 0.0))
            chain = self._compute(thread, chain, pending, computation_ns)
            if step.posted:
                last_post_ns = step.at_ns
                chain = self._post(thread, chain, step)
            pending = list(step.took)
        if pending:
            self._compute(thread, chain, pending, 0.0)

    def _polls_memory(self, thread: Thread, landed: _Landings) -> bool:
        posts = [step for step in thread.steps if step.posted]
        times = [at for at, _ in landed]
        found = sum(
            bisect_right(times, step.at_ns) > bisect_left(times, step.at_ns - step.computation_ns)
            for step in posts
        )
        return bool(found) and found >= POLLS_MEMORY * (len(posts) - 1)

    def _compute(
        self, thread: Thread, chain: int, pending: list[PostedMessage], computation_ns: float
    ) -> int:
        """Continues the chain with a computation, if there is any; returns its end."""
        whole_ns = round(computation_ns)
        if chain >= 0 and not pending and not whole_ns:
            return chain
        after = (chain,) if chain >= 0 else ()
        self._operations.append(
            RankOperation(thread.rank, thread.rank, 0, "compute", after, whole_ns, thread.lane)
        )
        if pending:
            self._waits.append((len(self._operations) - 1, pending))
        return len(self._operations) - 1

    def _post(self, thread: Thread, chain: int, step: RecordedCall) -> int:
        for message in step.posted:
            operation = OPERATIONS[message.call.opcode]
            if message.peer == message.rank or operation == "local":
                chain = self._compute(thread, chain, [], message.call.took_ns / len(step.posted))
                continue
            message.index = len(self._operations)
            self._operations.append(
                RankOperation(
                    message.rank,
                    message.peer,
                    message.call.bytes,
                    operation,
                    (chain,),
                    0,
                    thread.lane,
                )
            )
        return chain


def _last_landed(landed: _Landings, after_ns: float, until_ns: float) -> PostedMessage | None:
    place = bisect_right(landed, until_ns, key=lambda pair: pair[0])
    if place and landed[place - 1][0] > after_ns:
        return landed[place - 1][1]
    # Another program may have run before the post returned, when its data had landed.
    if place < len(landed) and after_ns < landed[place][1].call.at_ns < until_ns:
        return landed[place][1]
    return None
