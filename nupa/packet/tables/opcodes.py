# SPDX-License-Identifier: BSD-3-Clause
"""The opcodes of the base transport header, and the extended headers that follow each.

IBTA volume 1: table 38 (opcodes) and 9.3 (order of the headers), annex A14 (XRC), A17 (CNP) and A19
(FLUSH, ATOMIC WRITE).  The same table is in csrc/packet/opcodes.c; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

OPERATION_BITS = 0x1F  # of an opcode


class Transport(IntEnum):
    """Bits 7-5 of an opcode."""

    RC = 0x00
    UC = 0x20
    RD = 0x40
    UD = 0x60
    CNP = 0x80
    XRC = 0xA0


@dataclass(frozen=True, slots=True)
class Opcode:
    """One opcode.  *headers*: names of the extended headers behind the BTH, in their order."""

    code: int
    name: str
    transport: Transport
    headers: tuple[str, ...]
    payload: bool
    request: bool

    @property
    def operation(self) -> int:
        """Bits 4-0."""
        return self.code & OPERATION_BITS

    @property
    def operation_name(self) -> str:
        """The name without the transport: `SEND_FIRST`."""
        return self.name.removeprefix(f"{self.transport.name}_")


# operation: name, request or response, headers, whether a payload may follow
_REQUEST, _RESPONSE = True, False
_OPERATIONS: dict[int, tuple[str, bool, tuple[str, ...], bool]] = {
    0x00: ("SEND_FIRST", _REQUEST, (), True),
    0x01: ("SEND_MIDDLE", _REQUEST, (), True),
    0x02: ("SEND_LAST", _REQUEST, (), True),
    0x03: ("SEND_LAST_WITH_IMMEDIATE", _REQUEST, ("ImmDt",), True),
    0x04: ("SEND_ONLY", _REQUEST, (), True),
    0x05: ("SEND_ONLY_WITH_IMMEDIATE", _REQUEST, ("ImmDt",), True),
    0x06: ("RDMA_WRITE_FIRST", _REQUEST, ("RETH",), True),
    0x07: ("RDMA_WRITE_MIDDLE", _REQUEST, (), True),
    0x08: ("RDMA_WRITE_LAST", _REQUEST, (), True),
    0x09: ("RDMA_WRITE_LAST_WITH_IMMEDIATE", _REQUEST, ("ImmDt",), True),
    0x0A: ("RDMA_WRITE_ONLY", _REQUEST, ("RETH",), True),
    0x0B: ("RDMA_WRITE_ONLY_WITH_IMMEDIATE", _REQUEST, ("RETH", "ImmDt"), True),
    0x0C: ("RDMA_READ_REQUEST", _REQUEST, ("RETH",), False),
    0x0D: ("RDMA_READ_RESPONSE_FIRST", _RESPONSE, ("AETH",), True),
    0x0E: ("RDMA_READ_RESPONSE_MIDDLE", _RESPONSE, (), True),
    0x0F: ("RDMA_READ_RESPONSE_LAST", _RESPONSE, ("AETH",), True),
    0x10: ("RDMA_READ_RESPONSE_ONLY", _RESPONSE, ("AETH",), True),
    0x11: ("ACKNOWLEDGE", _RESPONSE, ("AETH",), False),
    0x12: ("ATOMIC_ACKNOWLEDGE", _RESPONSE, ("AETH", "AtomicAckETH"), False),
    0x13: ("COMPARE_SWAP", _REQUEST, ("AtomicETH",), False),
    0x14: ("FETCH_ADD", _REQUEST, ("AtomicETH",), False),
    0x15: ("RESYNC", _REQUEST, (), False),
    0x16: ("SEND_LAST_WITH_INVALIDATE", _REQUEST, ("IETH",), True),
    0x17: ("SEND_ONLY_WITH_INVALIDATE", _REQUEST, ("IETH",), True),
    0x1C: ("FLUSH", _REQUEST, ("FETH", "RETH"), False),
    0x1D: ("ATOMIC_WRITE", _REQUEST, ("RETH",), True),
}

_RELIABLE = (*range(0x15), 0x16, 0x17)
# transport: its operations, headers before those of a request, and of a response
_TRANSPORTS: dict[Transport, tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]]] = {
    Transport.RC: ((*_RELIABLE, 0x1C, 0x1D), (), ()),
    Transport.UC: (tuple(range(0x0C)), (), ()),
    Transport.RD: (tuple(range(0x16)), ("RDETH", "DETH"), ("RDETH",)),
    Transport.UD: ((0x04, 0x05), ("DETH",), ()),
    Transport.XRC: (_RELIABLE, ("XRCETH",), ()),
}


def _requests(part: str) -> frozenset[int]:
    rows = _OPERATIONS.items()
    return frozenset(code for code, row in rows if row[1] is _REQUEST and part in row[0])


#: Operations of requests by their place in a message.
FIRST, MIDDLE, LAST = _requests("_FIRST"), _requests("_MIDDLE"), _requests("_LAST")
ONLY = _requests("") - FIRST - MIDDLE - LAST
BEGINS, ENDS = FIRST | ONLY, LAST | ONLY
# Operations, as numbers: comparing with an enumeration would take half the time of a packet.
READ_REQUEST = 0x0C
READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE = 0x0D, 0x0E
READ_RESPONSES = (READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE, 0x0F, 0x10)
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x11, 0x12
COMPARE_SWAP = 0x13
INVALIDATES = (0x16, 0x17)

CNP = 0x81  # A17.9.3: the congestion notification packet, the only one of its transport


def _table() -> dict[int, Opcode]:
    table = {}
    for transport, (operations, of_request, of_response) in _TRANSPORTS.items():
        for operation in operations:
            name, request, headers, payload = _OPERATIONS[operation]
            code = transport | operation
            first = of_request if request else of_response
            table[code] = Opcode(
                code, f"{transport.name}_{name}", transport, first + headers, payload, request
            )
    table[CNP] = Opcode(CNP, "CNP", Transport.CNP, ("CNPPadding",), False, True)
    return table


OPCODES: dict[int, Opcode] = _table()
NAMES: dict[int, str] = {code: opcode.name for code, opcode in OPCODES.items()}
CODES: dict[str, int] = {name: code for code, name in NAMES.items()}
