# SPDX-License-Identifier: BSD-3-Clause
"""Tables by opcode: the role of a packet in its transfer, and the names of the work."""

from __future__ import annotations

from enum import IntEnum

from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables.opcodes import BEGINS, CNP, OPCODES, Opcode, Transport


class Role(IntEnum):
    """A packet's part in its message."""

    NONE = 0
    BEGIN = 1  # the first packet of a request, or its only one
    GO_ON = 2
    RESPONSE = 3
    DATAGRAM = 4
    CONGESTION = 5


_PARTS = {"FIRST", "MIDDLE", "LAST", "ONLY", "REQUEST", "RESPONSE"}
# Words of IBTA table 38 as the verbs have them.
_AS_VERBS = {
    "IMMEDIATE": "IMM",
    "INVALIDATE": "INV",
    "COMPARE": "CMP AND",
    "SWAP": "SWP",
    "FETCH": "FETCH AND",
}
_LOWERED = {*_PARTS, "WITH", "IMMEDIATE", "INVALIDATE", "ACKNOWLEDGE"}


def _role(opcode: Opcode) -> Role:
    if opcode.code == CNP:
        return Role.CONGESTION
    if opcode.transport == Transport.UD:
        return Role.DATAGRAM
    if not opcode.request:
        return Role.RESPONSE
    return Role.BEGIN if opcode.operation in BEGINS else Role.GO_ON


def _verb(opcode: Opcode) -> str:
    """Returns `SEND WITH IMM` for `RC_SEND_LAST_WITH_IMMEDIATE`; empty for a response."""
    if _role(opcode) in (Role.RESPONSE, Role.CONGESTION):
        return ""
    words = [word for word in opcode.operation_name.split("_") if word not in _PARTS]
    return " ".join(_AS_VERBS.get(word, word) for word in words)


def _label(name: str) -> str:
    """Returns `RC SEND Last with Immediate` for `RC_SEND_LAST_WITH_IMMEDIATE`."""
    words = [word.capitalize() if word in _LOWERED else word for word in name.split("_")]
    return " ".join("with" if word == "With" else word for word in words)


#: by opcode, all 256
ROLES: tuple[Role, ...] = tuple(
    _role(OPCODES[code]) if code in OPCODES else Role.NONE for code in range(256)
)
VERBS: tuple[str, ...] = tuple(
    _verb(OPCODES[code]) if code in OPCODES else "" for code in range(256)
)
SERVICES: tuple[str, ...] = tuple(
    OPCODES[code].transport.name if code in OPCODES else "" for code in range(256)
)
LABELS: dict[int, str] = {code: _label(opcode.name) for code, opcode in OPCODES.items()}

WORK: dict[int, str] = {
    code: name.removeprefix("ATOMIC_").replace("_", " ")
    if "AND" in name
    else name.replace("_", " ")
    for code, name in queue_tables.WR_OPCODES.items()
}
SERVICE_OF_QP: dict[int, str] = {
    kind: name.split("_")[0] for kind, name in queue_tables.QP_TYPES.items() if kind
}
