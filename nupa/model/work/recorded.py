# SPDX-License-Identifier: BSD-3-Clause
"""The calls of a recording by thread: what each posted, what it took, and the time before it."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from nupa.model.errors import ModelError
from nupa.model.recording.layout import (
    GRH_BYTES,
    POLLS_MAX,
    QPT_UD,
    RECEIVED,
    TAKES_RECEIVE,
    WRITE_WITH_IMM,
    CallFlag,
    CallKind,
)
from nupa.model.recording.recording import Call, RecordedProcess, Recording


@dataclass
class PostedMessage:
    """One posted request of a process that moves data."""

    rank: int
    peer: int
    call: Call
    landed_ns: float  # at its target, as far as its requester knows
    index: int = -1  # in the schedule


class RecordedCall(NamedTuple):
    """One call of a thread, and the computation before it."""

    at_ns: float
    computation_ns: float
    posted: tuple[PostedMessage, ...]
    took: tuple[PostedMessage, ...]


@dataclass
class Thread:
    rank: int
    lane: int
    cursor_ns: float
    wait_ns: float | None = None
    steps: list[RecordedCall] = field(default_factory=list)


@dataclass
class _Queue:
    """Requests of one send queue that have not ended."""

    pending: deque[PostedMessage] = field(default_factory=deque)


class _Peers:
    """Finds the rank of a QP number at a time: numbers are used again."""

    def __init__(self, processes: list[RecordedProcess]) -> None:
        self._owners: dict[int, list[tuple[float, int]]] = {}
        self._peers: dict[int, list[tuple[float, int]]] = {}
        self.datagrams: set[int] = set()
        for rank, process in enumerate(processes):
            for call in process.calls:
                if call.kind != CallKind.QP:
                    continue
                self._owners.setdefault(call.qpn, []).append((call.at_ns, rank))
                self._peers.setdefault(call.qpn, []).append((call.at_ns, call.peer))
                if call.opcode == QPT_UD:
                    self.datagrams.add(call.qpn)
        for table in (self._owners, self._peers):
            for entries in table.values():
                entries.sort()

    @staticmethod
    def _at(entries: list[tuple[float, int]] | None, at_ns: float) -> int | None:
        if not entries:
            return None
        return entries[max(bisect_right(entries, (at_ns, 1 << 62)) - 1, 0)][1]

    def peer_qpn(self, qpn: int, at_ns: float) -> int | None:
        return self._at(self._peers.get(qpn), at_ns)

    def rank(self, qpn: int, at_ns: float) -> int | None:
        return self._at(self._owners.get(qpn), at_ns)


class CallReader:
    """Reads the calls of all processes; *notes* counts what could not be followed."""

    def __init__(self, recording: Recording) -> None:
        used = [p for p in recording.processes if any(c.kind == CallKind.POST for c in p.calls)]
        receivers = [
            p
            for p in recording.processes
            if p not in used and any(c.kind in (CallKind.COMPLETION, CallKind.QP) for c in p.calls)
        ]
        self.processes = sorted(used + receivers, key=lambda p: (p.rank, p.start_ns))
        if not used:
            raise ModelError(f"{recording.name}: no process of the recording posted a request")
        self.peers = _Peers(self.processes)
        self.notes: dict[str, int] = {}
        self.sends: dict[tuple[int, int], list[PostedMessage]] = {}
        self.messages: list[PostedMessage] = []
        self.landings: dict[int, list[tuple[float, PostedMessage]]] = {}
        self._late_ns = [_late_ns(process) for process in self.processes]

    def note(self, what: str) -> None:
        self.notes[what] = self.notes.get(what, 0) + 1

    # --- messages ----------------------------------------------------------------------

    def collect(self) -> dict[int, list[PostedMessage]]:
        """Makes a message of each POST; returns them by rank, in the order of the file."""
        by_rank: dict[int, list[PostedMessage]] = {}
        for rank, process in enumerate(self.processes):
            queues: dict[int, _Queue] = {}
            mine = by_rank.setdefault(rank, [])
            for call in process.calls:
                if call.kind == CallKind.POST:
                    message = self._message(rank, call)
                    mine.append(message)
                    queues.setdefault(call.qpn, _Queue()).pending.append(message)
                elif call.kind == CallKind.COMPLETION and not call.opcode & RECEIVED:
                    for message in ended(queues, call):
                        if not call.flags & CallFlag.MADE_IN_POST:
                            # Half of it is the way back.
                            made_ns = call.at_ns - call.took_ns
                            message.landed_ns = (message.landed_ns + made_ns) / 2
                elif call.kind == CallKind.QP:
                    queues.pop(call.qpn, None)
        for message in self.messages:
            if message.call.opcode == 0 and message.peer != message.rank:
                self.landings.setdefault(message.peer, []).append((message.landed_ns, message))
        for landed in self.landings.values():
            landed.sort(key=lambda pair: pair[0])
        return by_rank

    def _message(self, rank: int, call: Call) -> PostedMessage:
        datagram = call.qpn in self.peers.datagrams
        target = call.peer if datagram else self.peers.peer_qpn(call.qpn, call.at_ns)
        peer = None if target is None else self.peers.rank(target, call.at_ns)
        if peer is None:
            self.note("messages to a process that was not recorded count as computation")
            peer = rank
        message = PostedMessage(rank, peer, call, call.at_ns + call.took_ns)
        self.messages.append(message)
        if target is not None and call.opcode in TAKES_RECEIVE:
            self.sends.setdefault((call.qpn, target), []).append(message)
        return message

    # --- threads -----------------------------------------------------------------------

    def threads(self, rank: int, mine: list[PostedMessage]) -> list[Thread]:
        """Returns the threads of a process, each with its steps."""
        process = self.processes[rank]
        threads: dict[int, Thread] = {}
        queues: dict[int, _Queue] = {}
        received: dict[tuple[int, int], int] = {}
        posts = iter(mine)
        calls = process.calls
        index = 0
        while index < len(calls):
            call = calls[index]
            last = index + 1
            while last < len(calls) and calls[last].flags & CallFlag.SAME_CALL:
                last += 1
            group = calls[index:last]
            index = last
            if call.kind == CallKind.QP:
                queues.pop(call.qpn, None)
            if call.kind == CallKind.CLOCK:
                for held in threads.values():  # the recorder held the process
                    held.cursor_ns = max(held.cursor_ns, call.at_ns)
            if call.kind not in (CallKind.POST, CallKind.COMPLETION, CallKind.WAIT):
                continue
            thread = threads.get(call.thread)
            if thread is None:
                thread = threads[call.thread] = Thread(rank, len(threads), call.at_ns)
            if call.kind == CallKind.WAIT:
                thread.wait_ns = call.at_ns
                continue
            posted: list[PostedMessage] = []
            took: list[PostedMessage] = []
            for each in group:
                if each.kind == CallKind.POST:
                    posted.append(next(posts))
                    queues.setdefault(each.qpn, _Queue()).pending.append(posted[-1])
                elif each.opcode & RECEIVED:
                    took.extend(self._received(each, received))
                else:
                    took.extend(ended(queues, each))
            _add_step(thread, group[0], posted, took, self._late_ns[rank])
        return list(threads.values())

    def _received(self, call: Call, counts: dict[tuple[int, int], int]) -> Iterator[PostedMessage]:
        """Yields the message of a receive's completion: the next one of its sender's queue."""
        if call.status:
            return
        sender = (
            call.peer
            if call.qpn in self.peers.datagrams
            else self.peers.peer_qpn(call.qpn, call.at_ns)
        )
        if sender is None:
            return
        key = (sender, call.qpn)
        place = counts.get(key, 0)
        counts[key] = place + 1
        sent = self.sends.get(key, [])
        if place >= len(sent):
            self.note("receives whose sender was not recorded wait for nothing")
            return
        extra = GRH_BYTES if call.qpn in self.peers.datagrams else 0
        message = sent[place]
        if message.call.bytes + extra != call.bytes and message.call.opcode != WRITE_WITH_IMM:
            self.note("receives have other sizes than the sends they were matched to")
        yield message


def ended(queues: dict[int, _Queue], call: Call) -> Iterator[PostedMessage]:
    """Yields the requests that a completion of a send queue ends (record.h R3)."""
    pending = queues.get(call.qpn, _Queue()).pending
    while pending:
        message = pending.popleft()
        yield message
        if call.status or message.call.flags & CallFlag.SIGNALED:
            return


def _late_ns(process: RecordedProcess) -> float:
    """Returns how long a completion lies there until it is polled: half of a thread's round.

    A program polls between other things; the round is computation of its own.
    """
    waits: dict[int, float] = {}
    rounds = []
    for call in process.calls:
        if call.kind == CallKind.WAIT:
            waits[call.thread] = call.at_ns
        elif call.kind == CallKind.COMPLETION and 0 < call.polls < POLLS_MAX:
            since = waits.pop(call.thread, None)
            if since is not None:
                rounds.append((call.at_ns - since) / call.polls)
    return median(rounds) / 2 if rounds else 0.0


def _add_step(
    thread: Thread,
    call: Call,
    posted: list[PostedMessage],
    took: list[PostedMessage],
    late_ns: float,
) -> None:
    waited = thread.wait_ns if call.kind == CallKind.COMPLETION else None
    until = call.at_ns if waited is None else waited
    thread.steps.append(
        RecordedCall(
            call.at_ns,
            max(until - thread.cursor_ns, 0.0),
            tuple(posted),
            tuple(took),
        )
    )
    end = call.at_ns + (call.took_ns if call.kind == CallKind.POST else 0.0)
    thread.cursor_ns = max(thread.cursor_ns, end) + call.cost_ns
    if waited is not None and call.polls:
        thread.cursor_ns -= min(late_ns, call.at_ns - waited)
    thread.wait_ns = None
