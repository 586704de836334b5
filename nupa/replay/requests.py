# SPDX-License-Identifier: BSD-3-Clause
"""Requests and their answers: one for each message of a capture."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from nupa.packet.tables.opcodes import OPCODES, Transport
from nupa.replay.flows import PacketFlow

Span = tuple[int, int]  # from, to: of the bytes of a message


class RequestKind(Enum):
    SEND = "SEND"
    WRITE = "RDMA_WRITE"
    READ = "RDMA_READ"
    COMPARE_SWAP = "COMPARE_SWAP"
    FETCH_ADD = "FETCH_ADD"

    @property
    def atomic(self) -> bool:
        return self in (RequestKind.COMPARE_SWAP, RequestKind.FETCH_ADD)


#: The operations that are played.
KINDS: dict[int, RequestKind] = {
    opcode.operation: kind
    for opcode in OPCODES.values()
    for kind in RequestKind
    if opcode.request and opcode.operation_name.startswith(kind.value)
}


def without(spans: list[Span], holes: list[Span]) -> list[Span]:
    """Removes *holes* from *spans*, both in any order."""
    for start, end in holes:
        kept = []
        for first, last in spans:
            kept += [(first, min(last, start)), (max(first, end), last)]
        spans = [span for span in kept if span[0] < span[1]]
    return spans


class RequestAnswer(Enum):
    """The answer to a request in the capture.  NAKs: IBTA table 46 (syndromes)."""

    NONE = "no answer"
    NEVER = "none, which the transport does not give"
    DONE = "done"
    INVALID_REQUEST = "NAK: invalid request"
    REMOTE_ACCESS = "NAK: remote access error"
    REMOTE_OPERATION = "NAK: remote operational error"

    @property
    def refused(self) -> bool:
        return self in (
            RequestAnswer.INVALID_REQUEST,
            RequestAnswer.REMOTE_ACCESS,
            RequestAnswer.REMOTE_OPERATION,
        )

    @property
    def works(self) -> bool:
        """Whether it was executed, as far as the capture shows."""
        return self in (RequestAnswer.DONE, RequestAnswer.NEVER)


#: By the value of a NAK's syndrome; others ask for what was lost.
NAKS = {
    1: RequestAnswer.INVALID_REQUEST,
    2: RequestAnswer.REMOTE_ACCESS,
    3: RequestAnswer.REMOTE_OPERATION,
}


@dataclass(slots=True)
class Content:
    """The captured bytes of a message: *pieces* at their places, in order."""

    length: int
    pieces: list[tuple[int, bytes]] = field(default_factory=list)

    def known(self) -> list[Span]:
        """Returns the spans that were captured."""
        spans: list[Span] = []
        for at, piece in self.pieces:
            if spans and spans[-1][1] == at:
                spans[-1] = (spans[-1][0], at + len(piece))
            elif piece:
                spans.append((at, at + len(piece)))
        return spans

    def whole(self) -> bytes:
        """Returns all bytes; zeros for those that were not captured."""
        if len(self.pieces) == 1 and len(self.pieces[0][1]) == self.length:
            return self.pieces[0][1]
        data = bytearray(self.length)
        for at, piece in self.pieces:
            data[at : at + len(piece)] = piece
        return bytes(data)

    @property
    def captured(self) -> int:
        """The number of captured bytes."""
        return sum(len(piece) for _, piece in self.pieces)


@dataclass(eq=False, slots=True)
class CapturedRequest:
    """One message; packets are named by their numbers in the capture, from 1."""

    flow: PacketFlow
    transport: Transport
    kind: RequestKind
    number: int  # its first packet
    ts_ns: int
    psn: int
    epoch: int  # number of the epoch in its flow, from 0
    mtu: int  # 0: unknown
    length: int  # bytes sent, written or read
    payload: Content  # of a SEND or WRITE
    imm: int = -1
    invalidates: int = -1  # an rkey
    rkey: int = 0
    va: int = 0
    compare: int = 0
    swap: int = 0  # or what is added
    qkey: int = 0
    source_qpn: int = 0
    answer: RequestAnswer = RequestAnswer.NONE
    data: Content | None = None  # returned by a READ
    original: int | None = None
    rnr: int = 0  # the first RNR NAK
    executed: int = 0  # the packet by which it was executed
    done_ns: int = 0  # the time of its answer
    raced: list[Span] = field(default_factory=list)  # written by others at the same time

    @property
    def takes_receive(self) -> bool:
        return self.kind is RequestKind.SEND or self.imm >= 0

    def __str__(self) -> str:
        what = self.kind.value
        if self.imm >= 0:
            what += "_WITH_IMM"
        elif self.invalidates >= 0:
            what += "_WITH_INV"
        text = f"{self.transport.name} {what} of {self.length} bytes"
        if self.kind is not RequestKind.SEND:
            text += f" at {self.va:#x}, rkey {self.rkey:#x}"
        return f"{text}, from {self.flow}"
