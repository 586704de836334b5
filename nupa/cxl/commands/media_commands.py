# SPDX-License-Identifier: BSD-3-Clause
"""Poison, scan and sanitize: 43xx and 44xx (CXL 3.1 8.2.9.9.4 and 8.2.9.9.5)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from nupa.cxl.function.cci import Background, Code, Command, CommandError, Effect, exactly, require
from nupa.cxl.media.events import EventRecord, Log, Transaction, general_media
from nupa.cxl.media.media import Media, MediaError
from nupa.cxl.media.parts import LINE_BYTES
from nupa.cxl.media.poison import PoisonList, PoisonRecord, PoisonSource

_RANGE = struct.Struct("<QQ")
_SCAN = struct.Struct("<QQB")
_LIST_HEAD = struct.Struct("<BxQH20x")
_RESULTS_HEAD = struct.Struct("<QQBxH12x")
_RECORD = struct.Struct("<QI4x")
_MORE, _OVERFLOW, _SCANNING = 1 << 0, 1 << 1, 1 << 2
_STOPPED = 1 << 1
_NO_EVENTS = 1 << 0
#: The speed of a scan, for Get Scan Media Capabilities: a device of 16 GB/s.
_SCAN_BYTES_PER_MS = 16 << 20


class MediaCommands:
    """Commands of poison, scan and sanitize.  *media_disabled*(whether) is called when a sanitize
    begins and ends."""

    def __init__(
        self,
        media: Media,
        poison: PoisonList,
        *,
        payload_bytes: int,
        now_ns: Callable[[], int],
        log: Callable[[Log, EventRecord], object],
        media_disabled: Callable[[bool], None],
    ) -> None:
        self._media = media
        self._poison = poison
        self._payload_bytes = payload_bytes
        self._now_ns = now_ns
        self._log = log
        self._media_disabled = media_disabled
        #: The last Get Poison List: its range, the list's generation, and the records given so far.
        self._given = (0, 0, 0, 0)
        self._is_scanning = False
        self._stopped: tuple[int, int] | None = None
        self._results: list[PoisonRecord] | None = None

    def commands(self) -> Iterator[Command]:
        pair = exactly(_RANGE.size)
        line = exactly(8 + LINE_BYTES)
        scans = Effect.BACKGROUND | Effect.ABORTABLE | Effect.LOG
        wipes = Effect.BACKGROUND | Effect.DATA | Effect.SECURITY
        yield Command(0x4300, "get poison list", pair, self._list, needs_media=True)
        yield Command(0x4301, "inject poison", exactly(8), self._inject, Effect.DATA, True)
        yield Command(0x4302, "clear poison", line, self._clear, Effect.DATA, True)
        yield Command(0x4303, "get scan media capabilities", pair, self._scan_time)
        yield Command(0x4304, "scan media", exactly(_SCAN.size), self._scan, scans, True)
        yield Command(0x4305, "get scan media results", exactly(0), self._scan_results)
        yield Command(0x4400, "sanitize", exactly(0), self._sanitize, wipes)

    def _range(self, payload: bytes) -> tuple[int, int]:
        dpa, lines = _RANGE.unpack_from(payload)
        self._poison.check(dpa, lines * LINE_BYTES)
        return dpa, lines * LINE_BYTES

    def _list(self, payload: bytes) -> bytes:
        dpa, size = self._range(payload)
        records = self._poison.records(dpa, size)
        asked = (dpa, size, self._poison.generation)
        first = self._given[3] if self._given[:3] == asked else 0
        room = (self._payload_bytes - _LIST_HEAD.size) // _RECORD.size
        listed = records[first : first + room]
        more = first + len(listed) < len(records)
        self._given = (*asked, first + len(listed) if more else 0)
        overflow = self._poison.overflow_ns
        flags = more * _MORE | (overflow is not None) * _OVERFLOW | self._is_scanning * _SCANNING
        return _LIST_HEAD.pack(flags, overflow or 0, len(listed)) + _packed(listed)

    def _inject(self, payload: bytes) -> bytes:
        dpa = int.from_bytes(payload, "little")
        self._check(dpa)
        self._poison.add(dpa, PoisonSource.INJECTED, self._now_ns())
        event = general_media(dpa, transaction=Transaction.HOST_INJECT)
        self._log(Log.INFORMATIONAL, event)
        return b""

    def _clear(self, payload: bytes) -> bytes:
        dpa = int.from_bytes(payload[:8], "little")
        self._check(dpa)
        self._poison.remove(dpa)
        self._media.write(dpa, payload[8:])
        return b""

    def _check(self, dpa: int) -> None:
        """Raises CommandError unless there is memory: of dynamic capacity, an extent."""
        self._poison.check(dpa)
        try:
            self._media.check(dpa, LINE_BYTES)
        except MediaError as error:
            raise CommandError(Code.INVALID_PHYSICAL_ADDRESS, str(error)) from error

    def _scan_time(self, payload: bytes) -> bytes:
        _, size = self._range(payload)
        return struct.pack("<I", -(-size // _SCAN_BYTES_PER_MS))

    def _scan(self, payload: bytes) -> Background:
        dpa, lines, flags = _SCAN.unpack(payload)
        size = lines * LINE_BYTES
        self._poison.check(dpa, size)
        require(not flags & ~_NO_EVENTS, why=f"flags {flags:#x}")
        self._is_scanning, self._results, self._stopped = True, None, None
        return Background(
            lambda: self._scanned(dpa, size, not flags), abort=lambda: self._scan_aborted(dpa, size)
        )

    def _scanned(self, dpa: int, size: int, with_events: bool) -> None:
        self._is_scanning = False
        self._results = self._poison.rescan(dpa, size, self._now_ns())
        for record in self._results if with_events else ():
            event = general_media(record.dpa, transaction=Transaction.HOST_SCAN)
            self._log(Log.WARNING, event)

    def _scan_aborted(self, dpa: int, size: int) -> None:
        self._is_scanning, self._results, self._stopped = False, [], (dpa, size)

    def _scan_results(self, _payload: bytes) -> bytes:
        require(not self._is_scanning, Code.BUSY)
        results = self._results
        if results is None:
            raise CommandError(Code.UNSUPPORTED, "nothing has been scanned")
        room = (self._payload_bytes - _RESULTS_HEAD.size) // _RECORD.size
        listed, rest = results[:room], results[room:]
        stopped = self._stopped
        flags = bool(rest) * _MORE | (stopped is not None) * _STOPPED
        self._results = rest or None
        dpa, size = stopped or (0, 0)
        head = _RESULTS_HEAD.pack(dpa, size // LINE_BYTES, flags, len(listed))
        return head + _packed(listed)

    def _sanitize(self, _payload: bytes) -> Background:
        self._media_disabled(True)
        return Background(self._sanitized)

    def _sanitized(self) -> None:
        self._media.clear(0, self._media.size)
        self._poison.clear()
        self._media_disabled(False)


def _packed(records: list[PoisonRecord]) -> bytes:
    return b"".join(_RECORD.pack(dpa | source, lines) for dpa, lines, source in records)
