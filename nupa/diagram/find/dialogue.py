# SPDX-License-Identifier: BSD-3-Clause
"""Which packets make one transfer where records do not say: by QPs and PSNs, as an adapter does it.

Requests to one QP from one host are a stream of messages, each of which begins at a PSN (IBTA
9.7.1).  A response has the PSN of what it answers (9.7.5.1), and goes to a QP that no request
names: which stream it answers is found once, by the PSNs that are open, and kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter

from nupa.diagram.find.transfer import UNKNOWN, Transfer
from nupa.packet.tables.transport import MTUS, PSN_MASK, nearest_psn

_START = attrgetter("start")
#: of a stream: an answer to an older one is not recognised
MESSAGES_MAX = 4096

# rkey, address and length of an RDMA READ
Read = tuple[int, int, int]


class _Message:
    """PSNs are counted on beyond 24 bits.  *end*: the last packet seen, or that can be asked for;
    *is_whole*: its last packet was seen; *is_headless*: its first was not."""

    __slots__ = ("end", "is_headless", "is_whole", "read", "start", "transfer")

    def __init__(self, start: int, transfer: Transfer) -> None:
        self.start = self.end = start
        self.transfer = transfer
        self.is_whole = self.is_headless = False
        self.read: Read | None = None

    def is_asked_again(self, at: int, read: Read | None) -> bool:
        """Whether a READ asks for the rest of what this one did.

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
        self.newest = psn + PSN_MASK + 1  # so that what is a little older is not negative
        self.requester = requester
        self.answered = 0  # messages before this place have been

    def place(self, at: int) -> int:
        """Of the latest message that begins at *at* or before; -1 if there is none."""
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


class Dialogues:
    """All streams of a capture.  *new* makes a transfer that begins at a time."""

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
        """The transfer of a request.  *route*: addresses from and to; *qpn*: where it goes.
        *read*: rkey, address and length of an RDMA READ."""
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
        """Whether a packet belongs to the message that began before it."""
        if not begins:
            return not message.is_whole or at <= message.end
        # Sent again; a READ also from where its responses ended.
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
        """The transfer that a response belongs to.  *route*: that of the requests; *qpn*: where it
        goes, which is the requester; *packet*: its number; *ends*: the answer is complete.

        What came before it in its stream is answered, too: it gets this packet's number.
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
        """The stream that a QP which was not answered before is at the beginning of: of those for
        which the PSN makes sense the one that sent last."""
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
