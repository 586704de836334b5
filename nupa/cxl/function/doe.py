# SPDX-License-Identifier: BSD-3-Clause
"""Data object exchange: objects pass through two registers (PCIe 6.0 6.30, 7.9.24)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from nupa.cxl.registers import ext_tables
from nupa.cxl.registers.block import Registers
from nupa.cxl.registers.config import ConfigSpace

PCI_SIG = 0x0001
#: The longest accepted object, in DWs; a length of 0 is 2^18 (6.30.1).
DWORDS_MAX = 256
_LENGTH_MASK = (1 << 18) - 1
_HEADER_DWORDS = 2


class Protocol(NamedTuple):
    """A protocol of data objects; *vendor* has 16 bits, *kind* 8."""

    vendor: int
    kind: int


DISCOVERY = Protocol(PCI_SIG, 0)

#: answer(payload): the payload of the answer, in whole DWs; None: not a request, so it is
#: dropped.
Answer = Callable[[bytes], bytes | None]


def pack(protocol: Protocol, payload: bytes) -> bytes:
    """Encodes a data object (6.30.1).  ValueError: *payload* is not whole DWs."""
    if len(payload) % 4:
        raise ValueError(f"{len(payload)} bytes are not whole DWs")
    length = len(payload) // 4 + _HEADER_DWORDS
    head = struct.pack("<HBxI", protocol.vendor, protocol.kind, length & _LENGTH_MASK)
    return head + payload


class DoeMailbox:
    """The mailbox behind the *registers* of `ext_tables.doe`; it supports *protocols* and
    discovery.

    While an answer waits to be read it is busy, and writes are dropped.  A wrong length in the
    header of an object is an error, which only an abort clears.  Objects of unknown protocols are
    dropped silently (6.30.2)."""

    def __init__(self, registers: Registers, protocols: Mapping[Protocol, Answer]) -> None:
        self._registers = registers
        self._protocols: dict[Protocol, Answer] = {DISCOVERY: self._discover, **protocols}
        self._written: list[int] = []
        self._answer: list[int] = []
        registers.on_write("control.abort", self._on_abort)
        registers.on_write("control.go", self._on_go)
        registers.on_write("write_mailbox", self._on_dword)
        registers.on_write("read_mailbox", self._on_next)
        registers.on_reset(self.reset)

    def reset(self) -> None:
        """Clears objects and errors."""
        self._written.clear()
        self._show([])
        self._registers["status.error"] = 0

    @property
    def _takes(self) -> bool:
        return not self._registers["status.error"] and not self._registers["status.busy"]

    def _on_abort(self, written: int, _old: int) -> None:
        if written:
            self.reset()

    def _on_dword(self, written: int, _old: int) -> None:
        if not self._takes:
            return
        if len(self._written) == DWORDS_MAX:
            self._registers["status.error"] = 1
        else:
            self._written.append(written)

    def _on_go(self, written: int, _old: int) -> None:
        if not written or not self._takes:
            return
        dwords, self._written = self._written, []
        if len(dwords) < _HEADER_DWORDS or len(dwords) != dwords[1] & _LENGTH_MASK:
            self._registers["status.error"] = 1
            return
        protocol = Protocol(dwords[0] & 0xFFFF, dwords[0] >> 16 & 0xFF)
        answer = self._protocols.get(protocol)
        payload = answer(struct.pack(f"<{len(dwords) - 2}I", *dwords[2:])) if answer else None
        if payload is not None:
            self._show([dword for (dword,) in struct.iter_unpack("<I", pack(protocol, payload))])

    def _on_next(self, _written: int, _old: int) -> None:
        """Moves on to the next DW, as the last one was read (7.9.24.6)."""
        if self._answer:
            self._show(self._answer[1:])

    def _show(self, answer: list[int]) -> None:
        self._answer = answer
        self._registers["read_mailbox"] = answer[0] if answer else 0
        self._registers["status.object_ready"] = self._registers["status.busy"] = bool(answer)

    def _discover(self, payload: bytes) -> bytes | None:
        """Answers discovery (6.30.1.1): the protocol of an index, and the next index, 0 behind the
        last one."""
        if len(payload) != 4:
            return None
        listed, index = list(self._protocols), payload[0]
        if index >= len(listed):
            return bytes([0xFF, 0xFF, 0xFF, 0])
        following = (index + 1) % len(listed)
        return struct.pack("<HBB", *listed[index], following)


def attach(config: ConfigSpace, protocols: Mapping[Protocol, Answer]) -> DoeMailbox:
    """Makes the mailbox of *config*; adds its capability if there is none."""
    if "doe" not in config:
        config.add_extended("doe", ext_tables.doe(), ext_tables.DOE_BYTES)
    return DoeMailbox(config["doe"], protocols)
