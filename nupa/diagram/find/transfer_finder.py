# SPDX-License-Identifier: BSD-3-Clause
"""Assigns each record of a capture to its transfer.

The loops run once for each record, so they are written flat, with functions for rare cases.
"""

from __future__ import annotations

from array import array

from nupa.diagram.find.conversation import conversation_of
from nupa.diagram.find.exchange import Exchanges
from nupa.diagram.find.frames import Frames
from nupa.diagram.find.labels import ASKS, crossing_name
from nupa.diagram.find.operations import (
    ROLES,
    SERVICE_OF_QP,
    SERVICES,
    VERBS,
    WORK,
    Role,
)
from nupa.diagram.find.transfer import OF_RECORDS, UNKNOWN, Mark, Transfer, host_of
from nupa.packet.decode import records
from nupa.packet.decode.columns import Columns, blocks_of
from nupa.packet.decode.fast import FrameFault as FrameFault
from nupa.packet.decode.fast import Header, Layer
from nupa.packet.decode.records import RecordFault
from nupa.packet.pcapng.blocks import SHB_APPLICATION, first
from nupa.packet.pcapng.reader import INBOUND, OUTBOUND, Batch, Section
from nupa.packet.tables.cxl_mem import LINE_BYTES
from nupa.packet.tables.opcodes import (
    ENDS,
    OPERATION_BITS,
    READ_REQUEST,
    READ_RESPONSE_FIRST,
    READ_RESPONSE_MIDDLE,
)
from nupa.packet.tables.record import KINDS, LINKTYPE_NUPA, Kind, Level
from nupa.packet.tables.transport import (
    ACK,
    ATOMIC_BYTES,
    NAK,
    PSN_HALF,
    PSN_MASK,
    RNR_NAK,
    SYNDROME_KIND,
)

_UNFINISHED = (READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE)

_QP_TYPE = 3  # byte of a WQE
_RECEIVE = 0x80  # bit of a completion's opcode
# Plain numbers: enumerations take as long as all the rest of a packet.
_DETH, _RETH, _ATOMIC_ETH = int(Header.DETH), int(Header.RETH), int(Header.AtomicETH)
_OF_RECORDS, _RETRY = int(OF_RECORDS), int(Mark.RETRY)


