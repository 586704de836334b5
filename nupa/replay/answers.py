# SPDX-License-Identifier: BSD-3-Clause
"""Assigns answers to requests by PSN; an answer acknowledges all requests before its own, too."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

from nupa.packet.tables.opcodes import ATOMIC_ACKNOWLEDGE, READ_RESPONSES
from nupa.packet.tables.transport import ACK, NAK, RNR_NAK, SYNDROME_KIND, SYNDROME_VALUE
from nupa.replay import reasons
from nupa.replay.epochs import Epoch
from nupa.replay.packets import TransportPacket
from nupa.replay.requests import NAKS, CapturedRequest, Content, RequestAnswer, RequestKind


class Answers:
    """Assigns the answers of an epoch to its requests."""

    def __init__(
        self,
        epoch: Epoch,
        messages: list[tuple[int, int, CapturedRequest]],
        skipped: Counter[str],
    ) -> None:
        self._epoch = epoch
        self._messages = messages
        self._starts = [start for start, _, _ in messages]
        self._skipped = skipped
        self._next = 0  # the oldest message without an answer
        self._pieces: dict[
            int, dict[int, TransportPacket]
        ] = {}  # responses of READs, by message and place
        self._resent = False  # from here on, dropped requests are sent again

    def give(self) -> None:
        for at, packet in self._epoch.answers:
            index = bisect_right(self._starts, at) - 1
            if index < 0 or at > self._messages[index][1]:
                self._acknowledge(at, packet)  # its own message is incomplete
                self._skipped[reasons.STRAY] += 1
                continue
            self._take(index, at, packet)
        for index, pieces in self._pieces.items():
            self._join(self._messages[index][2], pieces)

    def _take(self, index: int, at: int, packet: TransportPacket) -> None:
        start, _, request = self._messages[index]
        if packet.operation in READ_RESPONSES:
            self._acknowledge(start - 1, packet)
            if request.kind is RequestKind.READ:
                pieces = self._pieces.setdefault(index, {})
                if not pieces:
                    request.executed = packet.number
                pieces.setdefault(at - start, packet)
                self._acknowledge(at, packet)
            return
        reply = packet.syndrome & SYNDROME_KIND
        if reply == ACK:
            is_value = packet.operation == ATOMIC_ACKNOWLEDGE
            if is_value and request.kind.atomic and request.original is None:
                request.original = packet.original
                request.executed = packet.number
            self._acknowledge(at, packet)
        elif reply == RNR_NAK:
            self._acknowledge(start - 1, packet)
            if request.takes_receive and not request.answer.works:
                request.rnr = request.rnr or packet.number
                self._resent = True
        elif reply == NAK:
            self._acknowledge(start - 1, packet)
            answer = NAKS.get(packet.syndrome & SYNDROME_VALUE)
            if answer is None:
                self._skipped[reasons.GAPS] += 1
                self._resent = True
            elif request.answer is RequestAnswer.NONE:
                request.answer = answer
                request.executed = packet.number
                request.done_ns = packet.ts_ns
                self._next = max(self._next, index + 1)

    def _acknowledge(self, at: int, packet: TransportPacket) -> None:
        """Marks all requests up to the PSN *at* as done."""
        while self._next < len(self._messages) and self._messages[self._next][1] <= at:
            start, end, request = self._messages[self._next]
            self._next += 1
            if request.answer is not RequestAnswer.NONE:
                continue
            request.answer = RequestAnswer.DONE
            request.done_ns = packet.ts_ns
            if self._resent and request.original is None and request.kind is not RequestKind.READ:
                # It was dropped at first: the last copy before its answer was executed.
                again = max(self._epoch.again.get(psn, 0) for psn in range(start, end + 1))
                if again < packet.number:
                    request.executed = max(request.executed, again)

    def _join(self, request: CapturedRequest, pieces: dict[int, TransportPacket]) -> None:
        mtu = self._epoch.mtu or request.length
        request.data = Content(request.length)
        for place, packet in sorted(pieces.items()):
            at = place * mtu
            if packet.size == min(mtu, request.length - at):
                request.data.pieces.append((at, packet.payload))
