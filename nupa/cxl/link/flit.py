# SPDX-License-Identifier: BSD-3-Clause
"""Flits as objects: the bytes that cross a link, with their protocol ID, slots and CRC.

Knows the two formats, and how one message is packed and unpacked (csrc/cxl/flit.c); never ports nor
where a flit goes.  CXL 3.1 4.2, 4.3, 6.2.2, 6.2.3.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError, RemoteError
from nupa.cxl.link.messages import KINDS, Message, from_rows, to_rows
from nupa.cxl.link.pbr_messages import PBR_KINDS


class Format(IntEnum):
    """68B flits, with their protocol ID; latency-optimised 256B flits; standard ones with messages
    that are routed by PIDs (nupa/cxl/link/pbr_messages.py)."""

    FLIT_68 = lib.NUPA_FLIT_68
    FLIT_256 = lib.NUPA_FLIT_256
    FLIT_PBR = lib.NUPA_FLIT_PBR

    @property
    def bytes(self) -> int:
        return int(lib.nupa_flit_bytes(self))


class Fault(IntEnum):
    """Why flits are refused: csrc/cxl/flit.h."""

    FINE = lib.NUPA_FLIT_FINE
    SHORT = lib.NUPA_FLIT_SHORT
    PROTOCOL_ID = lib.NUPA_FLIT_PROTOCOL_ID
    CRC = lib.NUPA_FLIT_CRC
    HEADER = lib.NUPA_FLIT_HEADER
    SLOT = lib.NUPA_FLIT_SLOT
    MESSAGE = lib.NUPA_FLIT_MESSAGE
    LD = lib.NUPA_FLIT_LD
    TAG = lib.NUPA_FLIT_TAG


_FAULTS = {
    Fault.FINE: "no answer came",
    Fault.SHORT: "a flit of the message is missing",
    Fault.PROTOCOL_ID: "the protocol ID is not that of CXL.cachemem",
    Fault.CRC: "the CRC is wrong",
    Fault.HEADER: "the flit header is not that of such a message",
    Fault.SLOT: "slots have formats that do not belong here",
    Fault.MESSAGE: "the message is not valid",
    Fault.LD: "the LD-ID is another device's",
    Fault.TAG: "the tag is another request's",
}


class FlitError(RemoteError):
    """Flits that were refused; *fault* says why."""

    def __init__(self, where: str, fault: Fault) -> None:
        super().__init__(f"{where}: {_FAULTS[fault]}")
        self.fault = fault


class Flit(bytes):
    """One flit, which is its bytes."""

    __slots__ = ()

    @property
    def format(self) -> Format:
        return Format.FLIT_68 if len(self) == Format.FLIT_68.bytes else Format.FLIT_256

    @property
    def protocol_id(self) -> int:
        """6.2.2.1: 5555h is CXL.cachemem.  256B flits: the flit type of 6.2.3.1.1.1, 2."""
        if self.format is Format.FLIT_68:
            return int.from_bytes(self[:2], "little")
        return self[0] >> 6

    @property
    def header(self) -> int:
        """4.2.2: type, lengths and slot formats of a 68B flit; 6.2.3.1.1: of a 256B flit."""
        if self.format is Format.FLIT_68:
            return int.from_bytes(self[2:6], "little")
        return int.from_bytes(self[:2], "little")

    @property
    def slot_formats(self) -> tuple[int, ...]:
        """Of a 68B flit: table 4-6; of a 256B flit that of slot 0 (table 4-15)."""
        if self.format is Format.FLIT_68:
            return tuple(self.header >> 5 + 3 * slot & 7 for slot in range(4))
        return (self[2] & 0xF,)

    @property
    def slots(self) -> tuple[bytes, ...]:
        """What is in the slots; slot 0 without the flit header.  Of a 256B flit, those of its even
        half that lie in one piece, 0 to 6."""
        if self.format is Format.FLIT_68:
            return (self[6:18], *(self[at : at + 16] for at in range(18, 66, 16)))
        return (self[2:16], *(self[at : at + 16] for at in range(16, 112, 16)))

    @property
    def crc(self) -> bytes:
        """4.2.8.7: the last two bytes; 6.2.3.1.2.1: six of each half."""
        if self.format is Format.FLIT_68:
            return self[-2:]
        return self[122:128] + self[250:256]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"

    def __str__(self) -> str:
        """Protocol ID, flit header, slots with anything in them, CRC."""
        if self.format is Format.FLIT_68:
            letters = "HGGG"
            parts = [f"id {self.protocol_id:04x}", f"header {self.header:08x}"]
            formats = self.slot_formats
        else:
            letters = "H" + "G" * 6
            parts = [f"type {self.protocol_id}", f"header {self.header:04x}"]
            formats = self.slot_formats + (0,) * 6
        for number, (slot, kind) in enumerate(zip(self.slots, formats, strict=True)):
            if any(slot):
                parts.append(f"{letters[number]}{kind} {slot.hex()}")
        return ", ".join([*parts, f"crc {self.crc.hex()}"])


class PbrFlit(Flit):
    """A standard 256B flit."""

    __slots__ = ()

    @property
    def format(self) -> Format:
        return Format.FLIT_PBR

    @property
    def crc(self) -> bytes:
        """PCIe 6.0 4.2.3: eight bytes."""
        return self[242:250]


def pack(message: Message, format: Format = Format.FLIT_68) -> list[Flit]:  # noqa: A002
    """The flits of a message.  LocalError: a field does not fit; ValueError, TypeError: see
    `to_rows`."""
    room = ffi.new("uint8_t[]", lib.NUPA_FLIT_MESSAGE_BYTES)
    row = ffi.from_buffer("struct nupa_cxl_message[]", to_rows([message]))
    count = lib.nupa_flit_pack(format, row, room)
    if count < 0:
        raise LocalError(f"{message}: no flit can carry it", -count)
    size = format.bytes
    kind = PbrFlit if format is Format.FLIT_PBR else Flit
    return [kind(ffi.buffer(room + i * size, size)) for i in range(count)]


def unpack(flits: list[Flit], *, up: bool) -> Message:
    """The message of *flits* that go down (M2S), or *up*.  FlitError: they are refused; LocalError:
    there are none."""
    if not flits:
        raise LocalError("a message has a flit at least")
    found: Any = ffi.new("struct nupa_cxl_message *")
    corrected = ffi.new("uint32_t *")
    whole = b"".join(flits)
    shape = flits[0].format
    if len(whole) != len(flits) * shape.bytes:
        raise FlitError("flits of two formats", Fault.SHORT)
    fault = lib.nupa_flit_unpack(shape, up, whole, len(flits), found, corrected)
    if fault:
        raise FlitError(f"{len(flits)} flits", Fault(fault))
    kinds = PBR_KINDS if shape is Format.FLIT_PBR else KINDS
    (message,) = from_rows(memoryview(ffi.buffer(found)), kinds)
    assert message is not None
    return message