class TransferFinder:
    """Finds the transfers of a capture, batch by batch.

    *owners*: for each packet 1 + the place of its transfer in *transfers*, 0 if it has none.
    """

    def __init__(self) -> None:
        self.transfers: list[Transfer] = []
        self.owners: array[int] = array("I")
        self.first_ns = 0
        self._by_id: dict[int, Transfer] = {}
        self._by_conversation: dict[tuple[object, ...], Transfer] = {}
        self._datagrams: dict[tuple[object, ...], Transfer] = {}
        self._exchanges = Exchanges(lambda ts_ns: self._new(0, ts_ns))
        self._section: Section | None = None
        self._is_ours = False

    def _new(self, identifier: int, ts_ns: int) -> Transfer:
        transfer = Transfer(identifier, len(self.transfers) + 1, ts_ns)
        self.transfers.append(transfer)
        if identifier:
            self._by_id[identifier] = transfer
        return transfer

    def add(self, batch: Batch, section: Section | None) -> None:
        """Takes the next packets, which are in *section*."""
        blocks = blocks_of(batch)
        has_records = any(one.linktype == LINKTYPE_NUPA for one in batch.interfaces)
        if section is not self._section:
            self._section, self._is_ours = section, _is_by_nupa(section)
        # In NUPA's files this option is the transfer (docs/packet.md), in others a number.
        self._is_ours |= has_records
        ids = blocks.packet_id.tolist() if self._is_ours else [0] * len(batch)
        if not self.owners:
            self.first_ns = blocks.ts_ns[0]
        owners = [0] * len(batch)
        if has_records:
            inside = self._add_records(batch, blocks, ids, owners)
            if inside:
                places, skipped = zip(*inside, strict=True)
                self._add_frames(Frames(batch, blocks, places, skipped), ids, owners)
        if not has_records or any(one.linktype != LINKTYPE_NUPA for one in batch.interfaces):
            self._add_frames(Frames(batch, blocks), ids, owners)
        self.owners.extend(owners)

    def _add_records(
        self, batch: Batch, blocks: Columns, ids: list[int], owners: list[int]
    ) -> list[tuple[int, int]]:
        """Takes records of NUPA's link type; returns the frames among them: place, offset."""
        found = records.decode_batch(batch)
        by_id, inside = self._by_id, []
        link, span, version = RecordFault.LINK, RecordFault.SPAN, RecordFault.VERSION
        counted = 1 + max(Level)
        rows = zip(
            range(len(batch)),
            found.fault.tolist(),
            found.transfer.tolist(),
            found.level.tolist(),
            found.kind.tolist(),
            found.flags.tolist(),
            blocks.ts_ns.tolist(),
            strict=True,
        )
        for i, fault, said, level, kind, flags, ts in rows:
            if fault and fault in (link, span, version):
                continue
            identifier = ids[i] or said
            if not identifier and kind != 6:
                continue
            if kind == 6:
                ids[i] = identifier
                inside.append((i, found.payload_offset[i]))
                continue
            transfer = by_id.get(identifier)
            if transfer is None:
                transfer = self._new(identifier, ts)
            elif ts > transfer.end_ns:
                transfer.end_ns = ts
            elif ts < transfer.start_ns:
                transfer.start_ns = ts
            owners[i] = transfer.place
            transfer.counts[level if level < counted else 0] += 1
            if flags:
                transfer.marks |= flags & _OF_RECORDS
            if kind <= 2:  # TLPs and CXL.mem messages
                crossing = kind << 8 | found.code[i]
                if not transfer.crossing:
                    transfer.crossing = crossing
                    transfer.crossing_interface = blocks.interface[i]
                if ASKS[crossing] and blocks.interface[i] == transfer.crossing_interface:
                    transfer.crossing_bytes += found.length[i] or LINE_BYTES
            elif kind == 5 or (kind == 4 and transfer.wqe_bytes == -1):
                _queue_entry(transfer, batch, blocks, found, i)
        return inside

    def _add_frames(self, frames: Frames, ids: list[int], owners: list[int]) -> None:
        """Takes Ethernet frames; *ids* and *owners* are those of the whole batch."""
        headers, blocks, by_id = frames.headers, frames.blocks, self._by_id
        times, where = blocks.ts_ns.tolist(), frames.where
        commented = blocks.options_offset.tolist()
        ignored, transport = FrameFault.LINK, Layer.TRANSPORT
        base = len(self.owners) + 1
        rows = zip(
            range(len(headers)),
            frames.places,
            headers.layer.tolist(),
            headers.fault.tolist(),
            headers.opcode.tolist(),
            headers.psn.tolist(),
            headers.syndrome.tolist(),
            strict=True,
        )
        for n, i, layer, fault, opcode, psn, syndrome in rows:
            if fault == ignored:
                continue
            ts, identifier = times[i], ids[i]
            role = ROLES[opcode] if layer == transport else None
            if identifier:
                transfer = by_id.get(identifier) or self._new(identifier, ts)
            else:
                derived = self._derived(frames, n, role, ts, base + i)
                if derived is None:
                    continue
                transfer = derived
            if ts > transfer.end_ns:
                transfer.end_ns = ts
            elif ts < transfer.start_ns:
                transfer.start_ns = ts
            owners[i] = transfer.place
            if commented[i]:
                transfer.marks |= frames.flags(n) & _OF_RECORDS
            if role is None:
                transfer.counts[Level.NET] += 1
                transfer.payload_bytes += frames.original(n)
                if not transfer.op:
                    conversation_of(frames, n).describe(transfer)
                continue
            transfer.counts[Level.TRANSPORT] += 1
            if role == Role.RESPONSE:
                if syndrome & SYNDROME_KIND or not transfer.is_answered:
                    _response(transfer, frames, n)
                continue
            if transfer.interface == -1:
                _first_request(transfer, frames, n)
            if where[n] != transfer.interface:
                continue  # the same packet at another port
            ahead = (psn - transfer.last_psn - 1) & PSN_MASK
            if transfer.last_psn == -1 or ahead < PSN_HALF or role == Role.DATAGRAM:
                transfer.last_psn = psn
                _request(transfer, frames, n)
            else:
                transfer.marks |= _RETRY

    def _derived(
        self, frames: Frames, n: int, role: Role | None, ts_ns: int, packet: int
    ) -> Transfer | None:
        """Returns the transfer of a frame without an id; None if none is found."""
        headers = frames.headers
        operation = headers.opcode[n] & OPERATION_BITS
        if role in (Role.BEGIN, Role.GO_ON):
            read = (headers.rkey[n], headers.va[n], headers.dma_bytes[n])
            return self._exchanges.request(
                frames.route(n),
                headers.dqpn[n],
                headers.psn[n],
                ts_ns,
                begins=role == Role.BEGIN,
                ends=operation in ENDS,
                read=read if operation == READ_REQUEST else None,
            )
        if role == Role.RESPONSE:
            syndrome = headers.syndrome[n]  # these NAKs ask for a retransmission
            answers = syndrome & SYNDROME_KIND != RNR_NAK and syndrome != NAK
            return self._exchanges.response(
                frames.route(n)[::-1],
                headers.dqpn[n],
                headers.psn[n],
                ts_ns,
                packet,
                ends=answers and operation not in _UNFINISHED,
            )
        if role == Role.DATAGRAM and not headers.mad_class[n]:
            return self._datagram(frames, n, ts_ns)
        if role == Role.NONE:
            return None
        key = conversation_of(frames, n).key
        if key not in self._by_conversation:
            self._by_conversation[key] = self._new(0, ts_ns)
        return self._by_conversation[key]

    def _datagram(self, frames: Frames, n: int, ts_ns: int) -> Transfer:
        """Returns the transfer of a datagram: one for each, at however many ports it was seen."""
        headers = frames.headers
        key = (*frames.route(n), headers.dqpn[n], headers.source_qpn[n], headers.psn[n])
        known = self._datagrams.get(key)
        if known is None or known.interface == frames.where[n]:
            known = self._datagrams[key] = self._new(0, ts_ns)
        return known

    def finish(self) -> None:
        """Completes the transfers, after the last batch."""
        hosts = {one.source: one.source_host for one in self.transfers if one.source_host}
        hosts.pop("", None)
        for transfer in self.transfers:
            transfer.target_host = transfer.target_host or hosts.get(transfer.target, "")
            if not transfer.op and transfer.crossing:
                transfer.op = crossing_name(transfer.crossing >> 8, transfer.crossing & 0xFF)
            elif not transfer.op and transfer.counts[Level.CACHE]:
                transfer.op = KINDS[Kind.CXL_CACHE]


