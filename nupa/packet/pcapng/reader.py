# SPDX-License-Identifier: BSD-3-Clause
"""Reads pcapng files strictly and fast, without scapy.

Classic pcap files are read, too: one section, one interface without a name.  Times are in ns since
1970.  C finds the packets, a megabyte at a time: `Reader.batches()` yields them as C structures,
for filters and statistics; `for packet in reader` as named tuples.  Files may have either
endianness, any number of sections and any size; memory is constant.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any, NoReturn

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.packet.pcapng import pcap
from nupa.packet.pcapng.blocks import (
    BLOCK_BYTES_MAX,
    IF_NAME,
    IF_TSOFFSET,
    IF_TSRESOL,
    INBOUND,
    INTERFACE,
    INTERFACES_MAX,
    ISB_DROPPED,
    ISB_RECEIVED,
    MAGIC,
    OUTBOUND,
    PACKETS,
    SECTION,
    STATISTICS,
    Interface,
    Option,
    OtherBlock,
    Packet,
    PcapngError,
    Section,
    Statistics,
    first,
    number,
    opened,
    options_of,
    resolution,
)
from nupa.packet.pcapng.writer import Writer

__all__ = [
    "INBOUND",
    "OUTBOUND",
    "Batch",
    "Interface",
    "Option",
    "OtherBlock",
    "Packet",
    "PcapngError",
    "Reader",
    "Section",
    "Statistics",
    "Writer",
]

_CHUNK_BYTES = 1 << 20
_BATCH_PACKETS = 8192
_NATIVE = "<" if sys.byteorder == "little" else ">"
_RECORD = struct.Struct("=3Q8I")  # struct nupa_pcapng_record


class Batch:
    """Packets of one piece of the file.

    *records* is a C array of `struct nupa_pcapng_record` (csrc/packet/pcapng.h), of which the
    first `len(batch)` are valid.  Its offsets are in *data*, its interfaces in *interfaces*.
    """

    def __init__(
        self, data: bytes, records: Any, count: int, interfaces: Sequence[Interface], order: str
    ) -> None:
        self.data = data
        self.records = records
        self.interfaces = interfaces
        self.order = order  #: of numbers in options: "<" or ">"
        self._count = count

    def __len__(self) -> int:
        return self._count

    @property
    def is_swapped(self) -> bool:
        """Whether options in *data* have the other endianness than this machine."""
        return self.order != _NATIVE

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Yields each record as a tuple in the order of the C structure: ts_ns, packet_id, drops,
        offset, captured_bytes, original_bytes, interface, flags, ...

        Several times as fast as iterating over packets.
        """
        return _RECORD.iter_unpack(ffi.buffer(self.records, self._count * _RECORD.size))

    def __iter__(self) -> Iterator[Packet]:
        data, interfaces, make = self.data, self.interfaces, Packet._make
        for ts, packet_id, drops, at, size, original, index, flags, where, length, _ in self.rows():
            options = options_of(data[where : where + length], self.order) if where else ()
            interface = interfaces[index]
            yield make(
                (ts, data[at : at + size], interface, original, flags, packet_id, drops, options)
            )


