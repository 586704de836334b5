# SPDX-License-Identifier: BSD-3-Clause
"""Caches of hosts over shared memory, and the snoop filter that keeps them coherent.

csrc/cxl/snoop.h, csrc/cxl/cache.h.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError
from nupa.cxl.link.mem_tables import (
    BIRSP_OPCODES,
    BISNP_OPCODES,
    CHANNELS,
    DRS_OPCODES,
    NDR_OPCODES,
    REQ_OPCODES,
    RWD_OPCODES,
    MemChannel,
)
from nupa.cxl.media.parts import LINE_BYTES, Memory

_NO_CACHE = 64  # the host number of requesters without a cache
_CHUNK = 256


class MessageKind(NamedTuple):
    """The kind of a message: its channel (3.3.2), its opcode there, and its name."""

    channel: str
    opcode: int
    name: str


#: By enum nupa_cxl_kind, in its order.
KINDS = tuple(
    MessageKind(CHANNELS[channel], opcode, names[opcode])
    for channel, names, opcodes in (
        (MemChannel.M2S_REQ, REQ_OPCODES, (0, 1, 9, 10)),
        (MemChannel.M2S_RWD, RWD_OPCODES, (1, 2, 4)),
        (MemChannel.M2S_BIRSP, BIRSP_OPCODES, (0, 1, 2, 4, 5, 6)),
        (MemChannel.S2M_BISNP, BISNP_OPCODES, (0, 1, 2, 4, 5, 6)),
        (MemChannel.S2M_NDR, NDR_OPCODES, (0, 1, 2, 4)),
        (MemChannel.S2M_DRS, DRS_OPCODES, (0,)),
    )
    for opcode in opcodes
)


class Mesi(IntEnum):
    """The state of a line in a host's cache."""

    I = lib.NUPA_CXL_I  # noqa: E741 - its name
    S = lib.NUPA_CXL_S
    E = lib.NUPA_CXL_E
    M = lib.NUPA_CXL_M


class Directory(IntEnum):
    """The state of a line in the snoop filter, for a host: the encoding of meta values (3.3.5).  A:
    any."""

    I = lib.NUPA_CXL_META_I  # noqa: E741 - its name
    A = lib.NUPA_CXL_META_A
    S = lib.NUPA_CXL_META_S


class Snoop(IntEnum):
    """SnpType (3.3.5)."""

    NONE = lib.NUPA_CXL_SNP_NONE
    DATA = lib.NUPA_CXL_SNP_DATA
    CUR = lib.NUPA_CXL_SNP_CUR
    INV = lib.NUPA_CXL_SNP_INV


class SnoopMessage(NamedTuple):
    """A message between the device and *host* (None: a requester without a cache), for *lines*
    lines from *offset* on.

    *wanted* is the state that a request asks for, or the state that a write back leaves to the
    host.  It and *snoop* are None for responses."""

    kind: MessageKind
    host: int | None
    offset: int
    lines: int = 1
    wanted: Directory | None = None
    snoop: Snoop | None = None
    poison: bool = False

    def __str__(self) -> str:
        parts = [self.kind.channel, self.kind.name]
        if self.wanted is not None:
            parts.append(self.wanted.name)
        if self.snoop:
            parts.append(f"Snp{self.snoop.name.capitalize()}")
        parts.append(f"{self.offset:#x}")
        parts.append("no cache" if self.host is None else f"host {self.host}")
        return " ".join(parts)


class Counts(NamedTuple):
    """Messages by name, if there were any; *evictions* of entries for lack of room, one for each
    host that had the line; *entries* now."""

    messages: dict[str, int]
    evictions: int
    entries: int


class SnoopFilter:
    """The snoop filter of a device's *memory*: *sets* (a power of two) times *ways* lines may be
    cached at once.  It lasts as long as the memory.  When there is no room, the least recently
    requested line is taken back from its hosts.

    Accesses of requesters without a cache are coherent, too.  Accesses that bypass the model, such
    as `Memory.read`, see memory without the lines that are dirty in caches.  LocalError: the memory
    has a filter, or the shape is not possible."""

    def __init__(self, memory: Memory, *, sets: int = 1024, ways: int = 8) -> None:
        answer = lib.nupa_cxl_memory_set_snoop(memory.handle, _natural(sets), _natural(ways))
        _must(answer, f"a snoop filter of {sets} sets, {ways} ways")
        self.memory = memory

    def counts(self, host: int | None = None) -> Counts:
        """Counts the messages of *host*, or of all.  LocalError: no host has this number."""
        found = ffi.new("struct nupa_cxl_snoop_counts *")
        number = -1 if host is None else _natural(host)
        _must(lib.nupa_cxl_snoop_counts(self.memory.handle, number, found), f"host {host}")
        pairs = zip(KINDS, found.messages, strict=True)
        messages = {kind.name: int(count) for kind, count in pairs if count}
        return Counts(messages, int(found.evictions), int(found.entries))

    def state(self, host: int, offset: int) -> Directory:
        """Returns the state of the line at *offset*.  LocalError: no such host or line."""
        answer = lib.nupa_cxl_snoop_state(self.memory.handle, _natural(host), offset)
        _must(answer, f"state of {offset:#x} at host {host}")
        return Directory(answer)

    # Messages

    def trace(self, limit: int = 4096) -> None:
        """Keeps the next *limit* messages; 0: none.  LocalError: over a million."""
        _must(lib.nupa_cxl_snoop_trace(self.memory.handle, limit), f"a trace of {limit} messages")

    def take(self) -> list[SnoopMessage]:
        """Returns the messages that were kept, in their order.  LocalError: some had no room."""
        rows = ffi.new("struct nupa_cxl_trace[]", _CHUNK)
        missed = ffi.new("uint64_t *")
        found: list[SnoopMessage] = []
        while n := lib.nupa_cxl_snoop_take(self.memory.handle, rows, _CHUNK, missed):
            found += (_message(rows[i]) for i in range(n))
        if missed[0]:
            raise LocalError(f"{missed[0]} messages had no room in the trace: ask for a larger one")
        return found

    # The device itself

    def read(self, offset: int, size: int) -> bytes:
        """Reads what hosts have written, by BISnpCur; hosts keep their lines.  LocalError:
        outside."""
        found = bytearray(size)
        into = ffi.from_buffer(found)
        answer = lib.nupa_cxl_device_read(self.memory.handle, offset, into, size)
        _must(answer, f"read of {size} bytes at {offset:#x}")
        return bytes(found)

    def write(self, offset: int, data: bytes) -> None:
        """Writes by BISnpInv; hosts lose the lines.  LocalError: outside."""
        answer = lib.nupa_cxl_device_write(self.memory.handle, offset, data, len(data))
        _must(answer, f"write of {len(data)} bytes at {offset:#x}")

    def recall(self, offset: int, size: int, snoop: Snoop = Snoop.INV) -> None:
        """Snoops whole lines.  CUR: memory is brought up to date; DATA: hosts keep the lines in S;
        INV: hosts lose the lines.  LocalError: not whole lines inside, or NONE."""
        answer = lib.nupa_cxl_device_recall(self.memory.handle, offset, size, snoop)
        _must(answer, f"{snoop.name} of {size} bytes at {offset:#x}")


