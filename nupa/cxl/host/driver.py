# SPDX-License-Identifier: BSD-3-Clause
"""A driver of a memory device: mailbox, events and dynamic capacity.

CXL 3.1 8.2.8.4, 8.2.9.2, 9.13.3.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.host.enumerate import FoundFunction
from nupa.cxl.host.root import RootComplex
from nupa.cxl.media.events import RECORD_BYTES, DcEventType, Log
from nupa.cxl.media.extents import DcRegion, Extent
from nupa.cxl.registers import device_tables
from nupa.cxl.registers.config import walk
from nupa.cxl.registers.device_tables import MAILBOX_HEADER_BYTES, PRIMARY_MAILBOX
from nupa.cxl.registers.dvsec_tables import BlockId, locations
from nupa.cxl.registers.pcie_tables import MSIX_ID

_DOORBELL = 1 << 0
_INTERRUPTS_AT = 0xFEE0_0000  # the host's address for interrupt messages
_KEPT_EVENTS = 256
_EVENTS_HEAD, _HANDLE_AT, _DATA_AT = 0x20, 0x14, 0x30  # 8.2.9.2.2, 8.2.9.2.1
_CHANGE = struct.Struct("<BxHBB2xQQ")
_MORE = 1 << 0
_ANSWERS = {DcEventType.ADD: 0x4802, DcEventType.RELEASE: 0x4803}
_CONFIG, _CONFIG_ROW = struct.Struct("<BB6x"), struct.Struct("<QQQQIB3x")
_LIST, _LISTED = struct.Struct("<III4x"), struct.Struct("<QQ16sH6x")
_UPDATE, _UPDATED = struct.Struct("<IB3x"), struct.Struct("<QQ8x")


class Mail:
    """The primary mailbox in the device registers at *base* of the host's memory."""

    def __init__(self, root: RootComplex, base: int) -> None:
        self._root = root
        listed = device_tables.find_capabilities(lambda at, size: root.read(base + at, size))
        offset = next((each.offset for each in listed if each.number == PRIMARY_MAILBOX), None)
        self._at = base + offset if offset is not None else None
        self._is_busy = False
        self._later: Callable[[], None] = lambda: None
        self.payload_bytes = 1 << (root.read(base + offset, 4) & 0x1F) if offset is not None else 0

    def when_idle(self, work: Callable[[], None]) -> None:
        """Calls *work* now, or after a command in progress, which may have caused an interrupt."""
        if self._is_busy:
            self._later = work
        else:
            work()

    def send(self, opcode: int, payload: bytes = b"") -> bytes:
        """Sends a command, and returns the payload of the answer (8.2.8.4).  CommandError: the
        device refuses, or does not answer."""
        with self._root.lock:
            self._is_busy = True
            try:
                return self._send(opcode, payload)
            finally:
                self._is_busy = False
                work, self._later = self._later, lambda: None
                work()

    def _send(self, opcode: int, payload: bytes) -> bytes:
        root, at = self._root, self._at
        if at is None or root.read(at + 4, 4) & _DOORBELL:
            raise CommandError(Code.UNSUPPORTED_MAILBOX, "no mailbox, or one that is stuck")
        for i in range(0, len(payload), 4):
            word = int.from_bytes(payload[i : i + 4], "little")
            root.write(at + MAILBOX_HEADER_BYTES + i, 4, word)
        root.write(at + 8, 8, opcode | len(payload) << 16)
        root.write(at + 4, 4, root.read(at + 4, 4) | _DOORBELL)
        if root.read(at + 4, 4) & _DOORBELL:
            raise CommandError(Code.UNSUPPORTED_MAILBOX, "the device does not answer the doorbell")
        code = Code(root.read(at + 0x10, 8) >> 32 & 0xFFFF)
        if code not in (Code.SUCCESS, Code.BACKGROUND_STARTED):
            raise CommandError(code, f"command {opcode:#06x}")
        size = root.read(at + 8, 8) >> 16 & (1 << 21) - 1
        words = (
            root.read(at + MAILBOX_HEADER_BYTES + i, 4).to_bytes(4, "little")
            for i in range(0, size, 4)
        )
        return b"".join(words)[:size]


