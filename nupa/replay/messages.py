# SPDX-License-Identifier: BSD-3-Clause
"""Assembles a flow's packets, FIRST to LAST, to requests with their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nupa.packet.tables.opcodes import FIRST, INVALIDATES, LAST, MIDDLE, NAMES, ONLY, Transport
from nupa.packet.tables.transport import ATOMIC_BYTES, PSN_MASK
from nupa.replay import reasons
from nupa.replay.answers import Answers
from nupa.replay.epochs import Epoch, epochs
from nupa.replay.flows import FLOWS_MAX, PacketFlow
from nupa.replay.packets import ReplayError, TransportPacket
from nupa.replay.requests import KINDS, CapturedRequest, Content, RequestAnswer, RequestKind

_ON_ITS_WAY_NS = 1_000_000  # unacknowledged packets arrive within this time

Lost = set[tuple[str, str, int, int]]  # Capture.lost


def _assemble(
    flow: PacketFlow, epoch: Epoch, skipped: Counter[str]
) -> Iterator[tuple[int, int, CapturedRequest]]:
    """Yields each complete message with its first and last PSN."""
    psns = sorted(epoch.packets)
    i = 0
    lost: int | None = None  # the next PSN of a message without its first packet
    while i < len(psns):
        start = psns[i]
        packet = epoch.packets[start]
        operation = packet.operation
        i += 1
        if operation not in KINDS:
            skipped[reasons.UNSUPPORTED.format(NAMES[packet.opcode])] += 1
            continue
        if operation in ONLY:
            parts = [packet]
        elif operation in FIRST:
            parts = _chain(epoch, psns, i - 1)
            i += len(parts) - 1
            if parts[-1].operation not in LAST:
                skipped[reasons.PACKETS_MISSING] += 1
                continue
        else:
            if start != lost:  # one message is counted once
                before = start == psns[0] and epoch.number == 0
                skipped[reasons.BEGAN_BEFORE if before else reasons.PACKETS_MISSING] += 1
            lost = start + 1 if operation in MIDDLE else None
            continue
        request = _request(flow, epoch, parts)
        if request is None:
            skipped[reasons.LENGTHS] += 1
            continue
        yield start, start + _psns(request, parts, epoch.mtu) - 1, request


def _chain(epoch: Epoch, psns: list[int], place: int) -> list[TransportPacket]:
    """Returns the packets of a message from FIRST, at psns[place], up to a gap or its end."""
    parts = [epoch.packets[psns[place]]]
    kind = KINDS[parts[0].operation]
    for at in range(place + 1, len(psns)):
        following = epoch.packets[psns[at]]
        part = following.operation
        fits = part in MIDDLE | LAST and KINDS[part] is kind
        if psns[at] != psns[at - 1] + 1 or not fits:
            break
        parts.append(following)
        if part in LAST:
            break
    return parts


def _psns(request: CapturedRequest, parts: list[TransportPacket], mtu: int) -> int:
    if request.kind is not RequestKind.READ:
        return len(parts)
    return max(1, -(-request.length // mtu)) if mtu else 1


def _request(
    flow: PacketFlow, epoch: Epoch, parts: list[TransportPacket]
) -> CapturedRequest | None:
    first, last = parts[0], parts[-1]
    kind = KINDS[first.operation]
    length = sum(part.size for part in parts)
    if kind is RequestKind.WRITE and length != first.dma_bytes:
        return None
    if any(part.size != first.size for part in parts[:-1]):
        return None
    payload, at = Content(length), 0
    for part in parts:
        payload.pieces.append((at, part.payload))
        at += part.size
    request = CapturedRequest(
        flow=flow,
        transport=flow.transport,
        kind=kind,
        number=first.number,
        ts_ns=first.ts_ns,
        psn=first.psn,
        epoch=epoch.number,
        mtu=epoch.mtu,
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
    if kind is RequestKind.READ:
        request.length = first.dma_bytes
    elif kind.atomic:
        request.length = ATOMIC_BYTES
    if last.operation in INVALIDATES:
        request.invalidates = last.rkey
    return request


def messages(flow: PacketFlow, skipped: Counter[str], lost: Lost) -> list[CapturedRequest]:
    """Returns the requests of a flow in order, with their answers; *skipped* counts the rest."""
    found = []
    for epoch in epochs(flow, skipped):
        whole = list(_assemble(flow, epoch, skipped))
        if flow.transport == Transport.UC:
            for start, end, request in whole:
                route = (flow.source, flow.destination, flow.dqpn)
                gone = lost and any((*route, n & PSN_MASK) in lost for n in range(start, end + 1))
                request.answer = RequestAnswer.NONE if gone else RequestAnswer.NEVER
        else:
            Answers(epoch, whole, skipped).give()
        refused, executed = False, 0
        for _, _, request in whole:
            if request.answer is RequestAnswer.NONE and (refused or flow.transport == Transport.UC):
                skipped[reasons.BEHIND if refused else reasons.LOST] += 1
                continue
            refused = refused or request.answer.refused
            executed = request.executed = max(executed, request.executed)
            found.append(request)
    return found


def datagrams(
    packets: list[TransportPacket], skipped: Counter[str], lost: Lost
) -> list[CapturedRequest]:
    """Makes a request of each datagram; copies at a second port are left out."""
    flows: dict[tuple[str, str, int], PacketFlow] = {}
    latest: dict[tuple[str, str, int, int], TransportPacket] = {}
    found: list[CapturedRequest] = []
    for packet in packets:
        if packet.dqpn == 0xFFFFFF:
            skipped[reasons.MULTICAST] += 1
            continue
        key = (packet.source, packet.destination, packet.dqpn)
        before = latest.get((*key, packet.source_qpn))
        if before is not None and before[6:] == packet[6:]:
            skipped[reasons.RETRANSMISSION] += 1  # seen at two ports
            continue
        latest[*key, packet.source_qpn] = packet
        if len(latest) > FLOWS_MAX:
            raise ReplayError(
                f"datagrams go between more than {FLOWS_MAX} queue pairs, which is the limit: "
                "a display filter of `tshark -w` takes those of two hosts"
            )
        if (*key, packet.psn) in lost:
            skipped[reasons.LOST] += 1
            continue
        flow = flows.setdefault(key, PacketFlow(*key, Transport.UD))
        request = CapturedRequest(
            flow=flow,
            transport=Transport.UD,
            kind=RequestKind.SEND,
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
            answer=RequestAnswer.NEVER,
            executed=packet.number,
        )
        found.append(request)
    return found
