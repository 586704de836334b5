# SPDX-License-Identifier: BSD-3-Clause
"""Plays requests, one at a time, and compares the outcome with the capture."""

from __future__ import annotations

from collections.abc import Callable

from nupa.packet.tables.transport import ATOMIC_BYTES
from nupa.replay.memory import CapturedMemory, in_address_space
from nupa.replay.outcome import RequestOutcome
from nupa.replay.report import Difference, Report
from nupa.replay.requests import CapturedRequest, RequestAnswer, RequestKind
from nupa.replay.stage import Stage
from nupa.replay.step import Clock, Step

_NO_ANSWER = "without an answer in the capture, to memory that nothing else tells of"
_CRAFTED = "refused for what only a crafted packet does"
_OWN_MEMORY = "refused because of the responder's own memory"
_BEYOND = "to a range that ends beyond the last address"


class Player:
    """Plays requests on a stage; the report counts their outcomes."""

    def __init__(self, stage: Stage, memory: CapturedMemory, report: Report, clock: Clock) -> None:
        self._stage = stage
        self._memory = memory
        self._report = report
        self._clock = clock

    def play(self, request: CapturedRequest) -> None:
        """Plays one request as in the capture: refused if it was refused, retried if it was."""
        report = self._report
        why = unplayable(request, self._memory)
        if why:
            report.skipped[why] += 1
            return
        outcome = RequestOutcome()
        if request.rnr:
            self._probe(request, outcome)
        if not outcome.differences and not (request.rnr and request.answer is RequestAnswer.NONE):
            Step(self._stage, self._memory, self._clock, request, outcome).run()
        report.played += 1
        if outcome.differences:
            text = str(request)
            report.differs([Difference(request.number, text, *d) for d in outcome.differences])
        elif not outcome.compared or (request.answer is RequestAnswer.NONE and not request.rnr):
            report.not_comparable += 1
        else:
            report.matched += 1
            report.partly += outcome.partly

    def _probe(self, request: CapturedRequest, outcome: RequestOutcome) -> None:
        """Plays a request without a receive: the receiver is not ready, as in the capture."""
        self._report.notes["receives withheld where the capture has an RNR NAK"] += 1
        step = Step(self._stage, self._memory, self._clock, request, outcome)
        step.run(probe=True)


def unplayable(request: CapturedRequest, memory: CapturedMemory) -> str:
    """Returns the reason why a request cannot be played; empty if it can."""
    answer, kind = request.answer, request.kind
    if kind is not RequestKind.SEND and not in_address_space(request):
        return _BEYOND
    if answer is RequestAnswer.INVALID_REQUEST:
        short = kind is RequestKind.SEND and request.length > 0
        unaligned = kind.atomic and request.va % ATOMIC_BYTES
        return "" if short or unaligned else _CRAFTED
    if answer is RequestAnswer.REMOTE_ACCESS:
        return _CRAFTED if kind is RequestKind.SEND and request.invalidates < 0 else ""
    if answer is RequestAnswer.REMOTE_OPERATION:
        return "" if kind is RequestKind.SEND and request.length else _OWN_MEMORY
    if (
        answer is RequestAnswer.NONE
        and kind is not RequestKind.SEND
        and memory.find(request) is None
    ):
        return _NO_ANSWER
    return ""


def play(
    requests: list[CapturedRequest],
    stage: Stage,
    memory: CapturedMemory,
    report: Report,
    *,
    clock: Clock,
    realtime: bool,
    progress: Callable[[int], None],
) -> None:
    """Plays all requests in the order of their execution in the capture."""
    player = Player(stage, memory, report, clock)
    began, first_ns = clock.monotonic(), min((r.ts_ns for r in requests), default=0)
    for count, request in enumerate(requests, 1):
        if realtime:
            early = (request.ts_ns - first_ns) / 1e9 - (clock.monotonic() - began)
            if early > 0:
                clock.sleep(early)
        player.play(request)
        progress(count)
