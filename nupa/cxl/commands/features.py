# SPDX-License-Identifier: BSD-3-Clause
"""Features, 05xx (CXL 3.1 8.2.9.6): a list of them, and their attributes in parts."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from nupa.cxl.function.cci import Code, Command, Effect, at_least, exactly, require

#: 8.2.9.9.11.1
PATROL_SCRUB = UUID("96dad7d6-fde8-482b-a733-75774e06db8a")
_LIST = struct.Struct("<IHxx")
_LIST_HEAD = struct.Struct("<HH4x")
_ENTRY = struct.Struct("<16sHHHIBBH18x")
_GET = struct.Struct("<16sHHB")
_SET = struct.Struct("<16sIHB9x")
_CHANGEABLE, _DEFAULT, _SAVED = 1 << 0, 1 << 5, 1 << 6
_ACTION, _SAVE = 0b111, 1 << 3
_SELECTIONS = 3
_SCRUB_CHANGEABLE = 1 << 0


class FeatureAction(IntEnum):
    FULL = 0
    INITIATE = 1
    CONTINUE = 2
    FINISH = 3
    ABORT = 4


@dataclass(slots=True)
class Feature:
    """A feature.  Get Feature gives *default* at first.  *apply*(now, written) returns what it
    gives after software has written *set_bytes* bytes; it refuses bad values."""

    uuid: UUID
    default: bytes
    set_bytes: int
    apply: Callable[[bytes, bytes], bytes]
    effects: Effect = Effect.CONFIG
    version: int = 1
    current: bytes = field(init=False)
    saved: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.current = self.saved = self.default

    def select(self, selection: int) -> bytes:
        require(selection < _SELECTIONS, Code.UNSUPPORTED_FEATURE_SELECTION, str(selection))
        return (self.current, self.default, self.saved)[selection]


def patrol_scrub(hours: int = 12, *, least_hours: int = 1) -> Feature:
    """Makes the patrol scrub feature (8.2.9.9.11.1): the cycle, in hours, and whether it is on."""

    def apply(now: bytes, written: bytes) -> bytes:
        cycle, flags = written
        require(cycle >= least_hours, why=f"{cycle} hours, not {least_hours} or more")
        require(not flags & ~1, why=f"flags {flags:#x}")
        return bytes([now[0], cycle, now[2], flags])

    return Feature(PATROL_SCRUB, bytes([_SCRUB_CHANGEABLE, hours, least_hours, 1]), 2, apply)


class Features:
    """The features of a device, in the order of *features*."""

    def __init__(self, features: Iterable[Feature], payload_bytes: int) -> None:
        self._features = {feature.uuid.bytes: feature for feature in features}
        self._payload_bytes = payload_bytes
        self._transfer: tuple[Feature, bytearray] | None = None

    def __getitem__(self, uuid: UUID) -> Feature:
        return self._features[uuid.bytes]

    def reset(self) -> None:
        """Makes saved attributes current; forgets a transfer."""
        self._transfer = None
        for feature in self._features.values():
            feature.current = feature.saved

    def commands(self) -> Iterator[Command]:
        changes = Effect.CONFIG | Effect.POLICY
        yield Command(0x0500, "get supported features", exactly(_LIST.size), self._list)
        yield Command(0x0501, "get feature", exactly(_GET.size), self._get)
        yield Command(0x0502, "set feature", at_least(_SET.size), self._set, changes)

    def _find(self, uuid: bytes) -> Feature:
        require(uuid in self._features, Code.UNSUPPORTED, f"feature {UUID(bytes=uuid)}")
        return self._features[uuid]

    def _list(self, payload: bytes) -> bytes:
        most, first = _LIST.unpack(payload)
        require(most >= _LIST_HEAD.size, why=f"{most} bytes hold no answer")
        require(first < len(self._features) or not first, why=f"feature {first}")
        room = (min(most, self._payload_bytes) - _LIST_HEAD.size) // _ENTRY.size
        listed = list(enumerate(self._features.values()))[first : first + room]
        return _LIST_HEAD.pack(len(listed), len(self._features)) + b"".join(
            _ENTRY.pack(
                feature.uuid.bytes,
                index,
                len(feature.default),
                feature.set_bytes,
                _CHANGEABLE | _DEFAULT | _SAVED,
                feature.version,
                feature.version,
                feature.effects,
            )
            for index, feature in listed
        )

    def _get(self, payload: bytes) -> bytes:
        uuid, offset, count, selection = _GET.unpack(payload)
        data = self._find(uuid).select(selection)
        inside = count and offset + count <= len(data) and count <= self._payload_bytes
        require(inside, why=f"{count} bytes at {offset} of {len(data)}")
        return data[offset : offset + count]

    def _set(self, payload: bytes) -> bytes:
        uuid, flags, offset, version = _SET.unpack_from(payload)
        data, number = payload[_SET.size :], flags & _ACTION
        feature = self._find(uuid)
        require(number in FeatureAction.__members__.values(), why=f"action {number}")
        action = FeatureAction(number)
        require(version == feature.version, Code.UNSUPPORTED_FEATURE_VERSION, str(version))
        under_way = self._transfer
        if action is FeatureAction.ABORT:
            require(under_way and under_way[0] is feature, Code.FEATURE_TRANSFER_OUT_OF_ORDER)
            self._transfer = None
            return b""
        if action in (FeatureAction.FULL, FeatureAction.INITIATE):
            require(under_way is None, Code.FEATURE_TRANSFER_IN_PROGRESS)
            under_way = (feature, bytearray())
        require(under_way and under_way[0] is feature, Code.FEATURE_TRANSFER_OUT_OF_ORDER)
        assert under_way is not None
        before = under_way[1]
        require(offset == len(before), Code.FEATURE_TRANSFER_OUT_OF_ORDER, f"offset {offset}")
        whole = bytes(before) + data
        if action in (FeatureAction.INITIATE, FeatureAction.CONTINUE):
            require(data and len(whole) <= feature.set_bytes, why=f"{len(whole)} bytes")
            self._transfer = (feature, bytearray(whole))
            return b""
        right = len(whole) == feature.set_bytes
        require(right, Code.INVALID_PAYLOAD_LENGTH, f"{len(whole)} bytes of {feature.set_bytes}")
        feature.current = feature.apply(feature.current, whole)
        if flags & _SAVE:
            feature.saved = feature.current
        self._transfer = None
        return b""
