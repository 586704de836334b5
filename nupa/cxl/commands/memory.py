# SPDX-License-Identifier: BSD-3-Clause
"""Identify, partitions and labels: 40xx and 41xx (CXL 3.1 8.2.9.9.1 and 8.2.9.9.2)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nupa.cxl.function.cci import Command, Effect, at_least, exactly, require

UNIT_BYTES = 256 << 20
_IDENTIFY = struct.Struct("<16sQQQQHHHHI3sHBBH")
_INJECTS, _SCANS = 1 << 0, 1 << 1
_SET_PARTITION = struct.Struct("<QB")
_LABELS = struct.Struct("<II")


@dataclass(slots=True)
class Capacity:
    """The capacity of a device in bytes, in multiples of 256 MiB.  Capacity that is neither
    volatile only nor persistent only may be partitioned, in steps of *align_bytes* (0: none)."""

    total_bytes: int
    volatile_only_bytes: int
    persistent_only_bytes: int = 0
    align_bytes: int = 0
    #: The volatile part of partitionable capacity: now, and after the next cold reset.
    volatile_bytes: int = 0
    next_volatile_bytes: int | None = None

    def __post_init__(self) -> None:
        sizes = (self.total_bytes, self.volatile_only_bytes, self.persistent_only_bytes)
        odd = any(size % UNIT_BYTES for size in (*sizes, self.align_bytes, self.volatile_bytes))
        if (
            odd
            or self.partitionable_bytes < 0
            or bool(self.align_bytes) != bool(self.partitionable_bytes)
        ):
            raise ValueError(f"{self}: it does not add up in units of {UNIT_BYTES:#x} bytes")

    @property
    def partitionable_bytes(self) -> int:
        return self.total_bytes - self.volatile_only_bytes - self.persistent_only_bytes

    def cold_reset(self) -> None:
        if self.next_volatile_bytes is not None:
            self.volatile_bytes, self.next_volatile_bytes = self.next_volatile_bytes, None


class MemoryCommands:
    """Commands of identity, partitions and labels.  *revision*() is the firmware's; *event_limits*
    are those of the five logs."""

    def __init__(
        self,
        capacity: Capacity,
        *,
        revision: Callable[[], bytes],
        event_limits: Sequence[int],
        poison_limits: tuple[int, int],
        label_bytes: int = 64 << 10,
        payload_bytes: int,
    ) -> None:
        self.capacity = capacity
        self.labels = bytearray(label_bytes)
        self._revision = revision
        self._event_limits = tuple(event_limits)
        self._poison_limits = poison_limits
        self._payload_bytes = payload_bytes

    def commands(self) -> Iterator[Command]:
        partitions = Effect.CONFIG | Effect.DATA | Effect.CONFIG_AFTER_COLD_RESET
        yield Command(0x4000, "identify memory device", exactly(0), self._identify)
        yield Command(0x4100, "get partition info", exactly(0), self._partition)
        sizes = exactly(_SET_PARTITION.size)
        yield Command(0x4101, "set partition info", sizes, self._set_partition, partitions)
        yield Command(0x4102, "get LSA", exactly(_LABELS.size), self._get_labels, needs_media=True)
        sizes = at_least(_LABELS.size)
        yield Command(0x4103, "set LSA", sizes, self._set_labels, Effect.CONFIG | Effect.DATA, True)

    def _identify(self, _payload: bytes) -> bytes:
        capacity, limits = self.capacity, self._event_limits
        listed, injected = self._poison_limits
        return _IDENTIFY.pack(
            self._revision(),
            capacity.total_bytes // UNIT_BYTES,
            capacity.volatile_only_bytes // UNIT_BYTES,
            capacity.persistent_only_bytes // UNIT_BYTES,
            capacity.align_bytes // UNIT_BYTES,
            *limits[:4],
            len(self.labels),
            listed.to_bytes(3, "little"),
            injected,
            _INJECTS | _SCANS,
            0,
            limits[4],
        )

    def _partition(self, _payload: bytes) -> bytes:
        capacity = self.capacity
        following = capacity.next_volatile_bytes
        return struct.pack(
            "<QQQQ",
            *self._sizes(capacity.volatile_bytes),
            *(self._sizes(following) if following is not None else (0, 0)),
        )

    def _sizes(self, volatile_bytes: int) -> tuple[int, int]:
        capacity = self.capacity
        volatile = capacity.volatile_only_bytes + volatile_bytes
        return volatile // UNIT_BYTES, (capacity.total_bytes - volatile) // UNIT_BYTES

    def _set_partition(self, payload: bytes) -> bytes:
        units, flags = _SET_PARTITION.unpack(payload)
        capacity, wanted = self.capacity, units * UNIT_BYTES
        require(not flags & ~1, why=f"flags {flags:#x}")
        require(capacity.align_bytes, why="nothing may be partitioned")
        require(wanted <= capacity.partitionable_bytes, why=f"{wanted:#x} bytes")
        require(wanted % capacity.align_bytes == 0, why=f"{wanted:#x} bytes")
        if flags:
            capacity.volatile_bytes, capacity.next_volatile_bytes = wanted, None
        else:
            capacity.next_volatile_bytes = wanted
        return b""

    def _get_labels(self, payload: bytes) -> bytes:
        offset, length = _LABELS.unpack(payload)
        inside = offset + length <= len(self.labels) and length <= self._payload_bytes
        require(inside, why=f"{length} bytes at {offset} of {len(self.labels)}")
        return bytes(self.labels[offset : offset + length])

    def _set_labels(self, payload: bytes) -> bytes:
        offset, _reserved = _LABELS.unpack_from(payload)
        data = payload[_LABELS.size :]
        inside = offset + len(data) <= len(self.labels)
        require(inside, why=f"{len(data)} bytes at {offset} of {len(self.labels)}")
        self.labels[offset : offset + len(data)] = data
        return b""
