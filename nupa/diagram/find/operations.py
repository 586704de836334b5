# SPDX-License-Identifier: BSD-3-Clause
"""What the opcodes of transport packets mean to who follows a transfer, as tables."""

from __future__ import annotations

from enum import IntEnum

from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables.opcodes import CNP, OPCODES, Opcode, Transport


class Role(IntEnum):
    """A packet's part in its message."""

    NONE = 0
    BEGIN = 1  # the first packet of a request, or its only one
    GO_ON = 2
    RESPONSE = 3
    DATAGRAM = 4
    CONGESTION = 5


# Bits 4-0 of an opcode: what the verbs call the work that such packets do (IBTA table 38).
_VERBS = {
    **dict.fromkeys((0x00, 0x01, 0x02, 0x04), "SEND"),
    **dict.fromkeys((0x03, 0x05), "SEND WITH IMM"),
    **dict.fromkeys((0x16, 0x17), "SEND WITH INV"),
    **dict.fromkeys((0x06, 0x07, 0x08, 0x0A), "RDMA WRITE"),
    **dict.fromkeys((0x09, 0x0B), "RDMA WRITE WITH IMM"),
    **dict.fromkeys(range(0x0C, 0x11), "RDMA READ"),
    0x13: "CMP AND SWP",
    0x14: "FETCH AND ADD",
    0x15: "RESYNC",
    0x1C: "FLUSH",
    0x1D: "ATOMIC WRITE",
}
_BEGINS = (0x00, 0x04, 0x05, 0x06, 0x0A, 0x0B, 0x0C, 0x13, 0x14, 0x15, 0x17, 0x1C, 0x1D)
_WORDS = {
    *("FIRST", "MIDDLE", "LAST", "ONLY", "REQUEST", "RESPONSE"),
    *("WITH", "IMMEDIATE", "INVALIDATE", "ACKNOWLEDGE"),
}


def _role(opcode: Opcode) -> Role:
    if opcode.code == CNP:
        return Role.CONGESTION
    if opcode.transport == Transport.UD:
        return Role.DATAGRAM
    if not opcode.request:
        return Role.RESPONSE
    return Role.BEGIN if opcode.code & 0x1F in _BEGINS else Role.GO_ON


def _label(name: str) -> str:
    """`RC_SEND_LAST_WITH_IMMEDIATE` as `RC SEND Last with Immediate`."""
    words = [word.capitalize() if word in _WORDS else word for word in name.split("_")]
    return " ".join("with" if word == "With" else word for word in words)


#: by opcode, all 256
ROLES: tuple[Role, ...] = tuple(
    _role(OPCODES[code]) if code in OPCODES else Role.NONE for code in range(256)
)
VERBS: tuple[str, ...] = tuple(
    _VERBS.get(code & 0x1F, "") if ROLES[code] in (Role.BEGIN, Role.GO_ON, Role.DATAGRAM) else ""
    for code in range(256)
)
SERVICES: tuple[str, ...] = tuple(
    OPCODES[code].transport.name if code in OPCODES else "" for code in range(256)
)
LABELS: dict[int, str] = {code: _label(opcode.name) for code, opcode in OPCODES.items()}

# Of bits 4-0.
READ_REQUEST = 0x0C
#: the last packet of a request, or its only one
ENDS = frozenset((*(0x02, 0x03, 0x04, 0x05, 0x08, 0x09, 0x0A, 0x0B), *range(0x0C, 0x20)))
UNFINISHED_RESPONSES = (0x0D, 0x0E)
MIDDLES = (0x01, 0x07, 0x0E)
ATOMIC_BYTES = 8

WORK: dict[int, str] = {
    code: name.removeprefix("ATOMIC_").replace("_", " ")
    if "AND" in name
    else name.replace("_", " ")
    for code, name in queue_tables.WR_OPCODES.items()
}
SERVICE_OF_QP: dict[int, str] = {
    kind: name.split("_")[0] for kind, name in queue_tables.QP_TYPES.items() if kind
}
