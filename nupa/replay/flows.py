# SPDX-License-Identifier: BSD-3-Clause
"""Finds the pairs of connected queue pairs.

A packet names its destination QP only; the QP that it comes from is found by requests and answers
that fit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from nupa.packet.tables import cm as cm_tables
from nupa.packet.tables.opcodes import OPCODES, READ_REQUEST, Transport
from nupa.packet.tables.transport import MTUS, nearest_psn
from nupa.replay.packets import CapturedPackets, ReplayError, TransportPacket

FLOWS_MAX = 4096
# The votes of a hint: a PSN that fits, the same transfer, a handshake.
_FITS, _TRANSFER, _HANDSHAKE = 1, 1 << 20, 1 << 40
# From so many votes on, a partner that still fits is not doubted.
_SURE = 8

Way = tuple[str, str]  # from an address to another


@dataclass(eq=False, slots=True)
class PacketFlow:
    """The packets from one address to one queue pair at another: requests, and answers to its own.

    *partner*: the flow back, to the queue pair that this one comes from.
    """

    source: str
    destination: str
    dqpn: int
    transport: Transport
    requests: list[TransportPacket] = field(default_factory=list)
    responses: list[TransportPacket] = field(default_factory=list)
    partner: PacketFlow | None = None
    replies: list[TransportPacket] = field(default_factory=list)  # answers to its requests
    resets: list[int] = field(default_factory=list)  # packets that connect it again
    # while partners are looked for: PSNs without wrap
    first: int = 0
    last: int = 0
    answered: int = -1
    oldest: int = 0

    def __str__(self) -> str:
        return f"{self.source} to QP {self.dqpn:#x} at {self.destination}"


class _Pairs:
    """Votes for flows that belong together."""

    def __init__(self, capture: CapturedPackets) -> None:
        self.flows: dict[tuple[str, str, int, Transport], PacketFlow] = {}
        self._by_way: dict[Way, list[PacketFlow]] = {}
        self._votes: Counter[tuple[int, int]] = Counter()
        self._transfers: dict[tuple[Way, int], PacketFlow] = {}
        self._favourite: dict[int, PacketFlow] = {}
        self._queues = capture.queues
        self._asked: dict[int, tuple[str, int]] = {}  # communication IDs of REQs
        self._shakes: list[tuple[str, int, str, int, int]] = []

    def flow(self, packet: TransportPacket, transport: Transport) -> PacketFlow:
        key = (packet.source, packet.destination, packet.dqpn, transport)
        flow = self.flows.get(key)
        if flow is None:
            if len(self.flows) >= FLOWS_MAX:
                raise ReplayError(
                    f"the capture has more than {FLOWS_MAX} queue pairs, which is the limit: "
                    "a display filter of `tshark -w` takes those of two hosts"
                )
            flow = self.flows[key] = PacketFlow(*key)
            self._by_way.setdefault(key[:2], []).append(flow)
        return flow

    def request(self, flow: PacketFlow, packet: TransportPacket) -> None:
        ahead = 0
        if packet.operation == READ_REQUEST:
            ahead = max(0, -(-packet.dma_bytes // MTUS[0]) - 1)
        if not flow.requests:
            flow.first = flow.last = packet.psn
            flow.answered = packet.psn - 1
        at = nearest_psn(packet.psn, flow.last)
        if at > flow.last or not flow.requests:
            if flow.answered >= flow.last:
                flow.oldest = packet.number
            flow.last = at
        flow.last = max(flow.last, at + ahead)
        flow.requests.append(packet)
        if packet.transfer:
            way = (flow.source, flow.destination)
            self._transfers[way, packet.transfer] = flow
            qpn = self._queues.get(packet.transfer)
            back = self.flows.get((way[1], way[0], qpn, flow.transport)) if qpn else None
            if back is not None:
                self._votes[id(flow), id(back)] += _TRANSFER

    def response(self, flow: PacketFlow, packet: TransportPacket) -> None:
        """Takes an answer in *flow*; votes for the flow of the request."""
        flow.responses.append(packet)
        back = (packet.destination, packet.source)
        same = self._transfers.get((back, packet.transfer)) if packet.transfer else None
        if same is not None:
            self._votes[id(same), id(flow)] += _TRANSFER
            return
        chosen = self._favourite.get(id(flow))
        if chosen is None or not self._fits(chosen, packet, flow):
            fitting = [f for f in self._by_way.get(back, ()) if self._fits(f, packet, flow)]
            if not fitting:
                return
            # Answers come in the order of requests: the oldest open request is answered first.
            chosen = min(
                fitting,
                key=lambda f: (nearest_psn(packet.psn, f.last) <= f.answered, f.oldest),
            )
        chosen.answered = max(chosen.answered, nearest_psn(packet.psn, chosen.last))
        self._votes[id(chosen), id(flow)] += _FITS
        if self._votes[id(chosen), id(flow)] >= _SURE:
            self._favourite[id(flow)] = chosen

    @staticmethod
    def _fits(flow: PacketFlow, packet: TransportPacket, answering: PacketFlow) -> bool:
        if not flow.requests or flow.transport != answering.transport:
            return False
        return flow.first <= nearest_psn(packet.psn, flow.last) <= flow.last

    def handshake(self, packet: TransportPacket) -> None:
        """Takes a message of connection management: REQ and REP name the two queue pairs."""
        message = cm_tables.ATTRIBUTES.get(packet.cm, "")
        layout = {"REQ": cm_tables.REQ, "REP": cm_tables.REP}.get(message)
        if layout is None or len(packet.payload) < cm_tables.MAD.bytes + layout.bytes:
            return
        said = layout.decode(packet.payload, cm_tables.MAD.bytes)
        if message == "REQ":
            self._asked[said["local_comm_id"]] = (packet.source, said["local_qpn"])
        elif said["remote_comm_id"] in self._asked:
            client, qpn = self._asked[said["remote_comm_id"]]
            found = (client, qpn, packet.source, said["local_qpn"], packet.number)
            self._shakes.append(found)

    def pair(self) -> None:
        """Sets the partner of each flow, by most votes first."""
        for client, client_qpn, server, server_qpn, number in self._shakes:
            for transport in (Transport.RC, Transport.UC):
                there = self.flows.get((client, server, server_qpn, transport))
                back = self.flows.get((server, client, client_qpn, transport))
                for flow in (there, back):
                    if flow is not None:
                        flow.resets.append(number)
                if there is not None and back is not None:
                    self._votes[id(there), id(back)] += _HANDSHAKE
        by_id = {id(flow): flow for flow in self.flows.values()}
        sums: Counter[tuple[int, int]] = Counter()
        for (a, b), count in self._votes.items():
            sums[min(a, b), max(a, b)] += count
        for (a, b), _ in sums.most_common():
            if by_id[a].partner is None and by_id[b].partner is None:
                by_id[a].partner, by_id[b].partner = by_id[b], by_id[a]
        given = set()
        for (asked, answering), _ in self._votes.most_common():
            flow = by_id[answering]
            if answering not in given:
                given.add(answering)
                # Without a partner: its QP number was used again by a later connection.
                (flow.partner or by_id[asked]).replies.extend(flow.responses)


def find(capture: CapturedPackets) -> tuple[list[PacketFlow], list[TransportPacket]]:
    """Returns the flows of connected queue pairs with their partners, and the datagrams.

    Other packets are counted in capture.skipped.
    """
    pairs = _Pairs(capture)
    datagrams = []
    for packet in capture.packets:
        opcode = OPCODES[packet.opcode]
        transport = opcode.transport
        if transport == Transport.UD:
            if packet.dqpn == 1:
                pairs.handshake(packet)
                capture.skipped["management datagrams"] += 1
            else:
                datagrams.append(packet)
        elif transport in (Transport.RC, Transport.UC):
            flow = pairs.flow(packet, transport)
            (pairs.request if opcode.request else pairs.response)(flow, packet)
        else:
            capture.skipped[f"of a transport that is not replayed: {transport.name}"] += 1
    pairs.pair()
    return list(pairs.flows.values()), datagrams