class Driver:
    """A driver of *function*.  It accepts dynamic capacity that is offered, and releases what it is
    asked for.  `extents` is what it has, `regions` where dynamic capacity may be; *changed* is
    called after either has changed.  `events` has the last records of all logs, as bytes."""

    def __init__(
        self, root: RootComplex, function: FoundFunction, changed: Callable[[], None]
    ) -> None:
        self.events: deque[tuple[Log, bytes]] = deque(maxlen=_KEPT_EVENTS)
        self.regions: list[DcRegion] = []
        self.extents: list[Extent] = []
        self._changed = changed
        self._waiting: list[tuple[int, int]] = []
        read = partial(root.config_read, function.bdf)
        base = next(
            (
                function.bars[each.bar][0] + each.offset
                for each in locations(read)
                if each.block is BlockId.DEVICE and each.bar in function.bars
            ),
            None,
        )
        if base is None:
            raise CommandError(Code.UNSUPPORTED_MAILBOX, "no device registers")
        self.mail = Mail(root, base)
        self._read_regions()
        logs = len(Log) if self.regions else Log.DYNAMIC_CAPACITY
        self.mail.send(0x0103, bytes([1] * logs))  # 8.2.9.2.5: by MSI-X
        message = self.mail.send(0x0102)[0] >> 4
        self._take_interrupts(root, function, message)
        self.look()

    def _take_interrupts(self, root: RootComplex, function: FoundFunction, message: int) -> None:
        """Enables MSI-X with one vector (PCIe 6.0 7.7.2)."""
        read = partial(root.config_read, function.bdf)
        at = next(at for at, number in walk(read) if number == MSIX_ID)
        table = read(at + 4, 4)
        entry = function.bars[table & 7][0] + (table & ~7) + 16 * message
        for offset, value in ((0, _INTERRUPTS_AT), (4, 0), (8, message), (12, 0)):
            root.write(entry + offset, 4, value)
        root.listen(function.bdf, lambda _address, _data: self.mail.when_idle(self._interrupted))
        root.config_write(function.bdf, at + 2, 2, read(at + 2, 2) | 1 << 15)

    def _read_regions(self) -> None:
        """Reads the regions (8.2.9.9.9.1).  Devices without dynamic capacity lack the command."""
        try:
            answer = self.mail.send(0x4800, bytes([8, 0]))
        except CommandError as error:
            if error.code is not Code.UNSUPPORTED:
                raise
            self.mail.send(0x4000)  # it is a memory device without dynamic capacity
            return
        _, count = _CONFIG.unpack_from(answer)
        rows = (
            _CONFIG_ROW.unpack_from(answer, _CONFIG.size + i * _CONFIG_ROW.size)
            for i in range(count)
        )
        self.regions = [
            DcRegion(dpa, size, block, dsmad_handle=handle, sanitize=bool(flags & 1))
            for dpa, _decode, size, block, handle, flags in rows
        ]
        self._read_extents()

    def _read_extents(self) -> None:
        """Reads the extent list (8.2.9.9.9.2), again from the start if it changes meanwhile."""
        found: list[Extent] = []
        generation = None
        while True:
            answer = self.mail.send(0x4801, struct.pack("<II", 0xFFFFFFFF, len(found)))
            count, total, now = _LIST.unpack_from(answer)
            if generation not in (None, now):
                found, generation = [], None
                continue
            generation = now
            for i in range(count):
                dpa, size, tag, sequence = _LISTED.unpack_from(answer, _LIST.size + 40 * i)
                found.append(Extent(dpa, size, UUID(bytes=tag), sequence))
            if len(found) >= total or not count:
                break
        self.extents = found
        self._changed()

    # Events

    def _interrupted(self) -> None:
        with suppress(CommandError):  # a manager uses the mailbox; records stay in the logs
            self.look()

    def look(self) -> None:
        """Reads the logs, and acts upon their records."""
        for log in Log if self.regions else list(Log)[: Log.DYNAMIC_CAPACITY]:
            while records := self._take(log):
                for record in records:
                    self.events.append((log, record))
                    if log is Log.DYNAMIC_CAPACITY:
                        self._capacity_changed(record)

    def _take(self, log: Log) -> list[bytes]:
        """Reads and clears the records of a log (8.2.9.2.2, 8.2.9.2.3)."""
        answer = self.mail.send(0x0100, bytes([log]))
        count = int.from_bytes(answer[0x14:0x16], "little")
        starts = (_EVENTS_HEAD + i * RECORD_BYTES for i in range(count))
        records = [answer[at : at + RECORD_BYTES] for at in starts]
        if records:
            handles = b"".join(each[_HANDLE_AT : _HANDLE_AT + 2] for each in records)
            self.mail.send(0x0101, bytes([log, 0, count, 0, 0, 0]) + handles)
        return records

    def _capacity_changed(self, record: bytes) -> None:
        """Collects records until one has no more that belong to it (8.2.9.2.1.6), then answers."""
        change, _host, _region, more, dpa, size = _CHANGE.unpack_from(record, _DATA_AT)
        if change == DcEventType.REGION_UPDATED:
            self._read_regions()
            return
        self._waiting.append((dpa, size))
        if more & _MORE:
            return
        extents, self._waiting = self._waiting, []
        opcode = _ANSWERS.get(change)
        if opcode is not None:
            with suppress(CommandError):  # an old record; the offer was answered meanwhile
                self._answer(opcode, extents)
        self._read_extents()

    def _answer(self, opcode: int, extents: Sequence[tuple[int, int]]) -> None:
        """Answers extents, in several commands if one has no room (8.2.9.9.9.3, 8.2.9.9.9.4)."""
        room = (self.mail.payload_bytes - _UPDATE.size) // _UPDATED.size
        for at in range(0, len(extents), room):
            part = extents[at : at + room]
            more = at + room < len(extents)
            rows = b"".join(_UPDATED.pack(*extent) for extent in part)
            self.mail.send(opcode, _UPDATE.pack(len(part), more * _MORE) + rows)
