# SPDX-License-Identifier: BSD-3-Clause
"""Which message an opcode is of, and which part of it (IBTA table 38, bits 4-0 of an opcode); what
an AETH says (9.7.5.2.1)."""

from __future__ import annotations

from nupa.replay.packets import Packet
from nupa.replay.requests import Answer, Kind

ONLY = {
    0x04: Kind.SEND, 0x05: Kind.SEND, 0x17: Kind.SEND, 0x0A: Kind.WRITE, 0x0B: Kind.WRITE,
    0x0C: Kind.READ, 0x13: Kind.COMPARE_SWAP, 0x14: Kind.FETCH_ADD,
}  # fmt: skip
FIRST = {0x00: Kind.SEND, 0x06: Kind.WRITE}
MIDDLE = {0x01: Kind.SEND, 0x07: Kind.WRITE}
LAST = {0x02: Kind.SEND, 0x03: Kind.SEND, 0x16: Kind.SEND, 0x08: Kind.WRITE, 0x09: Kind.WRITE}
INVALIDATES = (0x16, 0x17)
READ_REQUEST = 0x0C
READ_FIRST, READ_MIDDLE = 0x0D, 0x0E
READ_RESPONSES = (READ_FIRST, READ_MIDDLE, 0x0F, 0x10)
ATOMIC_ACK = 0x12

MTUS = (256, 512, 1024, 2048, 4096)

# Bits 6-5 of a syndrome, and the code of a NAK that ends a connection.
ACK, RNR, NAK = 0, 1, 3
NAKS = {
    1: Answer.INVALID_REQUEST,
    2: Answer.REMOTE_ACCESS,
    3: Answer.REMOTE_OPERATION,
}


def operation(packet: Packet) -> int:
    return packet.opcode & 0x1F


def begins(packet: Packet) -> bool:
    """Whether it is the first packet of a message."""
    return operation(packet) in ONLY or operation(packet) in FIRST
