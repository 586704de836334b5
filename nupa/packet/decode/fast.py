# SPDX-License-Identifier: BSD-3-Clause
"""Decodes the headers of many packets at once, down to the InfiniBand transport, in C.

    >>> from collections import Counter
    >>> from nupa.packet.decode.fast import Layer, read
    >>> def opcodes(path):  # how often each opcode occurs in a capture
    ...     found = Counter()
    ...     for batch, headers in read(path):
    ...         found.update(headers.opcode[i] for i in headers.where(layer=Layer.TRANSPORT))
    ...     return found

Packets lie in any buffer: a piece of a file (`decode_batch`), bytes (`decode`), or memory that C
owns, such as a live ring (`decode_at`).  The columns are described in csrc/packet/decode.h.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, IntFlag
from ipaddress import IPv6Address
from os import PathLike
from typing import IO, Any

from nupa._engine import ffi, lib
from nupa.packet.decode.columns import Columns, columns_of
from nupa.packet.pcapng.reader import Batch, Reader

LINKTYPE_ETHERNET: int = lib.NUPA_LINKTYPE_ETHERNET
LINKTYPE_RAW: int = lib.NUPA_LINKTYPE_RAW
LINKTYPE_SLL: int = lib.NUPA_LINKTYPE_SLL
LINKTYPE_SLL2: int = lib.NUPA_LINKTYPE_SLL2
LINKTYPE_INFINIBAND: int = lib.NUPA_LINKTYPE_INFINIBAND


class Layer(IntEnum):
    """The last layer of a packet that was decoded."""

    NONE = lib.NUPA_LAYER_NONE
    LINK = lib.NUPA_LAYER_LINK
    NETWORK = lib.NUPA_LAYER_NETWORK
    PORTS = lib.NUPA_LAYER_PORTS
    TRANSPORT = lib.NUPA_LAYER_TRANSPORT


class FrameFault(IntEnum):
    """The reason why decoding stopped."""

    NONE = lib.NUPA_FAULT_NONE
    SPAN = lib.NUPA_FAULT_SPAN
    LINK = lib.NUPA_FAULT_LINK
    CUT = lib.NUPA_FAULT_CUT
    LENGTH = lib.NUPA_FAULT_LENGTH
    FRAGMENT = lib.NUPA_FAULT_FRAGMENT
    OPCODE = lib.NUPA_FAULT_OPCODE


class Icrc(IntEnum):
    """The state of a packet's ICRC."""

    NONE = lib.NUPA_ICRC_NONE
    UNCHECKED = lib.NUPA_ICRC_UNCHECKED
    RIGHT = lib.NUPA_ICRC_RIGHT
    WRONG = lib.NUPA_ICRC_WRONG


class Header(IntFlag):
    """Bits of the column `headers`; names as in nupa.packet.tables.opcodes."""

    RDETH = lib.NUPA_HEADER_RDETH
    XRCETH = lib.NUPA_HEADER_XRCETH
    DETH = lib.NUPA_HEADER_DETH
    FETH = lib.NUPA_HEADER_FETH
    RETH = lib.NUPA_HEADER_RETH
    AtomicETH = lib.NUPA_HEADER_ATOMICETH
    AETH = lib.NUPA_HEADER_AETH
    AtomicAckETH = lib.NUPA_HEADER_ATOMICACKETH
    ImmDt = lib.NUPA_HEADER_IMMDT
    IETH = lib.NUPA_HEADER_IETH
    CNPPadding = lib.NUPA_HEADER_CNP


class BthFlag(IntFlag):
    """Bits of the column `bth_flags`."""

    SOLICITED = lib.NUPA_BTH_SOLICITED
    MIGREQ = lib.NUPA_BTH_MIGREQ
    FECN = lib.NUPA_BTH_FECN
    BECN = lib.NUPA_BTH_BECN
    ACKREQ = lib.NUPA_BTH_ACKREQ


_SPAN_BYTES = ffi.sizeof("struct nupa_span")
_COLUMNS = columns_of("nupa_headers", without=("source", "destination"))
COLUMNS: tuple[str, ...] = tuple(_COLUMNS)


