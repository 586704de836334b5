# SPDX-License-Identifier: BSD-3-Clause
"""Splits a flow into epochs: its packets from one connect to the next, each once, by PSN."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nupa.packet.tables.opcodes import (
    BEGINS,
    FIRST,
    READ_REQUEST,
    READ_RESPONSE_FIRST,
    READ_RESPONSE_MIDDLE,
    READ_RESPONSES,
)
from nupa.packet.tables.transport import MTUS, NAK, SYNDROME_VALUE, nearest_psn
from nupa.replay import reasons
from nupa.replay.flows import PacketFlow
from nupa.replay.packets import TransportPacket
from nupa.replay.requests import KINDS, NAKS

# A PSN that is further away than this, and than open READs, is of another epoch.
_WINDOW = 1 << 16


def _identity(packet: TransportPacket) -> tuple[int, ...]:
    return (
        packet.opcode, packet.va, packet.rkey, packet.dma_bytes, packet.size, packet.imm,
        packet.compare, packet.swap,
    )  # fmt: skip


def _begins(packet: TransportPacket) -> bool:
    return packet.operation in BEGINS and packet.operation in KINDS


class Epoch:
    """The packets of a flow between two connects, by PSNs that do not wrap."""

    def __init__(self, number: int, first: TransportPacket) -> None:
        self.number = number
        self.first = self.last = first.psn
        self.reach = 0
        self.refused_at: int | None = None
        self.packets: dict[int, TransportPacket] = {}
        self._reads: dict[int, tuple[int, int]] = {}  # by the end of a READ: its PSN, its address
        self.again: dict[int, int] = {}  # PSN to the packet that sent it last
        self.answers: list[tuple[int, TransportPacket]] = []
        self.mtu = 0

    def psn(self, packet: TransportPacket) -> int:
        return nearest_psn(packet.psn, self.last)

    def takes(self, packet: TransportPacket) -> bool:
        """Tells whether *packet* can be of this epoch."""
        at = self.psn(packet)
        seen = self.packets.get(at)
        if seen is not None:
            if self.refused_at is not None and at <= self.refused_at:
                return False  # a refused requester sends nothing again
            # A READ may be requested again from its middle on; others are equal.
            return _identity(seen) == _identity(packet) or not _begins(packet)
        return at > self.first - _WINDOW and at < self.last + _WINDOW + self.reach

    def add(self, packet: TransportPacket) -> bool:
        """Adds a request; False for a retransmission, also of a part of a READ."""
        at = self.psn(packet)
        is_read = packet.operation == READ_REQUEST
        end = packet.va + packet.dma_bytes
        psn, va = self._reads.get(end, (at, 0))
        # A READ requested again from its middle: address and PSN advance by whole MTUs.
        partial = is_read and psn < at and (packet.va - va) / (at - psn) in MTUS
        if at in self.packets or partial:
            self.again[at] = packet.number
            return False
        self.packets[at] = packet
        self.first, self.last = min(self.first, at), max(self.last, at)
        if is_read:
            self.reach = packet.dma_bytes // MTUS[0]
            self._reads[end] = (at, packet.va)
        if packet.operation in FIRST and packet.size in MTUS:
            self.mtu = packet.size
        return True

    def answer(self, packet: TransportPacket) -> None:
        at = self.psn(packet)
        operation = packet.operation
        if operation in (READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE) and packet.size in MTUS:
            self.mtu = packet.size
        is_nak = operation not in READ_RESPONSES and packet.syndrome & ~SYNDROME_VALUE == NAK
        if is_nak and packet.syndrome & SYNDROME_VALUE in NAKS and self.refused_at is None:
            self.refused_at = at
        self.answers.append((at, packet))


def epochs(flow: PacketFlow, skipped: Counter[str]) -> Iterator[Epoch]:
    """Yields the epochs of a flow with their answers; counts retransmissions as skipped."""
    current: Epoch | None = None
    count = 0
    resets = sorted(flow.resets)
    stream = sorted(
        [(p.number, True, p) for p in flow.requests] + [(p.number, False, p) for p in flow.replies]
    )
    for number, is_request, packet in stream:
        if not is_request:
            if current is None:
                skipped[reasons.STRAY] += 1
            else:
                current.answer(packet)
            continue
        reset = False
        while resets and resets[0] < number:
            resets.pop(0)
            reset = True
        if current is None or reset or not current.takes(packet):
            if current is not None:
                yield current
            current = Epoch(count, packet)
            count += 1
        if not current.add(packet):
            skipped[reasons.RETRANSMISSION] += 1
    if current is not None:
        yield current
