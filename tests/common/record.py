# SPDX-License-Identifier: BSD-3-Clause
"""The last packets of RoCE v2 that passed a forwarder (impair.c)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_HEAD = struct.Struct("<Q")
_PASSAGE = struct.Struct("<Q3I3B9s")
_PASSAGES = 65536
_HITS = ("lost", "duplicated", "reordered", "corrupted", "marked")
#: Of RC (IBTA 9.2); those of UC, UD and XRC differ in the three highest bits alone.
_OPERATIONS = (
    *("SEND first", "SEND middle", "SEND last", "SEND last imm", "SEND", "SEND imm"),
    *("WRITE first", "WRITE middle", "WRITE last", "WRITE last imm", "WRITE", "WRITE imm"),
    *("READ", "READ response first", "READ response middle", "READ response last"),
    *("READ response", "ACK", "ATOMIC response", "CMP_SWP", "FETCH_ADD", "0x15"),
    *("SEND last inv", "SEND inv"),
)
_ACK, _ATOMIC_RESPONSE = _OPERATIONS.index("ACK"), _OPERATIONS.index("ATOMIC response")
_SYNDROMES = {0: "ACK", 1: "RNR NAK", 3: "NAK"}  #: IBTA 9.7.5.2.1, bits 6 and 5
_CNP = 0x81


@dataclass(frozen=True)
class Passage:
    """A packet as it came to the forwarder."""

    ns: int  #: CLOCK_MONOTONIC
    dqpn: int
    psn: int
    bytes: int  #: of the UDP datagram
    way: int  #: from the first machine: 0
    opcode: int
    hits: tuple[str, ...]  #: what was done to it
    headers: bytes  #: the first ones that follow the BTH

    @property
    def operation(self) -> str:
        if self.opcode == _CNP:
            return "CNP"
        number = self.opcode & 31
        name = _OPERATIONS[number] if number < len(_OPERATIONS) else hex(number)
        if number not in (_ACK, _ATOMIC_RESPONSE):
            return name
        syndrome = self.headers[0]
        kind = _SYNDROMES.get(syndrome >> 5 & 3, "reserved")
        code = f" {syndrome & 31}" if kind != "ACK" else ""
        return f"{kind}{code}" if number == _ACK else f"{name} ({kind}{code})"

    def describe(self, since_ns: int) -> str:
        hits = f"  {', '.join(self.hits)}" if self.hits else ""
        return (
            f"{(self.ns - since_ns) / 1e6:10.3f} ms {'<' if self.way else '>'} "
            f"QP {self.dqpn:#08x} PSN {self.psn:#08x} {self.operation}, {self.bytes} bytes{hits}"
        )


def read(path: Path) -> list[Passage]:
    """Returns the last packets, the oldest first."""
    data = path.read_bytes()
    (n,) = _HEAD.unpack_from(data)
    found = []
    for number in range(max(0, n - _PASSAGES), n):
        at = _HEAD.size + number % _PASSAGES * _PASSAGE.size
        *words, hits, headers = _PASSAGE.unpack_from(data, at)
        names = tuple(name for bit, name in enumerate(_HITS) if hits >> bit & 1)
        found.append(Passage(*words, names, headers))
    return found
