# SPDX-License-Identifier: BSD-3-Clause
"""Splits an access into PCIe TLPs or CXL.mem messages: the judge of csrc/capture/expand/split.c.

Each function takes an access and the link's parameters, and yields what crosses the port in order;
encode.py has the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from nupa.packet.tables.cxl_mem import LINE_BYTES, MemChannel

PAGE_BYTES = 4096  # PCIe 6.0, 2.2.7: no request crosses a boundary of this
ADDRESS_BYTES_MAX = 1 << 64
CXL_ADDRESS_BYTES_MAX = 1 << 52

TlpKind = Literal["read", "write", "fetch_add", "swap", "cas"]
_OPERAND_BYTES = {"fetch_add": (4, 8), "swap": (4, 8), "cas": (4, 8, 16)}


class PcieLink(NamedTuple):
    """The configuration of a link, in bytes.

    *mps*: Max_Payload_Size; *mrrs*: Max_Read_Request_Size (PCIe 6.0, 7.5.3.4).  Both are powers of
    2 from 128 to 4096.

    *rcb*: Read Completion Boundary, 64 or 128 (7.5.3.7).

    *tags*: of a requester (2.2.6.2).  32 or 256 tags start at 0.  768 tags start at 256, as the
    upper two of 10 bits are never both 0.
    """

    mps: int = 256
    mrrs: int = 512
    rcb: int = 64
    tags: int = 256

    def check(self) -> None:
        """Raises ValueError for parameters that no link can have."""
        sizes = (128, 256, 512, 1024, 2048, 4096)
        if self.mps not in sizes or self.mrrs not in sizes:
            raise ValueError(f"MPS {self.mps} and MRRS {self.mrrs} are to be among {sizes}")
        if self.rcb not in (64, 128):
            raise ValueError(f"RCB {self.rcb} is to be 64 or 128")
        if self.tags not in (32, 256, 768):
            raise ValueError(f"{self.tags} tags: there are 32, 256 or 768")


class Tlp(NamedTuple):
    """A TLP.

    `address` and `length` are those of the bytes that are read, written or returned.  `dw` is the
    Length field, in DW, from the DW of `address` on.  `tag` is 0 for writes, which have none.
    `byte_count` and `lower_address` are a completion's.
    """

    kind: Literal["MRd", "MWr", "CplD", "FetchAdd", "Swap", "CAS"]
    address: int
    length: int
    dw: int
    first_be: int = 0
    last_be: int = 0
    tag: int = 0
    byte_count: int = 0
    lower_address: int = 0


def pcie_tlps(
    kind: TlpKind, address: int, length: int, link: PcieLink, first_tag: int = 0
) -> Iterator[Tlp]:
    """Yields the TLPs of an access, each request followed by its completions.

    *kind*: read, write (posted), or an atomic operation, whose *length* is that of one operand.
    Each request with completions takes a tag; *first_tag*: the first of the link's tags, from 0;
    tags wrap.  A length of 0 is one DW without byte enables (2.2.5), as a flush is.
    ValueError for accesses that PCIe does not have.
    """
    link.check()
    _check_range(address, length, ADDRESS_BYTES_MAX)
    if not 0 <= first_tag < link.tags:
        raise ValueError(f"tag {first_tag}: the link has {link.tags}")
    lowest = 256 if link.tags == 768 else 0
    if kind == "write":
        for at, size in pieces(address, length, link.mps):
            yield _request("MWr", at, size, 0)
    elif kind == "read":
        for i, (at, size) in enumerate(pieces(address, length, link.mrrs)):
            tag = lowest + (first_tag + i) % link.tags
            yield _request("MRd", at, size, tag)
            yield from _completions(at, size, tag, link)
    elif kind in _OPERAND_BYTES:
        yield from _atomic(kind, address, length, lowest + first_tag)
    else:
        raise ValueError(f"{kind!r} is none of read, write, {', '.join(_OPERAND_BYTES)}")


def pieces(address: int, length: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields (address, length) of each piece, cut at multiples of *size*.

    No piece is longer than that in whole DWs, and none crosses 4 KiB.  A length of 0 is one piece.
    """
    if not length:
        yield address, 0
    end = address + length
    while address < end:
        cut = min(end, (address // size + 1) * size)
        yield address, cut - address
        address = cut


def byte_enables(address: int, length: int) -> tuple[int, int, int]:
    """Returns (DWs, first, last) of a request: PCIe 6.0, 2.2.5.  One DW has no last enables."""
    if not length:
        return 1, 0, 0
    start, end = address & 3, (address & 3) + length
    dw = (end + 3) // 4
    first = 0xF << start & 0xF
    last = 0xF >> (-end & 3)
    return (1, first & last, 0) if dw == 1 else (dw, first, last)


def _request(kind: Literal["MRd", "MWr"], address: int, length: int, tag: int) -> Tlp:
    dw, first, last = byte_enables(address, length)
    return Tlp(kind, address, length, dw, first, last, tag)


def _completions(address: int, length: int, tag: int, link: PcieLink) -> Iterator[Tlp]:
    """Yields completions in order, cut at multiples of RCB only, as long as MPS allows (2.3.1.1).

    Byte Count is the number of remaining bytes, with this piece.
    """
    if not length:  # a flush returns one byte's worth of nothing
        yield Tlp("CplD", address, 0, 1, tag=tag, byte_count=1, lower_address=address & 0x7C)
        return
    end = address + length
    while address < end:
        cut = min(end, (address + link.mps) // link.rcb * link.rcb)
        dw = byte_enables(address, cut - address)[0]
        yield Tlp("CplD", address, cut - address, dw, 0, 0, tag, end - address, address & 0x7F)
        address = cut


def _atomic(kind: str, address: int, length: int, tag: int) -> Iterator[Tlp]:
    """Yields one request with its operands, one completion with the old value (2.2.7)."""
    if length not in _OPERAND_BYTES[kind]:
        raise ValueError(f"{kind} has operands of {_OPERAND_BYTES[kind]} bytes, not of {length}")
    if address % length:
        raise ValueError(f"{kind} at {address:#x}: operands of {length} bytes are aligned to that")
    dw = length // 4 * (2 if kind == "cas" else 1)
    if kind == "fetch_add":
        yield Tlp("FetchAdd", address, length, dw, tag=tag)
    elif kind == "swap":
        yield Tlp("Swap", address, length, dw, tag=tag)
    else:
        yield Tlp("CAS", address, length, dw, tag=tag)
    # 2.2.9: the completion of an atomic operation has lower address 0
    yield Tlp("CplD", address, length, length // 4, tag=tag, byte_count=length)


class CxlMessage(NamedTuple):
    """A CXL.mem message.

    *opcode*: as in tables.cxl_mem; *address*: of the line; *data_at* and *data_bytes*: the part of
    the line that is accessed; *byte_enables*: of a partial write.
    """

    channel: MemChannel
    opcode: str
    address: int
    tag: int
    data_at: int = 0
    data_bytes: int = 0
    byte_enables: int = 0


def cxl_mem_messages(
    kind: Literal["load", "store", "atomic"], address: int, length: int, first_tag: int = 0
) -> Iterator[CxlMessage]:
    """Yields the messages of an access to the pool, each request followed by its response.

    A load is M2S Req MemRd and S2M DRS MemData.  A store is M2S RwD MemWr, or MemWrPtl for a part
    of a line, and S2M NDR Cmp.  CXL.mem has no atomic: the host reads the line, changes it in its
    cache, and writes all of it back.  ValueError for addresses beyond 52 bits.
    """
    _check_range(address, length, CXL_ADDRESS_BYTES_MAX)
    if kind not in ("load", "store", "atomic"):
        raise ValueError(f"{kind!r} is none of load, store, atomic")
    if not 0 <= first_tag <= 0xFFFF:
        raise ValueError(f"tag {first_tag}: tags have 16 bits")
    if kind == "atomic" and address % LINE_BYTES + length > LINE_BYTES:
        raise ValueError(f"an atomic of {length} bytes at {address:#x} lies in two lines")
    tag = first_tag
    for at, size in pieces(address, length, LINE_BYTES) if length else ():
        line, offset = at - at % LINE_BYTES, at % LINE_BYTES
        if kind != "store":
            yield CxlMessage(MemChannel.M2S_REQ, "MemRd", line, tag)
            yield CxlMessage(MemChannel.S2M_DRS, "MemData", line, tag, offset, size)
            tag = (tag + 1) % 0x10000
        if kind != "load":
            whole = kind == "atomic" or size == LINE_BYTES
            enables = 0 if whole else ((1 << size) - 1) << offset
            name = "MemWr" if whole else "MemWrPtl"
            yield CxlMessage(MemChannel.M2S_RWD, name, line, tag, offset, size, enables)
            yield CxlMessage(MemChannel.S2M_NDR, "Cmp", line, tag)
            tag = (tag + 1) % 0x10000


def _check_range(address: int, length: int, limit: int) -> None:
    if address < 0 or length < 0 or address + length > limit:
        raise ValueError(
            f"{length} bytes at {address:#x} lie outside of 0 to {limit:#x}, where addresses end"
        )
