# SPDX-License-Identifier: BSD-3-Clause
"""A block of registers: rows that describe bits, and bytes that behave accordingly.

Numbers are little endian (PCIe 6.0 7.2, CXL 3.1 8.2).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial
from operator import attrgetter
from typing import ParamSpec, TypeVar, cast

from nupa.base.errors import LocalError


class RegisterAttribute(StrEnum):
    """Access attributes of a field: PCIe 6.0 7.4, and CXL 3.1 8 for RWO, RWL and WO.

    "Sticky" fields keep their value over a hot reset; HwInit fields are set once, before
    software."""

    RO = "RO"
    ROS = "ROS"  # sticky
    HWINIT = "HwInit"
    RW = "RW"
    RWS = "RWS"  # sticky
    RW1C = "RW1C"  # a one clears the bit
    RW1CS = "RW1CS"  # sticky
    RWO = "RWO"  # read-write-one-to-lock: read only once it is not 0
    RWL = "RWL"  # read-write until its lock holds
    WO = "WO"  # written for its effect, by a handler; reads as 0

    @property
    def stored(self) -> bool:
        """Whether a write of software can change the field."""
        return self not in _NOT_STORED


RO, ROS, HWINIT, RW, RWS, RW1C, RW1CS, RWO, RWL, WO = RegisterAttribute
_NOT_STORED = frozenset({RO, ROS, HWINIT, WO})
_STICKY = frozenset({ROS, HWINIT, RWS, RW1CS})

#: Sizes of an access, in bytes; each is aligned to itself.
CONFIG_BYTES = (1, 2, 4)  # PCIe 6.0 2.2.7.1: one DW with byte enables
COMPONENT_BYTES = (4, 8)  # CXL 3.1 8.2.4: no partial access
DEVICE_BYTES = (1, 2, 4, 8)  # CXL 3.1 8.2.8

#: handler(written, old): the value that software wrote, and the value before.  Bytes that software
#: left out are as before, or 0 in a field that ones clear.  It runs after all bytes are stored.
Handler = Callable[[int, int], None]


class AccessError(LocalError):
    """An access that is outside the block, unaligned, or of a size that it does not take."""


P = ParamSpec("P")
T = TypeVar("T")


def once(make: Callable[P, T]) -> Callable[P, T]:
    """Caches a table for each set of arguments, so that all users share its rows."""
    return cast("Callable[P, T]", cache(make))


def rows_once(make: Callable[P, Iterator[BitField]]) -> Callable[P, tuple[BitField, ...]]:
    """Caches the rows of a generator: `once`."""
    return cast(
        "Callable[P, tuple[BitField, ...]]", cache(lambda *args, **named: (*make(*args, **named),))
    )


@cache
def _parsed(bits: str) -> tuple[int, int]:
    """Returns the lowest bit, and the number of bits."""
    high, _, low = bits.partition(":")
    return int(low or high), int(high) - int(low or high) + 1


@dataclass(frozen=True, slots=True)
class BitField:
    """A row of a register table.

    *bits*: as in specifications, "31:20" or "7", from bit 0 of the byte at *offset* on.
    *section*: of the specification.
    *lock*: of an RWL field.  It names a field of the same block that locks while it is not 0, or a
    name in `Registers.locks`."""

    name: str
    offset: int
    bits: str
    access: RegisterAttribute
    reset: int = 0
    section: str = ""
    lock: str = ""
    #: Its lowest bit, counted from the start of the block, and how many it has.
    low: int = field(init=False, repr=False)
    width: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        low, width = _parsed(self.bits)
        object.__setattr__(self, "low", self.offset * 8 + low)
        object.__setattr__(self, "width", width)
        if self.width < 1 or self.offset < 0 or not 0 <= self.reset <= self.largest:
            raise ValueError(f"{self.name}: bits {self.bits} cannot hold {self.reset:#x}")
        if (self.access is RWL) != bool(self.lock):
            raise ValueError(f"{self.name}: an RWL field has a lock, and no other has")

    @property
    def largest(self) -> int:
        return (1 << self.width) - 1


def placed(fields: Iterable[BitField], offset: int, prefix: str = "") -> Iterator[BitField]:
    """Yields the rows *offset* bytes further, with *prefix* before their names and their locks."""
    for row in fields:
        lock = prefix + row.lock if row.lock else ""
        yield replace(row, name=prefix + row.name, offset=row.offset + offset, lock=lock)


class Registers:
    """*size* bytes that behave as the rows in *fields* say.  Bits without a row are reserved: they
    read as 0 and take no write.

    `read` and `write` are for software, by offset.  `registers[name]` is for the hardware: it reads
    and sets any field, without handlers and access rules.

    >>> from nupa.cxl.registers.block import RO, RW1C, BitField, Registers
    >>> rows = BitField("id", 0, "15:0", RO, 0x1E98), BitField("error", 2, "3", RW1C)
    >>> status = Registers(rows, 4)
    >>> status["error"] = 1
    >>> hex(status.read(0, 4))
    '0x81e98'
    >>> status.write(2, 2, 0xFFFF)
    >>> status.dump()
    {'id': 7832, 'error': 0}
    """

    def __init__(
        self, fields: Iterable[BitField], size: int, widths: tuple[int, ...] = DEVICE_BYTES
    ) -> None:
        rows = tuple(fields)
        self.fields: Mapping[str, BitField] = {row.name: row for row in rows}
        if len(self.fields) < len(rows):
            raise ValueError("two fields have one name")
        self.size = size
        self.widths = widths
        #: name -> whether it holds now (not 0).  RWL fields are read only meanwhile.
        self.locks: dict[str, Callable[[], int]] = {
            row.lock: partial(self.__getitem__, row.lock) for row in rows if row.lock in self.fields
        }
        self._bytes = bytearray(size)
        self._sorted = sorted(rows, key=attrgetter("low"))
        self._lows = [row.low for row in self._sorted]
        self._resets = {row.name: row.reset for row in rows}
        self._handlers: dict[str, list[Handler]] = {}
        self._reset_handlers: list[Callable[[], None]] = []
        self._check_rows()
        self.reset()

    def _check_rows(self) -> None:
        """Raises ValueError if two rows overlap, or one is outside."""
        end, last = 0, ""
        for row in self._sorted:
            if row.low < end:
                raise ValueError(f"{row.name}: it overlaps {last}")
            end, last = row.low + row.width, row.name
        if end > self.size * 8:
            raise ValueError(f"{last}: it is outside of {self.size:#x} bytes")

    # Software

    def read(self, offset: int, size: int) -> int:
        """Reads *size* bytes as a number.  AccessError: outside, unaligned, or of a size that this
        block does not take."""
        check_access(offset, size, self.size, self.widths)
        return self.peek(offset, size)

    def write(self, offset: int, size: int, value: int) -> None:
        """Writes the low *size* bytes of *value* as each field allows.  Then calls the handlers of
        the touched fields, in the order of their bits.  AccessError as for `read`."""
        check_access(offset, size, self.size, self.widths)
        self.poke(offset, size, value)

    def peek(self, offset: int, size: int) -> int:
        """Reads after the access was checked (nupa.cxl.registers.space)."""
        return int.from_bytes(self._bytes[offset : offset + size], "little")

    def poke(self, offset: int, size: int, value: int) -> None:
        """Writes after the access was checked."""
        base, whole = offset * 8, (1 << size * 8) - 1
        value &= whole
        now = int.from_bytes(self._bytes[offset : offset + size], "little")
        calls: list[tuple[Handler, int, int]] = []
        new = now
        for row in self._touched(offset, size):
            low = row.low
            mask = _moved(row.largest << low, base) & whole
            if row.access.stored and not self._is_locked(row):
                if row.access in (RW1C, RW1CS):
                    new &= ~(value & mask)
                else:
                    new = new & ~mask | value & mask
            for handler in self._handlers.get(row.name, ()):
                old = self[row.name]
                kept = 0 if row.access in (RW1C, RW1CS) else old & ~_moved(mask, low - base)
                calls.append((handler, kept | _moved(value & mask, low - base), old))
        self._bytes[offset : offset + size] = new.to_bytes(size, "little")
        for handler, written, old in calls:
            handler(written, old)

    def _touched(self, offset: int, size: int) -> list[BitField]:
        """Returns the fields with a bit in these bytes, in the order of their bits."""
        first = bisect_right(self._lows, offset * 8)
        if first and self._sorted[first - 1].low + self._sorted[first - 1].width > offset * 8:
            first -= 1
        return self._sorted[first : bisect_left(self._lows, (offset + size) * 8)]

    def _is_locked(self, row: BitField) -> bool:
        if row.access is RWO:
            return self[row.name] != 0
        return row.access is RWL and bool(self.locks.get(row.lock, int)())

    # Hardware

    def __getitem__(self, name: str) -> int:
        row = self.fields[name]
        first, last = row.low // 8, (row.low + row.width + 7) // 8
        word = int.from_bytes(self._bytes[first:last], "little")
        return word >> row.low % 8 & row.largest

    def __setitem__(self, name: str, value: int) -> None:
        """Sets a field as the hardware.  ValueError: *value* does not fit."""
        row = self.fields[name]
        if not 0 <= value <= row.largest:
            raise ValueError(f"{name} has {row.width} bits: {value:#x} does not fit")
        first, last, shift = row.low // 8, (row.low + row.width + 7) // 8, row.low % 8
        word = int.from_bytes(self._bytes[first:last], "little")
        word = word & ~(row.largest << shift) | value << shift
        self._bytes[first:last] = word.to_bytes(last - first, "little")

    def on_write(self, name: str, handler: Handler) -> None:
        """Calls *handler* after each write of software that touches the field, with any access,
        also if it is read only or locked.  KeyError: no such field."""
        self._handlers.setdefault(self.fields[name].name, []).append(handler)

    def on_reset(self, handler: Callable[[], None]) -> None:
        """Calls *handler* after each reset, to update state beside the registers."""
        self._reset_handlers.append(handler)

    def preset(self, name: str, value: int) -> None:
        """Sets the reset value of a field, and its value, during assembly."""
        self[name] = value
        self._resets[name] = value

    def reset(self, *, hot: bool = False, cxl: bool = False) -> None:
        """Resets all fields.  A *hot* reset keeps sticky and HwInit fields; a *cxl* reset (CXL 3.1
        9.7, table 8-1) keeps RWO fields and locked RWL fields, too."""
        kept = {
            row.name
            for row in self.fields.values()
            if ((hot or cxl) and row.access in _STICKY)
            or (cxl and (row.access is RWO or self._is_locked(row)))
        }
        image = 0
        for name, row in self.fields.items():
            image |= (self[name] if name in kept else self._resets[name]) << row.low
        self._bytes[:] = image.to_bytes(self.size, "little")
        for handler in self._reset_handlers:
            handler()

    def dump(self) -> dict[str, int]:
        """Returns the value of each field, in the order of the rows."""
        return {name: self[name] for name in self.fields}

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)


def decode(fields: Iterable[BitField], image: bytes) -> dict[str, int]:
    """Returns the value of each field in the bytes of a block."""
    word = int.from_bytes(image, "little")
    return {row.name: word >> row.low & row.largest for row in fields}


def check_access(offset: int, size: int, total: int, widths: tuple[int, ...]) -> None:
    """Raises AccessError unless *size* is one of *widths*, and *offset* is a multiple of it in
    *total*."""
    if size not in widths or offset % size or not 0 <= offset <= total - size:
        raise AccessError(
            f"{size} bytes at {offset:#x}: there are {total:#x} bytes here, which take aligned "
            f"accesses of {', '.join(map(str, widths))} bytes"
        )


def _moved(word: int, down: int) -> int:
    """Shifts *word* down; up if *down* is negative."""
    return word >> down if down >= 0 else word << -down