def has_filter(memory: Memory) -> bool:
    """Tells whether accesses that bypass the model may miss lines that are dirty in caches."""
    return int(lib.nupa_cxl_snoop_state(memory.handle, 0, 0)) >= 0


def _message(row: Any) -> SnoopMessage:
    kind = KINDS[row.kind]
    is_request = kind.channel in ("M2S Req", "M2S RwD") and kind.name != "BIConflict"
    return SnoopMessage(
        kind,
        None if row.host == _NO_CACHE else int(row.host),
        int(row.offset),
        int(row.lines),
        Directory(row.meta) if is_request else None,
        Snoop(row.snp) if is_request else None,
        bool(row.poison),
    )


class CacheCounts(NamedTuple):
    """Counters of a cache.

    *upgrades* are writes to lines in S.  *evictions* are for lack of room.  *snoops* counts those
    that found their line.  *lost* lines went with a link."""

    hits: int
    misses: int
    upgrades: int
    evictions: int
    write_backs: int
    snoops: int
    lost: int


class CacheShape(NamedTuple):
    """The shape of a bus's cache: *sets* (a power of two) times *ways* lines of 64 bytes.

    *host*: the cache's number in all filters, below 64 and unique.
    *tells*: the cache reports the eviction of clean lines (MemClnEvct)."""

    host: int
    sets: int = 64
    ways: int = 8
    tells: bool = False


class HostCache:
    """The cache of a bus in C, made by the bus: `Bus.cache`.  Memory without a filter is not
    cached, nor is memory of a filter in which another cache has the number."""

    def __init__(self, bus: Any, shape: CacheShape) -> None:
        self._bus = bus
        self.shape = shape
        if shape.sets < 1:
            raise LocalError(f"a cache of {shape.sets} sets: give at least one")
        self._set(shape.sets)

    def _set(self, sets: int) -> None:
        host, _, ways, tells = self.shape
        shape = {"host": _natural(host), "sets": sets, "ways": _natural(ways), "tells": tells}
        c_shape = ffi.new("struct nupa_cxl_cache_shape *", shape)
        _must(lib.nupa_cxl_bus_set_cache(self._open, c_shape), f"a cache as {self.shape}")

    def close(self) -> None:
        """Writes back all lines.  Requests go on without the cache."""
        if self._bus != ffi.NULL:
            self._set(0)
            self._bus = ffi.NULL

    @property
    def _open(self) -> Any:
        if self._bus == ffi.NULL:
            raise LocalError("the cache is closed, or its bus is: make another bus")
        return self._bus

    def flush(self, hpa: int | None = None, size: int = LINE_BYTES) -> None:
        """Writes back and drops all lines of this cache; with *hpa*, lines of these bytes in all
        caches.  LocalError: no memory is reached there."""
        if hpa is None:
            _must(lib.nupa_cxl_bus_flush(self._open), "flush")
            return
        result = lib.nupa_cxl_flush(self._open, hpa, size)
        if result.status != lib.NUPA_CXL_OK:
            raise LocalError(f"flush of {size} bytes at {hpa:#x}: no memory at {result.hpa:#x}")

    def state(self, hpa: int) -> Mesi:
        """Returns the state of the line at *hpa*.  LocalError: no memory is reached there."""
        answer = lib.nupa_cxl_cache_state(self._open, hpa)
        _must(answer, f"state of the line at {hpa:#x}")
        return Mesi(answer)

    def counts(self) -> CacheCounts:
        """Returns the counters since the cache was made."""
        found = ffi.new("struct nupa_cxl_cache_counts *")
        _must(lib.nupa_cxl_cache_counts(self._open, found), "counts")
        return CacheCounts(*(int(getattr(found, name)) for name in CacheCounts._fields))


def _natural(number: int) -> int:
    """Clamps a number to what C can be asked with; C refuses 2^31 - 1."""
    return number if 0 <= number < 1 << 31 else (1 << 31) - 1


def _must(answer: int, asked: str) -> None:
    """Raises LocalError for a negative errno."""
    if answer < 0:
        raise LocalError(f"{asked}: refused", -answer)
