# SPDX-License-Identifier: BSD-3-Clause
"""Firmware commands, 02xx (CXL 3.1 8.2.9.3): info, transfer and activate.

An image begins with its revision, 16 bytes of ASCII padded with NULs; the verification of others
fails.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum

from nupa.cxl.function.cci import Background, Code, Command, Effect, at_least, exactly, require

SLOTS = 4
REVISION_BYTES = 16
#: The unit of offsets; all parts but the last are whole units (8.2.9.3.2).
UNIT_BYTES = 128
_HEADER = struct.Struct("<BBxxI120x")
_ONLINE = 1


class TransferAction(IntEnum):
    FULL = 0
    INITIATE = 1
    CONTINUE = 2
    END = 3
    ABORT = 4


class Firmware:
    """Firmware slots 1 to *slots*: `active` runs, `staged` runs after a cold reset (0: the same).
    *now_ns* times transfers: a transfer that rests for *timeout_ns* is over."""

    def __init__(
        self,
        revision: str,
        *,
        now_ns: Callable[[], int],
        slots: int = 2,
        timeout_ns: int = 30_000_000_000,
        image_bytes_max: int = 64 << 20,
    ) -> None:
        if not 2 <= slots <= SLOTS:
            raise ValueError(f"{slots} slots: choose 2 to {SLOTS}")
        self.slots = [revision.encode("ascii").ljust(REVISION_BYTES, b"\0")] + [b""] * (slots - 1)
        if len(self.slots[0]) > REVISION_BYTES:
            raise ValueError(f"{revision!r} is longer than {REVISION_BYTES} bytes")
        self.image_bytes_max = image_bytes_max
        self.active = 1
        self.staged = 0
        self._now_ns = now_ns
        self._timeout_ns = timeout_ns
        self._image: bytearray | None = None
        self._touched_ns = 0

    @property
    def revision(self) -> bytes:
        """The revision of the firmware that runs, 16 bytes."""
        return self.slots[self.active - 1]

    def commands(self) -> Iterator[Command]:
        transfers = Effect.BACKGROUND | Effect.ABORTABLE
        activates = Effect.CONFIG | Effect.CONFIG_AFTER_COLD_RESET
        yield Command(0x0200, "get firmware info", exactly(0), self._info)
        yield Command(
            0x0201, "transfer firmware", at_least(_HEADER.size), self._transfer, transfers
        )
        yield Command(0x0202, "activate firmware", exactly(2), self._activate, activates)

    def cold_reset(self) -> None:
        """Activates the staged slot; forgets a transfer."""
        self.active, self.staged = self.staged or self.active, 0
        self._image = None

    def _info(self, _payload: bytes) -> bytes:
        head = bytes([len(self.slots), self.active | self.staged << 3, _ONLINE]) + bytes(13)
        return (
            head
            + b"".join(slot.ljust(REVISION_BYTES, b"\0") for slot in self.slots + [b""] * SLOTS)[
                : SLOTS * REVISION_BYTES
            ]
        )

    def _transfer(self, payload: bytes) -> bytes | Background:
        number, slot, offset = _HEADER.unpack_from(payload)
        data = payload[_HEADER.size :]
        require(number in TransferAction.__members__.values(), why=f"action {number}")
        action = TransferAction(number)
        if self._image is not None and self._now_ns() - self._touched_ns > self._timeout_ns:
            self._image = None
        image = self._image
        if action is TransferAction.ABORT:
            self._image = None
            return b""
        if action in (TransferAction.FULL, TransferAction.INITIATE):
            require(image is None, Code.FW_TRANSFER_IN_PROGRESS)
            require(offset == 0 and data, why=f"it begins at {offset}")
            image = bytearray()
        require(image is not None, Code.FW_TRANSFER_OUT_OF_ORDER, "none has begun")
        assert image is not None
        expected = offset * UNIT_BYTES == len(image)
        require(expected, Code.FW_TRANSFER_OUT_OF_ORDER, f"{offset} units, not {len(image)} bytes")
        require(len(image) + len(data) <= self.image_bytes_max, why="the image is too large")
        if action in (TransferAction.INITIATE, TransferAction.CONTINUE):
            require(data and len(data) % UNIT_BYTES == 0, why=f"{len(data)} bytes")
        else:
            self._check_slot(slot)
        whole = action in (TransferAction.FULL, TransferAction.END)
        slot_now = slot if whole else 0
        return Background(lambda: self._store(image, data, slot_now), abort=self._drop)

    def _store(self, image: bytearray, data: bytes, slot: int) -> None:
        """Appends a part of the image; with a *slot*, it is the last part."""
        if not slot:
            image += data
            self._image, self._touched_ns = image, self._now_ns()
            return
        self._image = None
        whole = bytes(image + data)
        text = whole[:REVISION_BYTES].rstrip(b"\0")
        good = len(whole) >= REVISION_BYTES and text.isascii() and text.decode().isprintable()
        require(good and text, Code.FW_VERIFICATION_FAILED, "an image begins with its revision")
        self.slots[slot - 1] = text.ljust(REVISION_BYTES, b"\0")

    def _drop(self) -> None:
        self._image = None

    def _check_slot(self, slot: int) -> None:
        good = 1 <= slot <= len(self.slots) and slot != self.active
        require(good, Code.INVALID_SLOT, f"slot {slot}")

    def _activate(self, payload: bytes) -> bytes:
        online_or_staged, slot = payload
        require(online_or_staged <= 1, why=f"action {online_or_staged}")
        self._check_slot(slot)
        require(self.slots[slot - 1], Code.INVALID_SLOT, f"slot {slot} is empty")
        if online_or_staged == 0:
            self.active, self.staged = slot, 0
        else:
            self.staged = slot
        return b""