class Reader(Closing):
    """Reads a file, from a path or from an open binary file, which may be a pipe.

    `for packet in reader` yields packets, `batches()` many at a time, `blocks()` every block.
    *section*, *interfaces* (of this section) and *statistics* (the latest of each interface) have
    what was read so far.  PcapngError where the file is damaged, after all packets before that.
    """

    def __init__(self, file: str | os.PathLike[str] | IO[bytes]) -> None:
        self._owns = isinstance(file, str | os.PathLike)
        self._file = opened(file, "rb")
        self._name = str(getattr(self._file, "name", "the stream"))
        self._read = getattr(self._file, "read1", self._file.read)
        self._data = b""
        self._at = 0
        self._before = 0  # bytes of the file before self._data
        self._order = "<"
        self._is_classic = False
        self._c_interfaces: Any = ffi.new("struct nupa_pcapng_interface[]", 16)
        self._spare: Any = None
        self.section: Section | None = None
        self.interfaces: list[Interface] = []
        self.statistics: dict[int, Statistics] = {}

    def close(self) -> None:
        """Closes the file if it was given as a path."""
        if self._owns:
            self._file.close()

    def __iter__(self) -> Iterator[Packet]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[Batch]:
        """Yields packets, many at a time: as many as the file or pipe has at hand, 8192 at most."""
        for block in self.blocks():
            if isinstance(block, Batch):
                yield block

    def blocks(self) -> Iterator[Batch | Section | Interface | Statistics | OtherBlock]:
        """Yields all of the file, in its order."""
        if self.section is None and self._fill(4) and self._begin() in pcap.MAGICS:
            yield from self._classic_header()
        if self._is_classic:
            yield from self._classic_batches()
            return
        while self._fill(12):
            batch = self._scan() if self.section else None
            if batch:
                yield batch
            elif (kind := self._u32(self._at)) in PACKETS and self.section:
                self._fill_block(kind)  # the scan ended because part of the block is missing
            else:
                yield self._other(kind)
        if self._at < len(self._data) or self.section is None:
            rest = len(self._data) - self._at
            self._fail(f"{rest} bytes are not a block: the file ends too early")

    def _begin(self) -> bytes:
        return self._data[self._at : self._at + 4]

    def _classic_header(self) -> Iterator[Section | Interface]:
        if not self._fill(pcap.HEADER_BYTES):
            self._fail("the header of the pcap file is incomplete: the file ends too early")
        try:
            header = pcap.file_header(self._data)
        except ValueError as error:
            self._fail(str(error))
        self._at += pcap.HEADER_BYTES
        self._is_classic, self._order = True, header.order
        self._c_interfaces[0].ns_mul = header.ns_mul
        self.section = Section(header.order == ">", pcap.VERSION, ())
        self.interfaces.append(Interface(0, header.linktype, header.snaplen, "", ()))
        yield self.section
        yield self.interfaces[0]

    def _classic_batches(self) -> Iterator[Batch]:
        while self._fill(1):
            batch = self._scan()
            if batch:
                yield batch
                continue
            if not self._fill(pcap.RECORD_BYTES):
                there = len(self._data) - self._at
                self._fail(f"{there} bytes are not a packet's header: the file ends too early")
            size = self._u32(self._at + 8)  # which the scan has found to be possible
            if not self._fill(pcap.RECORD_BYTES + size):
                there = len(self._data) - self._at - pcap.RECORD_BYTES
                self._fail(
                    f"a packet has {size} bytes, of which {there} are there: "
                    "the file ends too early"
                )

    def _scan(self) -> Batch | None:
        records = self._spare or ffi.new("struct nupa_pcapng_record[]", _BATCH_PACKETS)
        at, why = ffi.new("size_t *", self._at), ffi.new("char **")
        data = self._data
        scan = lib.nupa_pcap_scan if self._is_classic else lib.nupa_pcapng_scan
        count = scan(
            ffi.from_buffer(data),
            len(data),
            self._order != _NATIVE,
            self._c_interfaces,
            len(self.interfaces),
            records,
            _BATCH_PACKETS,
            at,
            why,
        )
        if not count and why[0] != ffi.NULL:
            what = "packet" if self._is_classic else "packet block"
            self._fail(f"a {what} is damaged: {ffi.string(why[0]).decode()}")
        self._at = int(at[0])
        self._spare = None if count else records
        return Batch(data, records, count, self.interfaces, self._order) if count else None

    def _fill(self, size: int) -> bool:
        """Reads until *size* bytes are at hand from here on; False at the file's end."""
        while len(self._data) - self._at < size:
            try:
                more = self._read(_CHUNK_BYTES)
            except (OSError, EOFError) as error:
                raise PcapngError(f"{self._name}: cannot be read: {error}") from error
            if not more:
                return False
            self._before += self._at
            self._data = self._data[self._at :] + more
            self._at = 0
        return True

    def _fill_block(self, kind: int) -> int:
        """Reads the rest of the block; returns its length."""
        if kind == SECTION:
            if not self._fill(28):
                self._fail("the section header is incomplete: the file ends too early")
            self._order = self._section_order()
        total = self._u32(self._at + 4)
        if total % 4 or total < 12:
            self._fail(f"a block of type {kind:#x} has {total} bytes; blocks have 12 or more, by 4")
        if total > BLOCK_BYTES_MAX:
            self._fail(f"a block of type {kind:#x} has {total} bytes; the limit is 16 MiB")
        if not self._fill(total):
            self._fail(
                f"a block of type {kind:#x} has {total} bytes, of which "
                f"{len(self._data) - self._at} are there: the file ends too early"
            )
        return total

    def _section_order(self) -> str:
        magic = self._data[self._at + 8 : self._at + 12]
        for order in "<>":
            if struct.unpack(order + "I", magic)[0] == MAGIC:
                return order
        return self._fail(f"the byte order magic is {magic.hex()}, which is not valid")

    def _other(self, kind: int) -> Section | Interface | Statistics | OtherBlock:
        if self.section is None and kind != SECTION:
            begin = self._begin()
            other = pcap.other_kind(begin)
            self._fail(
                f"this is {other}: convert it first, with `editcap`"
                if other
                else f"this is not a pcapng or pcap file: it begins with {begin.hex()}"
            )
        total = self._fill_block(kind)
        if self._u32(self._at + total - 4) != total:
            self._fail(f"the lengths at the two ends of a block of type {kind:#x} differ")
        body = self._data[self._at + 8 : self._at + total - 4]
        try:
            block = self._parse(kind, body)
        except (ValueError, struct.error) as error:
            self._fail(f"a block of type {kind:#x} is damaged: {error}")
        self._at += total
        return block

    def _parse(self, kind: int, body: bytes) -> Section | Interface | Statistics | OtherBlock:
        order = self._order
        if kind == SECTION:
            major, minor = struct.unpack_from(order + "HH", body, 4)
            if major != 1:
                raise ValueError(f"it has version {major}.{minor}; 1.x is supported")
            self.interfaces, self.statistics = [], {}
            self.section = Section(order == ">", (major, minor), options_of(body[16:], order))
            return self.section
        if kind == INTERFACE:
            return self._add_interface(body)
        if kind == STATISTICS:
            index, high, low = struct.unpack_from(order + "III", body)
            if index >= len(self.interfaces):
                raise ValueError(f"there is no interface {index}")
            options = options_of(body[12:], order)
            ticks = self._c_interfaces[index]
            ns = (high << 32 | low) * ticks.ns_mul // ticks.ns_div + ticks.offset_s * 10**9
            received = number(options, ISB_RECEIVED, 8, order)
            dropped = number(options, ISB_DROPPED, 8, order)
            self.statistics[index] = Statistics(index, ns, received, dropped, options)
            return self.statistics[index]
        return OtherBlock(kind, body)

    def _add_interface(self, body: bytes) -> Interface:
        index = len(self.interfaces)
        if index >= INTERFACES_MAX:
            raise ValueError(f"it is interface {index}; at most {INTERFACES_MAX} are possible")
        linktype, snaplen = struct.unpack_from(self._order + "HxxI", body)
        options = options_of(body[8:], self._order)
        name = first(options, IF_NAME) or b""
        if index == len(self._c_interfaces):
            larger = ffi.new("struct nupa_pcapng_interface[]", 2 * index)
            larger[0:index] = self._c_interfaces[0:index]
            self._c_interfaces = larger
        ticks = self._c_interfaces[index]
        ticks.ns_mul, ticks.ns_div = resolution(number(options, IF_TSRESOL, 1, self._order))
        ticks.offset_s = number(options, IF_TSOFFSET, 8, self._order, signed=True) or 0
        ticks.snaplen = snaplen
        self.interfaces.append(
            Interface(index, linktype, snaplen, name.decode(errors="replace"), options)
        )
        return self.interfaces[-1]

    def _u32(self, at: int) -> int:
        return int(struct.unpack_from(self._order + "I", self._data, at)[0])

    def _fail(self, what: str) -> NoReturn:
        raise PcapngError(f"{self._name}: at byte {self._before + self._at}: {what}")
