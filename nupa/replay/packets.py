# SPDX-License-Identifier: BSD-3-Clause
"""Reads a capture's transport packets; others are counted with the reason for leaving them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from os import PathLike
from typing import IO, NamedTuple

from nupa.base.errors import LocalError
from nupa.packet.decode import fast, records
from nupa.packet.decode.fast import FrameFault, Header, Headers, Icrc, Layer
from nupa.packet.pcapng.blocks import FLAG_CRC_ERROR, commented_flags
from nupa.packet.pcapng.reader import Batch, Reader
from nupa.packet.tables.cm import COMM_MGT
from nupa.packet.tables.opcodes import OPCODES, OPERATION_BITS
from nupa.packet.tables.record import LINKTYPE_NUPA, Flag, Kind
from nupa.packet.tables.transport import BTH, EXTENDED, GRH, LRH, NEXT_HEADER_IBA

PACKETS_MAX = 1 << 19  # with all objects made of them about 600 MiB
PAYLOAD_BYTES_MAX = 256 << 20

_UDP = 17
_UDP_BYTES, _ICRC_BYTES = 8, 4
# From BTH's first byte to the payload's.
_TO_PAYLOAD = {
    code: BTH.bytes + sum(EXTENDED[name].bytes for name in opcode.headers)
    for code, opcode in OPCODES.items()
}
# Flags of a second record, that of the receiver.
_BY_RECEIVER = int(
    Flag.DROPPED | Flag.DUPLICATE | Flag.DELAYED | Flag.CORRUPT | Flag.POISON | Flag.INJECTED
)
# Plain numbers: operators of enumerations would take half of the time.
_DROPPED, _IMM = int(Flag.DROPPED), int(Header.ImmDt)
_TRANSPORT, _WRONG, _NO_ICRC = int(Layer.TRANSPORT), int(Icrc.WRONG), int(Icrc.NONE)


class ReplayError(LocalError):
    """The capture cannot be replayed; the message says why, and what to do."""


class TransportPacket(NamedTuple):
    """One packet.

    *number*: among all packets of the file, from 1, as in Wireshark.
    *size*: length of the payload as it was sent.
    *payload*: the part that was captured.
    """

    number: int
    ts_ns: int
    transfer: int
    source: str
    destination: str
    opcode: int
    dqpn: int
    psn: int
    size: int
    payload: bytes
    rkey: int
    va: int
    dma_bytes: int
    swap: int
    compare: int
    original: int
    imm: int
    qkey: int
    source_qpn: int
    syndrome: int
    cm: int  # the attribute of a message of connection management; 0 for other packets

    @property
    def operation(self) -> int:
        return self.opcode & OPERATION_BITS


_FROM_COLUMNS = (
    "opcode", "dqpn", "psn", "rkey", "va", "dma_bytes", "swap", "compare", "original", "imm",
    "qkey", "source_qpn", "syndrome", "mad_class", "mad_attribute",
)  # fmt: skip


class CapturedPackets:
    """The transport packets of a file, in its order.

    *skipped*: counts of other packets by reason.
    *queues*: the queue pair of each transfer that the file names.
    *lost*: source, destination, QP and PSN of packets that NUPA says never arrived.
    """

    def __init__(self) -> None:
        self.packets: list[TransportPacket] = []
        self.skipped: Counter[str] = Counter()
        self.queues: dict[int, int] = {}
        self.lost: set[tuple[str, str, int, int]] = set()
        self.total = 0
        self.dropped = 0  # packets that the capture itself lost
        self._payload_bytes = 0
        self._addresses: dict[tuple[bytes, int], str] = {}

    def add(self, batch: Batch) -> None:
        """Adds the packets of a batch.  ReplayError past PACKETS_MAX or PAYLOAD_BYTES_MAX."""
        if any(interface.linktype == LINKTYPE_NUPA for interface in batch.interfaces):
            self._add_queues(batch)
        headers = fast.decode_batch(batch, check_icrc=True)
        columns = zip(*(getattr(headers, name) for name in _FROM_COLUMNS), strict=True)
        for i, (row, values) in enumerate(zip(batch.rows(), columns, strict=True)):
            self.total += 1
            why = self._unfit(headers, i, batch.interfaces[row[6]].linktype, row[7])
            said = 0
            if row[8] and not why:
                said = commented_flags(batch.data[row[8] : row[8] + row[9]], batch.order)
            if said & _DROPPED:
                self.lost.add((*self._ends(headers, i), headers.dqpn[i], headers.psn[i]))
            if said & _BY_RECEIVER:
                why = "a receiver's second record of a packet that a fault has hit"
            if why:
                self.skipped[why] += 1
            else:
                self._add_packet(batch, headers, i, row, values)
        if len(self.packets) > PACKETS_MAX:
            raise ReplayError(
                f"the capture has more than {PACKETS_MAX} transport packets, which is the limit: "
                "`editcap -c` cuts it into pieces"
            )
        if self._payload_bytes > PAYLOAD_BYTES_MAX:
            raise ReplayError(
                f"the packets carry more than {PAYLOAD_BYTES_MAX >> 20} MiB, which is the limit: "
                "`editcap -c` cuts the capture into pieces, `editcap -s 128` cuts its payloads"
            )

    def _add_queues(self, batch: Batch) -> None:
        found = records.decode_batch(batch)
        for i in found.where(kind=Kind.WQE):
            if len(self.queues) < PACKETS_MAX:
                self.queues[found.transfer[i]] = found.number[i]

    def _unfit(self, headers: Headers, i: int, linktype: int, flags: int) -> str:
        if linktype == LINKTYPE_NUPA:
            return "of NUPA's link type: TLPs, CXL messages, queue entries"
        if headers.layer[i] != _TRANSPORT:
            return "no InfiniBand transport"
        if flags & FLAG_CRC_ERROR or headers.icrc_state[i] == _WRONG:
            return "a wrong CRC: receivers drop it"
        fault = headers.fault[i]
        if fault == FrameFault.CUT:
            return "cut off within its headers"
        if fault != FrameFault.NONE:
            return "damaged: lengths or opcode"
        return ""

    def _add_packet(
        self, batch: Batch, headers: Headers, i: int, row: tuple[int, ...], values: tuple[int, ...]
    ) -> None:
        (
            opcode, dqpn, psn, rkey, va, dma_bytes, swap, compare, original, imm,
            qkey, source_qpn, syndrome, mad_class, mad_attribute,
        ) = values  # fmt: skip
        at, size = headers.payload_offset[i], headers.payload_bytes[i]
        data = batch.data[row[3] + at : row[3] + at + size] if size else b""
        if headers.icrc_state[i] == _NO_ICRC:
            size = _sent_bytes(batch.data, row[3], headers, i)
            data = data[:size]
        if not OPCODES[opcode].payload:
            size, data = 0, b""  # the opcode has no payload
        self._payload_bytes += len(data)
        self.packets.append(
            TransportPacket(
                self.total, row[0], row[1],
                *self._ends(headers, i),
                opcode, dqpn, psn, size, data, rkey, va, dma_bytes, swap, compare, original,
                imm if headers.headers[i] & _IMM else -1,
                qkey, source_qpn, syndrome,
                mad_attribute if mad_class == COMM_MGT else 0,
            )
        )  # fmt: skip

    def _ends(self, headers: Headers, i: int) -> tuple[str, str]:
        version = headers.ip_version[i]
        return (
            self._address(headers.source(i), headers.slid[i], version),
            self._address(headers.destination(i), headers.dlid[i], version),
        )

    def _address(self, address: bytes, lid: int, version: int) -> str:
        key = (address, 0) if version else (b"", lid)
        text = self._addresses.get(key)
        if text is None:
            text = fast.address_text(address) if version else f"LID {lid}"
            self._addresses[key] = text
        return text


def _sent_bytes(data: bytes, start: int, headers: Headers, i: int) -> int:
    """Computes the length of a payload whose end was not captured, from its headers."""
    payload = headers.payload_offset[i]
    bth = payload - _TO_PAYLOAD[headers.opcode[i]]
    if headers.protocol[i] == _UDP:
        udp = start + bth - _UDP_BYTES
        whole = int.from_bytes(data[udp + 4 : udp + 6], "big") - _UDP_BYTES
    elif headers.protocol[i] == NEXT_HEADER_IBA:
        grh = start + bth - GRH.bytes
        whole = int.from_bytes(data[grh + 4 : grh + 6], "big")
    else:
        lrh = start + bth - LRH.bytes
        words = int.from_bytes(data[lrh + 4 : lrh + 6], "big") & 0x7FF
        whole = words * 4 - LRH.bytes
    return max(0, whole - (payload - bth) - headers.padcount[i] - _ICRC_BYTES)


def read(
    file: str | PathLike[str] | IO[bytes], progress: Callable[[int], None] = lambda _: None
) -> CapturedPackets:
    """Reads the transport packets of a capture file; *progress* gets the number of packets read.

    PcapngError: the file is damaged; ReplayError: it exceeds a limit; OSError of the file.
    """
    capture = CapturedPackets()
    with Reader(file) as reader:
        for batch in reader.batches():
            capture.add(batch)
            progress(capture.total)
        capture.dropped = sum(said.dropped or 0 for said in reader.statistics.values())
    return capture
