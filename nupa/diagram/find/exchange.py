# SPDX-License-Identifier: BSD-3-Clause
"""Assigns packets to transfers by QPs and PSNs, as an adapter does, where records do not say.

Requests from one host to one QP are a stream of messages, each of which begins at a PSN (IBTA
9.7.1).  A response has the PSN of the request (9.7.5.1), and goes to a QP that no request names.
The stream that a responder's QP answers is found once, by the open PSNs, and kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter

from nupa.diagram.find.transfer import UNKNOWN, Transfer
from nupa.packet.tables.transport import MTUS, PSN_MASK, nearest_psn

_START = attrgetter("start")
#: kept of a stream; responses to older messages are not recognised
MESSAGES_MAX = 4096

# rkey, address and length of an RDMA READ
Read = tuple[int, int, int]


class _Message:
    """A message; its PSNs do not wrap.

    *end*: its last PSN seen, or of a READ expected.  *is_whole*: its last packet was seen;
    *is_headless*: its first packet was not.
    """

    __slots__ = ("end", "is_headless", "is_whole", "read", "start", "transfer")

    def __init__(self, start: int, transfer: Transfer) -> None:
        self.start = self.end = start
        self.transfer = transfer
        self.is_whole = self.is_headless = False
        self.read: Read | None = None

    def is_asked_again(self, at: int, read: Read | None) -> bool:
        """Tells whether a READ asks for the rest of this one.

        Its first PSN is that of the first missing response (IBTA 9.7.5.2.8), so address and PSN
        advance alike.  Another READ of the same bytes begins at their first address.
        """
        if read is None or self.read is None or at <= self.start:
            return False
        (key, address, length), (my_key, my_address, my_length) = read, self.read
        ends_alike = (key, address + length) == (my_key, my_address + my_length)
        return ends_alike and (address - my_address) / (at - self.start) in MTUS


class _Stream:
    """The requests from one host to one QP."""

    __slots__ = ("answered", "messages", "newest", "requester")

    def __init__(self, psn: int, requester: int) -> None:
        self.messages: list[_Message] = []
        self.newest = psn + PSN_MASK + 1  # so that slightly older PSNs are not negative
        self.requester = requester
        self.answered = 0  # messages before this place are answered

    def place(self, at: int) -> int:
        """Returns the place of the latest message that begins at or before *at*; -1: none."""
        messages = self.messages
        if messages and at >= messages[-1].start:
            return len(messages) - 1
        return bisect_right(messages, at, key=_START) - 1

    def holds(self, psn: int) -> _Message | None:
        at = nearest_psn(psn, self.newest)
        place = self.place(at)
        if place < 0 or at > self.messages[place].end:
            return None
        return self.messages[place]

    def insert(self, place: int, message: _Message) -> None:
        self.messages.insert(place, message)
        if place < self.answered:
            self.answered += 1
        if len(self.messages) > 2 * MESSAGES_MAX:
            del self.messages[:MESSAGES_MAX]
            self.answered = max(self.answered - MESSAGES_MAX, 0)


class Exchanges:
    """The streams of a capture.  *new* makes a transfer that begins at a time."""

    def __init__(self, new: Callable[[int], Transfer]) -> None:
        self._new = new
        self._streams: dict[tuple[bytes, bytes, int], _Stream] = {}
        self._between: dict[tuple[bytes, bytes], list[_Stream]] = {}
        self._answered: dict[tuple[bytes, bytes, int], _Stream] = {}
        self._qp_numbers: dict[_Stream, int] = {}
        self._requesters: dict[tuple[bytes, bytes, int], int] = {}

    def request(
        self,
        route: tuple[bytes, bytes],
        qpn: int,
        psn: int,
        ts_ns: int,
        *,
        begins: bool,
        ends: bool,
        read: tuple[int, int, int] | None = None,
    ) -> Transfer:
        """Returns the transfer of a request.

        *route*: source and destination address; *qpn*: destination QP; *read*: rkey, address and
        length of an RDMA READ.
        """
        key = (*route, qpn)
        stream = self._streams.get(key)
        if stream is None:
            stream = _Stream(psn, self._requesters.get(key, UNKNOWN))
            self._streams[key] = stream
            self._qp_numbers[stream] = qpn
            self._between.setdefault(route, []).append(stream)
        at = nearest_psn(psn, stream.newest)
        place = stream.place(at)
        before = stream.messages[place] if place >= 0 else None
        if before is not None and self._goes_on(before, at, begins, read):
            message = before
        else:
            message = self._begin(stream, place + 1, at, ts_ns, headless=not begins)
            message.read = read
        message.is_whole |= ends
        last = at + (max(read[2] - 1, 0) // MTUS[0] if read else 0)
        message.end = max(message.end, last)
        stream.newest = max(stream.newest, at)
        return message.transfer

    def _goes_on(self, message: _Message, at: int, begins: bool, read: Read | None) -> bool:
        """Tells whether a packet belongs to *message*, which began before it."""
        if not begins:
            return not message.is_whole or at <= message.end
        # A packet sent again; a READ also from where its responses ended.
        return at == message.start or message.is_asked_again(at, read)

    def _begin(
        self, stream: _Stream, place: int, at: int, ts_ns: int, *, headless: bool
    ) -> _Message:
        after = stream.messages[place] if place < len(stream.messages) else None
        if after is not None and after.is_headless and not headless:
            after.start, after.is_headless = at, False  # its first packet, sent again
            return after
        transfer = self._new(ts_ns)
        transfer.source_qpn = stream.requester
        message = _Message(at, transfer)
        message.is_headless = headless
        stream.insert(place, message)
        return message

    def response(
        self, route: tuple[bytes, bytes], qpn: int, psn: int, ts_ns: int, packet: int, *, ends: bool
    ) -> Transfer | None:
        """Returns the transfer of a response.

        *route*: that of the requests; *qpn*: destination QP, the requester; *packet*: its number;
        *ends*: the response is complete.  It also acknowledges older messages of its stream, which
        get this packet's number.
        """
        stream = self._answered.get((*route, qpn))
        if stream is None or stream.holds(psn) is None:
            stream = self._match(route, qpn, psn)
            if stream is None:
                return None
        place = stream.place(nearest_psn(psn, stream.newest))
        for message in stream.messages[stream.answered : place]:
            message.transfer.acknowledged_by = packet
            message.transfer.end_ns = max(message.transfer.end_ns, ts_ns)
        stream.answered = max(stream.answered, place + ends)
        return stream.messages[place].transfer

    def _match(self, route: tuple[bytes, bytes], qpn: int, psn: int) -> _Stream | None:
        """Finds the stream of a QP that gets its first response.

        Among streams with that PSN open, it is the one that sent last.
        """
        found = [
            (
                message.end == nearest_psn(psn, stream.newest),
                message.transfer.end_ns,
                -place,
                stream,
            )
            for place, stream in enumerate(self._between.get(route, ()))
            if stream.requester in (UNKNOWN, qpn) and (message := stream.holds(psn))
        ]
        if not found:
            return None
        stream = max(found, key=lambda candidate: candidate[:3])[3]
        stream.requester = qpn
        for message in stream.messages:
            message.transfer.source_qpn = qpn
        self._answered[(*route, qpn)] = stream
        # A connection has the same two QPs in both directions.
        back = (route[1], route[0], qpn)
        responder = self._qp_numbers[stream]
        self._requesters[back] = responder
        other = self._streams.get(back)
        if other is not None and other.requester == UNKNOWN:
            other.requester = responder
            for message in other.messages:
                message.transfer.source_qpn = responder
            self._answered[(*back[:2], responder)] = other
        return stream
