# SPDX-License-Identifier: BSD-3-Clause
"""Transaction layer packets of CXL.io as objects, with their full headers (outside Flit mode).

PCIe 6.0 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import ClassVar

from nupa.base.errors import LocalError
from nupa.cxl.link.bdf import Bdf

_MEM, _CFG0, _CFG1, _CPL = 0x00, 0x04, 0x05, 0x0A  # 2.2.1.1, table 2-3
_DATA, _FOUR_DW = 2, 1  # bits of Fmt
_FIRST = Struct(">BBH")
_REQUEST = Struct(">HBB")
_COMPLETION = Struct(">HHHBB")
_MOST_DW = 1024
HOST = Bdf(0)  # the ID of the root complex


class TlpError(LocalError):
    """Bytes that are not a supported TLP, or a TLP that is not possible."""


class CplStatus(IntEnum):
    """Completion status (2.2.9.1)."""

    SUCCESS = 0
    UNSUPPORTED_REQUEST = 1
    REQUEST_RETRY = 2
    COMPLETER_ABORT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tlp:
    """The common part of TLPs (2.2.1): *tag* has 10 bits, *attr* 3; *ep*: the data are poisoned."""

    requester: Bdf = HOST
    tag: int = 0
    tc: int = 0
    attr: int = 0
    ep: int = 0

    @property
    def name(self) -> str:
        """Its name, as "CfgRd0"."""
        raise NotImplementedError

    def pack(self) -> bytes:
        """Encode the TLP.  TlpError: a field does not fit."""
        raise NotImplementedError

    def _first(self, fmt: int, kind: int, dw: int) -> bytes:
        for field, most in (("tag", 0x3FF), ("tc", 7), ("attr", 7), ("ep", 1)):
            if not 0 <= getattr(self, field) <= most:
                raise TlpError(f"{self.name}: {field} is {getattr(self, field)}: at most {most}")
        if not 1 <= dw <= _MOST_DW:
            raise TlpError(f"{self.name}: {dw} DW, not 1 to {_MOST_DW}")
        second = (self.tag >> 9) << 7 | self.tc << 4 | (self.tag >> 8 & 1) << 3
        length = self.ep << 14 | (self.attr & 3) << 12 | dw % _MOST_DW
        return _FIRST.pack(fmt << 5 | kind, second | (self.attr >> 2) << 2, length)

    def _request(self, first_be: int, last_be: int) -> bytes:
        return _REQUEST.pack(number_of(self.requester), self.tag & 0xFF, last_be << 4 | first_be)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemRequest(Tlp):
    """MRd of *dw* DWs, or MWr of *data* in whole DWs (2.2.7; byte enables: 2.2.5)."""

    address: int
    dw: int = 1
    first_be: int = 0xF
    last_be: int = 0
    data: bytes = b""

    @property
    def name(self) -> str:
        return ("MWr" if self.data else "MRd") + ("64" if self.address >> 32 else "32")

    def pack(self) -> bytes:
        if self.data and len(self.data) != 4 * self.dw:
            raise TlpError(f"{self.name} of {self.dw} DW with {len(self.data)} bytes")
        if self.address % 4 or self.address >> 64:
            raise TlpError(f"{self.name}: {self.address:#x} is not the address of a DW")
        wide = self.address >> 32 != 0
        head = self._first(_DATA * bool(self.data) | _FOUR_DW * wide, _MEM, self.dw)
        address = self.address.to_bytes(8 if wide else 4, "big")
        return head + self._request(self.first_be, self.last_be) + address + self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRequest(Tlp):
    """CfgRd, or CfgWr of *data*: one DW at *offset* of function *bdf*; *type1*: a bridge forwards
    it (2.2.7.1)."""

    bdf: Bdf
    offset: int
    first_be: int = 0xF
    type1: bool = False
    data: bytes = b""

    @property
    def name(self) -> str:
        return f"Cfg{'Wr' if self.data else 'Rd'}{int(self.type1)}"

    def pack(self) -> bytes:
        if len(self.data) not in (0, 4) or self.offset % 4 or not 0 <= self.offset < 4096:
            raise TlpError(f"{self.name} at {self.offset:#x}: one DW below 0x1000")
        head = self._first(_DATA * bool(self.data), _CFG1 if self.type1 else _CFG0, 1)
        where = number_of(self.bdf) << 16 | self.offset
        return head + self._request(self.first_be, 0) + where.to_bytes(4, "big") + self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(Tlp):
    """Cpl, or CplD of *data* in whole DWs, of which *byte_count* bytes from *lower_address* on were
    requested (2.2.9)."""

    completer: Bdf
    status: CplStatus = CplStatus.SUCCESS
    byte_count: int = 4
    lower_address: int = 0
    data: bytes = b""

    @property
    def name(self) -> str:
        return "CplD" if self.data else "Cpl"

    def pack(self) -> bytes:
        if len(self.data) % 4:
            raise TlpError(f"{self.name} with {len(self.data)} bytes: whole DWs")
        head = self._first(_DATA * bool(self.data), _CPL, len(self.data) // 4 or _MOST_DW)
        return (
            head
            + _COMPLETION.pack(
                number_of(self.completer),
                self.status << 13 | self.byte_count & 0xFFF,
                number_of(self.requester),
                self.tag & 0xFF,
                self.lower_address & 0x7F,
            )
            + self.data
        )


def number_of(bdf: Bdf) -> int:
    """Return the 16 bits of an ID."""
    return bdf.bus << 8 | bdf.devfn


def bdf_of(number: int) -> Bdf:
    return Bdf(number >> 8, number >> 3 & 0x1F, number & 7)


class _Header:
    """The decoded first DW."""

    SIZES: ClassVar[dict[int, int]] = {0: 12, 1: 16, 2: 12, 3: 16}

    def __init__(self, raw: bytes) -> None:
        if len(raw) < 12:
            raise TlpError(f"{len(raw)} bytes are not a TLP")
        code, second, length = _FIRST.unpack_from(raw)
        self.fmt, self.kind = code >> 5, code & 0x1F
        self.tag_high = (second >> 7) << 9 | (second >> 3 & 1) << 8
        self.common = {
            "tc": second >> 4 & 7,
            "attr": (second >> 2 & 1) << 2 | length >> 12 & 3,
            "ep": length >> 14 & 1,
        }
        self.dw = length & 0x3FF or _MOST_DW
        if self.fmt not in self.SIZES or length >> 15 or second & 3:
            raise TlpError(f"{code:#04x}: prefixes, digests and hints are not modelled")
        self.data = raw[self.SIZES[self.fmt] :]
        data = 4 * self.dw if self.fmt & _DATA else 0
        if len(raw) != self.SIZES[self.fmt] + data:
            raise TlpError(f"{len(raw)} bytes, where the header says {data} of data behind it")


def unpack(raw: bytes) -> MemRequest | ConfigRequest | Completion:
    """Decode a TLP.  TlpError: it is not a TLP, or of another kind."""
    head = _Header(raw)
    if head.kind == _CPL and not head.fmt & _FOUR_DW:
        completer, status, requester, tag, lower = _COMPLETION.unpack_from(raw, 4)
        try:
            code = CplStatus(status >> 13)
        except ValueError:
            raise TlpError(f"completion status {status >> 13} is not defined") from None
        return Completion(
            completer=bdf_of(completer),
            status=code,
            byte_count=status & 0xFFF or 4096,
            lower_address=lower & 0x7F,
            data=head.data,
            requester=bdf_of(requester),
            tag=head.tag_high | tag,
            **head.common,
        )
    requester, tag, enables = _REQUEST.unpack_from(raw, 4)
    common = {"requester": bdf_of(requester), "tag": head.tag_high | tag, **head.common}
    if head.kind == _MEM:
        address = int.from_bytes(raw[8 : head.SIZES[head.fmt]], "big")
        return MemRequest(
            address=address & ~3,
            dw=head.dw,
            first_be=enables & 0xF,
            last_be=enables >> 4,
            data=head.data,
            **common,
        )
    if head.kind in (_CFG0, _CFG1) and not head.fmt & _FOUR_DW and head.dw == 1:
        where = int.from_bytes(raw[8:12], "big")
        return ConfigRequest(
            bdf=bdf_of(where >> 16),
            offset=where & 0xFFC,
            first_be=enables & 0xF,
            type1=head.kind == _CFG1,
            data=head.data,
            **common,
        )
    raise TlpError(f"a TLP of format {head.fmt} and type {head.kind:#04x} is not supported")
