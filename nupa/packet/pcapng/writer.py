# SPDX-License-Identifier: BSD-3-Clause
"""Writes pcapng files (draft-ietf-opsawg-pcapng): nanosecond times, little endian, one section."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

import nupa
from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.packet.pcapng.blocks import (
    BLOCK_BYTES_MAX,
    ENHANCED,
    EPB_DROPCOUNT,
    EPB_FLAGS,
    EPB_PACKETID,
    IF_DESCRIPTION,
    IF_FILTER,
    IF_NAME,
    IF_SPEED,
    IF_TSRESOL,
    INTERFACE,
    INTERFACES_MAX,
    ISB_DROPPED,
    ISB_END,
    ISB_RECEIVED,
    ISB_START,
    MAGIC,
    OPT_COMMENT,
    SECTION,
    SHB_APPLICATION,
    SHB_HARDWARE,
    SHB_OS,
    STATISTICS,
    Option,
    PcapngError,
    encode_options,
    opened,
)

if TYPE_CHECKING:
    from nupa.packet.pcapng.reader import Batch

_NANOSECONDS = 9  # if_tsresol: 10^-9 s
_PACKET = struct.Struct("<7I")
_PACKET_BYTES = 32
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_PAD = (b"", b"\0\0\0", b"\0\0", b"\0")
_FLAGS_HEAD = struct.pack("<HH", EPB_FLAGS, 4)
_ID_HEAD = struct.pack("<HH", EPB_PACKETID, 8)
_DROPS_HEAD = struct.pack("<HH", EPB_DROPCOUNT, 8)
_OPTIONS_END = bytes(4)
_PIECE_BYTES = 1 << 20
_LONGEST_BYTES = BLOCK_BYTES_MAX + 64  # room for what C reserves at most


class Writer(Closing):
    """Writes to a path, or to an open binary file, which may be a pipe.

        with Writer("x.pcapng") as writer:
            port = writer.add_interface("h0/1", LINKTYPE_NUPA)
            writer.write(port, time_ns(), data, flags=INBOUND, packet_id=transfer)

    PcapngError for values that do not fit the format; OSError as the file raises it.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | IO[bytes],
        *,
        hardware: str = "",
        system: str = "",
        comment: str = "",
    ) -> None:
        self._owns = isinstance(file, str | os.PathLike)
        self._file = opened(file, "wb")
        self._snaplens: list[int] = []
        self._out: Any = None  # of copy(): kept for the next
        options = [
            *_texts((OPT_COMMENT, comment), (SHB_HARDWARE, hardware), (SHB_OS, system)),
            Option(SHB_APPLICATION, f"nupa {nupa.__version__}".encode()),
        ]
        self._block(SECTION, struct.pack("<IHHq", MAGIC, 1, 0, -1), options)

    def close(self) -> None:
        """Closes the file if it was given as a path; else flushes it."""
        if self._owns:
            self._file.close()
        else:
            self._file.flush()

    def flush(self) -> None:
        """Hands what was written to the system, for a reader that follows the file."""
        self._file.flush()

    def add_interface(
        self,
        name: str,
        linktype: int,
        *,
        snaplen: int = 0,
        description: str = "",
        capture_filter: str = "",
        speed_bps: int = 0,
        options: Iterable[Option] = (),
    ) -> int:
        """Describes an interface; returns its number.

        *snaplen*: bytes of each packet that are kept, 0 for all.
        """
        if len(self._snaplens) >= INTERFACES_MAX:
            raise PcapngError(
                f"interface {name!r}: the file has {INTERFACES_MAX}, which is the limit"
            )
        if not 0 <= linktype <= 0xFFFF or not 0 <= snaplen <= 0xFFFFFFFF:
            raise PcapngError(
                f"interface {name!r}: the link type ({linktype}) has 16 bits, "
                f"the snap length ({snaplen}) 32"
            )
        fixed = [
            *_texts((IF_NAME, name), (IF_DESCRIPTION, description)),
            Option(IF_TSRESOL, bytes((_NANOSECONDS,))),
        ]
        if speed_bps:
            fixed.append(Option(IF_SPEED, _U64.pack(speed_bps)))
        if capture_filter:  # its first byte: 0, a libpcap string (the draft, 4.2)
            fixed.append(Option(IF_FILTER, b"\0" + capture_filter.encode()))
        self._block(INTERFACE, struct.pack("<HHI", linktype, 0, snaplen), [*fixed, *options])
        self._snaplens.append(snaplen)
        return len(self._snaplens) - 1

    def write(
        self,
        interface: int,
        ts_ns: int,
        data: bytes | bytearray | memoryview,
        original_bytes: int | None = None,
        *,
        flags: int = 0,
        packet_id: int = 0,
        drops: int = 0,
        comment: str = "",
        options: Iterable[Option] = (),
    ) -> None:
        """Writes a packet, cut to the interface's snap length.

        *original_bytes*: its length, if *data* is not all of it.  *flags*: as EPB_FLAGS, with the
        direction.
        """
        if not 0 <= interface < len(self._snaplens):
            raise PcapngError(f"there is no interface {interface}: call add_interface first")
        size = len(data)
        original = size if original_bytes is None else original_bytes
        snaplen = self._snaplens[interface]
        if snaplen and size > snaplen:
            data, size = data[:snaplen], snaplen
        tail = _PAD[size % 4]
        if flags:
            tail += _FLAGS_HEAD + _U32.pack(flags)
        if packet_id:
            tail += _ID_HEAD + _U64.pack(packet_id)
        if drops:
            tail += _DROPS_HEAD + _U64.pack(drops)
        if comment or options:
            tail += encode_options([*_texts((OPT_COMMENT, comment)), *options])
        if len(tail) > 3:
            tail += _OPTIONS_END
        total = _PACKET_BYTES + size + len(tail)
        if total > BLOCK_BYTES_MAX:
            raise PcapngError(
                f"a packet of {size} bytes is too long: blocks have {BLOCK_BYTES_MAX} at most"
            )
        try:
            head = _PACKET.pack(
                ENHANCED, total, interface, ts_ns >> 32, ts_ns & 0xFFFFFFFF, size, original
            )
        except struct.error as error:
            raise PcapngError(
                f"a packet at {ts_ns} ns of {original} bytes: times have 64 bits, sizes 32"
            ) from error
        self._file.write(b"".join((head, data, tail, _U32.pack(total))))

    def copy(
        self, batch: Batch, interfaces: Sequence[int], which: Iterable[int] | None = None
    ) -> int:
        """Copies packets of *batch* with all their options; returns how many.

        *which*: their places; None: all.  *interfaces*: the number in this file of each interface
        of the batch.  Several times as fast as reading and writing packets.  PcapngError for a
        place outside the batch, or an interface that this file does not have.
        """
        unknown = [number for number in interfaces if not 0 <= number < len(self._snaplens)]
        if unknown:
            raise PcapngError(f"there is no interface {unknown[0]}: call add_interface first")
        chosen = array("I", range(len(batch)) if which is None else which)
        c_chosen = ffi.from_buffer("uint32_t[]", chosen)
        numbers = ffi.new("uint32_t[]", list(interfaces))
        snaplens = ffi.new("uint32_t[]", [self._snaplens[number] for number in interfaces])
        room, out = _PIECE_BYTES, self._out or ffi.new("uint8_t[]", _PIECE_BYTES)
        self._out = out
        used, why = ffi.new("size_t *"), ffi.new("char **")
        done, stuck = 0, False
        while done < len(chosen):
            if stuck:
                room, out = _LONGEST_BYTES, ffi.new("uint8_t[]", _LONGEST_BYTES)
            count = lib.nupa_pcapng_format(
                ffi.from_buffer(batch.data),
                len(batch.data),
                batch.is_swapped,
                batch.records,
                len(batch),
                c_chosen + done,
                len(chosen) - done,
                numbers,
                snaplens,
                len(numbers),
                out,
                room,
                used,
                why,
            )
            self._file.write(ffi.buffer(out, used[0]))
            done += count
            stuck = not count
            if why[0] != ffi.NULL or (stuck and room == _LONGEST_BYTES):
                reason = ffi.string(why[0]).decode() if why[0] != ffi.NULL else "it is too long"
                raise PcapngError(f"packet {chosen[done]} of the batch: {reason}")
        return done

    def statistics(
        self,
        interface: int,
        ts_ns: int,
        received: int,
        dropped: int,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        comment: str = "",
    ) -> None:
        """Writes how many packets the interface saw, and how many of them the capture lost."""
        if not 0 <= interface < len(self._snaplens):
            raise PcapngError(f"there is no interface {interface}: call add_interface first")
        options = _texts((OPT_COMMENT, comment))
        for code, time in ((ISB_START, start_ns), (ISB_END, end_ns)):
            if time is not None:
                options.append(Option(code, _time(time)))
        options += [
            Option(ISB_RECEIVED, _U64.pack(received)),
            Option(ISB_DROPPED, _U64.pack(dropped)),
        ]
        self._block(STATISTICS, _U32.pack(interface) + _time(ts_ns), options)

    def _block(self, kind: int, body: bytes, options: Iterable[Option]) -> None:
        body += encode_options(options) + _OPTIONS_END
        total = 12 + len(body)
        self._file.write(_U32.pack(kind) + _U32.pack(total) + body + _U32.pack(total))


def _time(ns: int) -> bytes:
    """Encodes a time: the upper half comes first, in either endianness."""
    return _U32.pack(ns >> 32) + _U32.pack(ns & 0xFFFFFFFF)


def _texts(*pairs: tuple[int, str]) -> list[Option]:
    return [Option(code, text.encode()) for code, text in pairs if text]