def _is_by_nupa(section: Section | None) -> bool:
    application = first(section.options, SHB_APPLICATION) if section else None
    return (application or b"").startswith(b"nupa")


def _queue_entry(transfer: Transfer, batch: Batch, blocks: Columns, found: Columns, i: int) -> None:
    """Takes the WQE of a send, or a completion."""
    fault, code, number = found.fault[i], found.code[i], found.number[i]
    host = host_of(batch.interfaces[blocks.interface[i]].name)
    if found.kind[i] == Kind.WQE:
        if found.queue[i] or not number:  # of a receive queue; or cut before the number
            return
        transfer.op = WORK.get(code, f"opcode {code}")
        transfer.wqe_bytes = found.length[i]
        transfer.source_qpn, transfer.source_host = number, host
        qp_type = batch.data[blocks.offset[i] + found.payload_offset[i] + _QP_TYPE]
        transfer.service = SERVICE_OF_QP.get(qp_type, "")
    elif not fault:
        if found.status[i]:
            transfer.marks |= Mark.ERROR
        if code & _RECEIVE:
            transfer.target_qpn, transfer.target_host = number, host
        elif transfer.source_qpn == UNKNOWN:
            transfer.source_qpn, transfer.source_host = number, host


def _response(transfer: Transfer, frames: Frames, n: int) -> None:
    """Takes the ends from the first response, and marks from NAKs."""
    i, kind = frames.places[n], frames.headers.syndrome[n] & SYNDROME_KIND
    if kind != ACK:
        transfer.marks |= Mark.RNR if kind == RNR_NAK else Mark.NAK
    transfer.is_answered = True
    if transfer.source_qpn == UNKNOWN:
        transfer.source_qpn = frames.headers.dqpn[n]
    if not transfer.target_host and frames.blocks.flags[i] & 3 == OUTBOUND:
        transfer.target_host = host_of(frames.batch.interfaces[frames.blocks.interface[i]].name)


def _first_request(transfer: Transfer, frames: Frames, n: int) -> None:
    """Takes the ends from the first request of a transfer."""
    headers, i = frames.headers, frames.places[n]
    interface = frames.blocks.interface[i]
    opcode = headers.opcode[n]
    transfer.interface = frames.where[n]
    if not transfer.op and (ROLES[opcode] == Role.CONGESTION or headers.mad_class[n]):
        conversation_of(frames, n).describe(transfer)
    else:
        transfer.service = transfer.service or SERVICES[opcode]
    transfer.target_qpn = headers.dqpn[n]
    transfer.source, transfer.target = frames.addresses(n)
    if headers.headers[n] & _DETH:
        transfer.source_qpn = headers.source_qpn[n]
    node = host_of(frames.batch.interfaces[interface].name)
    direction = frames.blocks.flags[i] & 3
    if direction == OUTBOUND and not transfer.source_host:
        transfer.source_host = node
    elif direction == INBOUND and not transfer.target_host:
        transfer.target_host = node


def _request(transfer: Transfer, frames: Frames, n: int) -> None:
    """Takes the operation and its length from a request that is not a retransmission."""
    headers = frames.headers
    verb = VERBS[headers.opcode[n]]
    if transfer.wqe_bytes == UNKNOWN and verb and (not transfer.op or "WITH" in verb):
        transfer.op = verb
    if headers.headers[n] & _ATOMIC_ETH:
        transfer.payload_bytes = ATOMIC_BYTES
    elif headers.headers[n] & _RETH:
        transfer.payload_bytes = headers.dma_bytes[n]
    elif verb.startswith("SEND") and transfer.service:  # CM messages have no service
        transfer.payload_bytes += frames.payload_bytes(n)