class Headers(Columns):
    """Decoded headers, a column for each field: `headers.psn[7]` is the eighth packet's PSN.

    A field that a packet does not have is 0; the column `headers` has its extended headers.
    """

    def __init__(self, out: Any, count: int, transports: int) -> None:
        super().__init__(out, count, "nupa_headers", _COLUMNS)
        #: packets that were decoded down to the transport
        self.transports = transports

    def source(self, index: int) -> bytes:
        """Returns the packet's source: 16 bytes of IPv6 or GID; IPv4 is ::ffff:a.b.c.d."""
        return bytes(self._out[index].source)

    def destination(self, index: int) -> bytes:
        """Returns the packet's destination, likewise."""
        return bytes(self._out[index].destination)

    def sources(self) -> Iterator[bytes]:
        """Yields the source of each packet, in their order."""
        return self._addresses("source")

    def destinations(self) -> Iterator[bytes]:
        """Yields the destination of each packet, in their order."""
        return self._addresses("destination")

    def _addresses(self, field: str) -> Iterator[bytes]:
        first = ffi.offsetof("struct nupa_headers", field)
        whole = bytes(self._bytes)
        return (whole[at : at + 16] for at in range(first, len(whole), self._stride))


def address_text(address: bytes) -> str:
    """Prints an address of Headers.

    >>> address_text(bytes(10) + b"\\xff\\xff\\x0a\\0\\0\\x01"), address_text(bytes(15) + b"\\x01")
    ('10.0.0.1', '::1')
    """
    parsed = IPv6Address(address)
    return str(parsed.ipv4_mapped or parsed)


def decode(
    data: bytes | bytearray | memoryview,
    spans: Iterable[tuple[int, int]],
    linktype: int = LINKTYPE_ETHERNET,
    *,
    check_icrc: bool = False,
) -> Headers:
    """Decodes the packets of *data*, each at (offset, bytes).

    Damaged packets raise nothing: the column `fault` has the reason.  check_icrc: ICRCs are
    computed for the column `icrc_state`.  OverflowError for an offset beyond 4 GiB.
    """
    words = array("I")
    for offset, size in spans:
        words.extend((offset, size, size, 0))
    count = len(words) * words.itemsize // _SPAN_BYTES
    c_spans = ffi.from_buffer("struct nupa_span[]", words)
    return decode_at(data, c_spans, _SPAN_BYTES, count, [linktype], check_icrc=check_icrc)


def decode_batch(batch: Batch, *, check_icrc: bool = False) -> Headers:
    """Decodes a batch of a pcapng.Reader; packets of unknown link types have only `fault`."""
    linktypes = [interface.linktype for interface in batch.interfaces]
    first = ffi.addressof(batch.records[0], "offset")
    stride = ffi.sizeof("struct nupa_pcapng_record")
    return decode_at(batch.data, first, stride, len(batch), linktypes, check_icrc=check_icrc)


def decode_at(
    data: Any,
    spans: Any,
    stride_bytes: int,
    count: int,
    linktypes: Sequence[int],
    *,
    check_icrc: bool = False,
) -> Headers:
    """Decodes packets that C lists: *spans* points to the first of *count* `struct nupa_span`.

    The spans lie *stride_bytes* apart, inside larger structures perhaps.
    """
    buffer = ffi.from_buffer(data)
    out = ffi.new("struct nupa_headers[]", max(count, 1))
    transports = lib.nupa_decode(
        buffer,
        len(buffer),
        ffi.cast("struct nupa_span *", spans),
        stride_bytes,
        count,
        ffi.new("uint32_t[]", list(linktypes)),
        len(linktypes),
        lib.NUPA_DECODE_CHECK_ICRC if check_icrc else 0,
        out,
    )
    return Headers(out, count, transports)


def read(
    file: str | PathLike[str] | IO[bytes], *, check_icrc: bool = False
) -> Iterator[tuple[Batch, Headers]]:
    """Yields the batches of a capture file with their headers.  PcapngError as pcapng.Reader."""
    with Reader(file) as reader:
        for batch in reader.batches():
            yield batch, decode_batch(batch, check_icrc=check_icrc)
