# SPDX-License-Identifier: BSD-3-Clause
"""Puts a flow's packets together: FIRST to LAST by PSN, each once, with the answers they got."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from nupa.packet.opcodes import OPCODES, Transport
from nupa.replay.flows import FLOWS_MAX, PSN_MASK, Flow, nearest
from nupa.replay.packets import Packet, ReplayError
from nupa.replay.requests import Answer, Content, Kind, Request

# Bits 4-0 of opcodes (IBTA table 38): which message, and which part of it.
_ONLY = {
    0x04: Kind.SEND, 0x05: Kind.SEND, 0x17: Kind.SEND, 0x0A: Kind.WRITE, 0x0B: Kind.WRITE,
    0x0C: Kind.READ, 0x13: Kind.COMPARE_SWAP, 0x14: Kind.FETCH_ADD,
}  # fmt: skip
_FIRST = {0x00: Kind.SEND, 0x06: Kind.WRITE}
_MIDDLE = {0x01: Kind.SEND, 0x07: Kind.WRITE}
_LAST = {0x02: Kind.SEND, 0x03: Kind.SEND, 0x16: Kind.SEND, 0x08: Kind.WRITE, 0x09: Kind.WRITE}
_INVALIDATES = (0x16, 0x17)
_READ_REQUEST = 0x0C
_READ_FIRST, _READ_MIDDLE, _READ_LAST, _READ_ONLY = 0x0D, 0x0E, 0x0F, 0x10
_ATOMIC_ACK = 0x12
_READ_RESPONSES = (_READ_FIRST, _READ_MIDDLE, _READ_LAST, _READ_ONLY)

_MTUS = (256, 512, 1024, 2048, 4096)
_ATOMIC_BYTES = 8
# A PSN that is further off than this, and than what is being read, is of another connection.
_WINDOW = 1 << 16
_ON_ITS_WAY_NS = 1_000_000  # what is not acknowledged arrives within that time

# Syndromes of an AETH (IBTA 9.7.5.2.1): bits 6-5, and the code of a NAK
_ACK, _RNR, _NAK = 0, 1, 3
_NAKS = {
    1: Answer.INVALID_REQUEST,
    2: Answer.REMOTE_ACCESS,
    3: Answer.REMOTE_OPERATION,
}

_BEGAN_BEFORE = "requests that began before the capture"
_PACKETS_MISSING = "requests of which packets are missing in the capture"
_UNSUPPORTED = "requests that are not replayed: {}"
_BEHIND = "requests behind one that was refused"
_LENGTHS = "requests whose lengths contradict each other"
_LOST = "requests that never arrived, as the capture says"
RETRANSMISSION = "retransmissions and duplicates"
_STRAY = "answers to what is not in the capture"
_GAPS = "NAKs of lost packets"
# Reasons that count packets, not requests.
OF_PACKETS = (RETRANSMISSION, _STRAY, _GAPS)

Lost = set[tuple[str, str, int, int]]  # Capture.lost


def _identity(packet: Packet) -> tuple[int, ...]:
    return (
        packet.opcode, packet.va, packet.rkey, packet.dma_bytes, packet.size, packet.imm,
        packet.compare, packet.swap,
    )  # fmt: skip


class _Connection:
    """The packets of a flow from one (re)connection to the next, by PSNs that do not wrap."""

    def __init__(self, number: int, first: Packet) -> None:
        self.number = number
        self.first = self.last = first.psn
        self.reach = 0
        self.refused_at: int | None = None
        self.packets: dict[int, Packet] = {}
        self._reads: dict[int, tuple[int, int]] = {}  # where a READ ends: its PSN, its address
        self.again: dict[int, int] = {}  # PSN to the packet that sent it last
        self.answers: list[tuple[int, Packet]] = []
        self.mtu = 0

    def psn(self, packet: Packet) -> int:
        return nearest(packet.psn, self.last)

    def takes(self, packet: Packet) -> bool:
        """Whether *packet* can be of this connection."""
        at = self.psn(packet)
        seen = self.packets.get(at)
        if seen is not None:
            if self.refused_at is not None and at <= self.refused_at:
                return False  # who was refused sends nothing again
            # A READ may be asked for again from its middle on; nothing else changes.
            return _identity(seen) == _identity(packet) or not _begins(packet)
        return at > self.first - _WINDOW and at < self.last + _WINDOW + self.reach

    def add(self, packet: Packet) -> bool:
        """False: it was there before, or is part of a READ that was."""
        at = self.psn(packet)
        is_read = packet.opcode & 0x1F == _READ_REQUEST
        end = packet.va + packet.dma_bytes
        psn, va = self._reads.get(end, (at, 0))
        # A READ that is asked for again may begin in its middle: so many MTUs on as PSNs.
        partial = is_read and psn < at and (packet.va - va) / (at - psn) in _MTUS
        if at in self.packets or partial:
            self.again[at] = packet.number
            return False
        self.packets[at] = packet
        self.first, self.last = min(self.first, at), max(self.last, at)
        if is_read:
            self.reach = packet.dma_bytes // _MTUS[0]
            self._reads[end] = (at, packet.va)
        if packet.opcode & 0x1F in _FIRST and packet.size in _MTUS:
            self.mtu = packet.size
        return True

    def answer(self, packet: Packet) -> None:
        at = self.psn(packet)
        opcode = packet.opcode & 0x1F
        if opcode in (_READ_FIRST, _READ_MIDDLE) and packet.size in _MTUS:
            self.mtu = packet.size
        is_nak = opcode not in _READ_RESPONSES and packet.syndrome >> 5 == _NAK
        if is_nak and packet.syndrome & 0x1F in _NAKS and self.refused_at is None:
            self.refused_at = at
        self.answers.append((at, packet))


def _begins(packet: Packet) -> bool:
    return packet.opcode & 0x1F in _ONLY or packet.opcode & 0x1F in _FIRST


def _connections(flow: Flow, skipped: Counter[str]) -> Iterator[_Connection]:
    current: _Connection | None = None
    count = 0
    resets = sorted(flow.resets)
    stream = sorted(
        [(p.number, True, p) for p in flow.requests] + [(p.number, False, p) for p in flow.replies]
    )
    for number, is_request, packet in stream:
        if not is_request:
            if current is None:
                skipped[_STRAY] += 1
            else:
                current.answer(packet)
            continue
        anew = False
        while resets and resets[0] < number:
            resets.pop(0)
            anew = True
        if current is None or anew or not current.takes(packet):
            if current is not None:
                yield current
            current = _Connection(count, packet)
            count += 1
        if not current.add(packet):
            skipped[RETRANSMISSION] += 1
    if current is not None:
        yield current


def _assemble(
    flow: Flow, connection: _Connection, skipped: Counter[str]
) -> Iterator[tuple[int, int, Request]]:
    """Each whole message with its first and last PSN."""
    psns = sorted(connection.packets)
    i = 0
    lost: int | None = None  # the next PSN of a message whose beginning is not here
    while i < len(psns):
        start = psns[i]
        packet = connection.packets[start]
        opcode = packet.opcode & 0x1F
        i += 1
        if opcode in _ONLY:
            parts = [packet]
        elif opcode in _FIRST:
            parts = [packet]
            while i < len(psns) and psns[i] == psns[i - 1] + 1:
                following = connection.packets[psns[i]]
                part = following.opcode & 0x1F
                if (_MIDDLE.get(part) or _LAST.get(part)) is not _FIRST[opcode]:
                    break
                parts.append(following)
                i += 1
                if part in _LAST:
                    break
            if parts[-1].opcode & 0x1F not in _LAST:
                skipped[_PACKETS_MISSING] += 1
                continue
        elif opcode in _MIDDLE or opcode in _LAST:
            if start != lost:  # one message is counted once
                before = start == psns[0] and connection.number == 0
                skipped[_BEGAN_BEFORE if before else _PACKETS_MISSING] += 1
            lost = start + 1 if opcode in _MIDDLE else None
            continue
        else:
            skipped[_UNSUPPORTED.format(OPCODES[packet.opcode].name)] += 1
            continue
        request = _request(flow, connection, parts)
        if request is None:
            skipped[_LENGTHS] += 1
            continue
        yield start, start + _psns(request, parts, connection.mtu) - 1, request


def _psns(request: Request, parts: list[Packet], mtu: int) -> int:
    if request.kind is not Kind.READ:
        return len(parts)
    return max(1, -(-request.length // mtu)) if mtu else 1


def _request(flow: Flow, connection: _Connection, parts: list[Packet]) -> Request | None:
    first, last = parts[0], parts[-1]
    kind = _ONLY.get(first.opcode & 0x1F) or _FIRST[first.opcode & 0x1F]
    length = sum(part.size for part in parts)
    if kind is Kind.WRITE and length != first.dma_bytes:
        return None
    if any(part.size != first.size for part in parts[:-1]):
        return None
    payload, at = Content(length), 0
    for part in parts:
        payload.pieces.append((at, part.payload))
        at += part.size
    request = Request(
        flow=flow,
        transport=flow.transport,
        kind=kind,
        number=first.number,
        ts_ns=first.ts_ns,
        psn=first.psn,
        epoch=connection.number,
        mtu=connection.mtu,
        length=length,
        payload=payload,
        imm=last.imm,
        rkey=first.rkey,
        va=first.va,
        compare=first.compare,
        swap=first.swap,
        executed=last.number,
        done_ns=last.ts_ns + _ON_ITS_WAY_NS,
    )
    if kind is Kind.READ:
        request.length = first.dma_bytes
    elif kind.atomic:
        request.length = _ATOMIC_BYTES
    if last.opcode & 0x1F in _INVALIDATES:
        request.invalidates = last.rkey
    return request


class _Answers:
    """Gives the answers of a connection to its requests."""

    def __init__(
        self,
        connection: _Connection,
        messages: list[tuple[int, int, Request]],
        skipped: Counter[str],
    ) -> None:
        self._connection = connection
        self._messages = messages
        self._starts = [start for start, _, _ in messages]
        self._skipped = skipped
        self._next = 0  # of the messages: the oldest without an answer
        self._pieces: dict[int, dict[int, Packet]] = {}  # of READs, by message and place
        self._lost_at: list[int] = []  # packets after which requests are sent again

    def give(self) -> None:
        for at, packet in self._connection.answers:
            index = bisect_right(self._starts, at) - 1
            if index < 0 or at > self._messages[index][1]:
                self._acknowledge(at, packet)  # of a message that is not whole, and those before
                self._skipped[_STRAY] += 1
                continue
            self._take(index, at, packet)
        for index, pieces in self._pieces.items():
            self._join(self._messages[index][2], pieces)

    def _take(self, index: int, at: int, packet: Packet) -> None:
        start, _, request = self._messages[index]
        opcode = packet.opcode & 0x1F
        if opcode in _READ_RESPONSES:
            self._acknowledge(start - 1, packet)
            if request.kind is Kind.READ:
                pieces = self._pieces.setdefault(index, {})
                if not pieces:
                    request.executed = packet.number
                pieces.setdefault(at - start, packet)
                self._acknowledge(at, packet)
            return
        reply = packet.syndrome >> 5 & 3
        if reply == _ACK:
            if opcode == _ATOMIC_ACK and request.kind.atomic and request.original is None:
                request.original = packet.original
                request.executed = packet.number
            self._acknowledge(at, packet)
        elif reply == _RNR:
            self._acknowledge(start - 1, packet)
            if request.takes_receive and not request.answer.works:
                request.rnr = request.rnr or packet.number
                self._lost_at.append(packet.number)
        elif reply == _NAK:
            self._acknowledge(start - 1, packet)
            answer = _NAKS.get(packet.syndrome & 0x1F)
            if answer is None:
                self._skipped[_GAPS] += 1
                self._lost_at.append(packet.number)
            elif request.answer is Answer.NONE:
                request.answer = answer
                request.executed = packet.number
                request.done_ns = packet.ts_ns
                self._next = max(self._next, index + 1)

    def _acknowledge(self, at: int, packet: Packet) -> None:
        """All up to *at* are done."""
        while self._next < len(self._messages) and self._messages[self._next][1] <= at:
            start, end, request = self._messages[self._next]
            self._next += 1
            if request.answer is not Answer.NONE:
                continue
            request.answer = Answer.DONE
            request.done_ns = packet.ts_ns
            if self._lost_at and request.original is None and request.kind is not Kind.READ:
                # Not taken when it was sent first: the last time before its answer counts.
                again = max(self._connection.again.get(psn, 0) for psn in range(start, end + 1))
                if again < packet.number:
                    request.executed = max(request.executed, again)

    def _join(self, request: Request, pieces: dict[int, Packet]) -> None:
        mtu = self._connection.mtu or request.length
        request.data = Content(request.length)
        for place, packet in sorted(pieces.items()):
            at = place * mtu
            if packet.size == min(mtu, request.length - at):
                request.data.pieces.append((at, packet.payload))


def messages(flow: Flow, skipped: Counter[str], lost: Lost) -> list[Request]:
    """The requests of a flow, in order, with their answers; *skipped* counts what is none."""
    found = []
    for connection in _connections(flow, skipped):
        whole = list(_assemble(flow, connection, skipped))
        if flow.transport == Transport.UC:
            for start, end, request in whole:
                route = (flow.source, flow.destination, flow.dqpn)
                gone = lost and any((*route, n & PSN_MASK) in lost for n in range(start, end + 1))
                request.answer = Answer.NONE if gone else Answer.NEVER
        else:
            _Answers(connection, whole, skipped).give()
        refused, executed = False, 0
        for _, _, request in whole:
            if request.answer is Answer.NONE and (refused or flow.transport == Transport.UC):
                skipped[_BEHIND if refused else _LOST] += 1
                continue
            refused = refused or request.answer.refused
            executed = request.executed = max(executed, request.executed)
            found.append(request)
    return found


def datagrams(packets: list[Packet], skipped: Counter[str], lost: Lost) -> list[Request]:
    """Each datagram as a request of its own flow; the same one again is left out."""
    flows: dict[tuple[str, str, int], Flow] = {}
    latest: dict[tuple[str, str, int, int], Packet] = {}
    found: list[Request] = []
    for packet in packets:
        if packet.dqpn == 0xFFFFFF:
            skipped["datagrams to multicast groups"] += 1
            continue
        key = (packet.source, packet.destination, packet.dqpn)
        before = latest.get((*key, packet.source_qpn))
        if before is not None and before[6:] == packet[6:]:
            skipped[RETRANSMISSION] += 1  # seen at two ports
            continue
        latest[*key, packet.source_qpn] = packet
        if len(latest) > FLOWS_MAX:
            raise ReplayError(
                f"datagrams go between more than {FLOWS_MAX} queue pairs, which is the limit: "
                "a display filter of `tshark -w` takes those of two hosts"
            )
        if (*key, packet.psn) in lost:
            skipped[_LOST] += 1
            continue
        flow = flows.setdefault(key, Flow(*key, Transport.UD))
        request = Request(
            flow=flow,
            transport=Transport.UD,
            kind=Kind.SEND,
            number=packet.number,
            ts_ns=packet.ts_ns,
            psn=packet.psn,
            epoch=0,
            mtu=0,
            length=packet.size,
            payload=Content(packet.size, [(0, packet.payload)]),
            imm=packet.imm,
            qkey=packet.qkey,
            source_qpn=packet.source_qpn,
            answer=Answer.NEVER,
            executed=packet.number,
        )
        found.append(request)
    return found
