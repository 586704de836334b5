# SPDX-License-Identifier: BSD-3-Clause
"""Faults, and the table of them in the segment (csrc/engine/fault/fault.h, layout.h).

KINDS has the options of each kind.
"""

from __future__ import annotations

import errno
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa._engine import ffi, lib
from nupa.base import quantity
from nupa.base.errors import LocalError
from nupa.core.segment import WHY_BYTES, PortInfo, Segment, check, text

if TYPE_CHECKING:
    from random import Random

_MS = 1_000_000
_U64_MAX = (1 << 64) - 1
# Short enough to be typed, and exact in the doubles of JSON.
_SEED_BITS = 32


class FaultKind(StrEnum):
    """Named as in `enum nupa_fault_kind`."""

    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    DELAY = "delay"
    CORRUPT = "corrupt"
    POISON = "poison"
    FLAP = "flap"
    BANDWIDTH = "bandwidth"
    STUCK = "stuck"
    KILL = "kill"
    TIMEOUT = "timeout"


class KindInfo(NamedTuple):
    """The effect of a kind, in hardware's terms, and its options with their defaults."""

    what: str
    options: tuple[str, ...]
    count: int = 0  # type: ignore[assignment]  # hides tuple.count
    duration_ns: int = 0
    #: The meaning of its duration.
    duration: str = ""


_WHICH = ("probability", "count", "after", "seed", "for")
_TIMED = (*_WHICH, "duration")

KINDS = {
    FaultKind.DROP: KindInfo("a packet is lost on the link", _WHICH),
    FaultKind.DUPLICATE: KindInfo("a packet arrives twice", _WHICH),
    FaultKind.REORDER: KindInfo(
        "a packet arrives behind the one after it", _TIMED, 0, _MS, "how long it waits for that one"
    ),
    FaultKind.DELAY: KindInfo(
        "a packet takes longer; later packets wait", _TIMED, 0, _MS, "how much longer"
    ),
    FaultKind.CORRUPT: KindInfo(
        "a packet's bits flip: the link's CRC finds it, and the link sends it again",
        _TIMED,
        0,
        _MS // 100,
        "how long that takes",
    ),
    FaultKind.POISON: KindInfo(
        "data arrives marked bad (CXL poison): a remote operation error, for UC and UD a loss",
        _WHICH,
    ),
    FaultKind.FLAP: KindInfo(
        "the link goes down, and comes up again", _TIMED, 1, 100 * _MS, "how long it is down"
    ),
    FaultKind.BANDWIDTH: KindInfo("packets pass at a limited rate", ("rate", "for")),
    FaultKind.STUCK: KindInfo(
        "the adapter of the sender stops completing requests of that queue pair",
        _TIMED,
        1,
        0,
        "for how long; 0: until the fault is cleared",
    ),
    FaultKind.KILL: KindInfo("the queue pair that a packet is for goes to error", _WHICH, 1),
    FaultKind.TIMEOUT: KindInfo(
        "a packet that its receiver does not take within the QP's timeout is lost", ("for",)
    ),
}


class _Fields(NamedTuple):
    kind: FaultKind
    probability: float = 1.0
    count: int = 0  # type: ignore[assignment]  # hides tuple.count; 0: no end
    after: int = 0
    for_ns: int = 0  # 0: until it is cleared
    duration_ns: int = 0
    bytes_per_s: int = 0
    seed: int | None = None


class Fault(_Fields):
    """A fault, without its place; immutable.

    probability: of each packet, 0.01 or "1%".  after: packets that pass first.  count: the number
    of hits, 0 for no limit.  for_: how long the fault lasts; duration: how long its effect lasts;
    both in seconds, or text as "50ms".  rate: bytes a second, or "10MB/s".  seed: decides which
    packets are hit; None: drawn when the fault is added.  Defaults are in KINDS.

    LocalError: an invalid value, an option that the kind does not take, a bandwidth without a rate.

    >>> Fault("delay", duration="2ms", probability="10%", seed=7)
    delay of 2ms, probability 10%, seed 7
    """

    __slots__ = ()

    def __new__(
        cls,
        kind: FaultKind | str,
        *,
        probability: float | str | None = None,
        count: int | None = None,
        after: int | None = None,
        for_: float | str | None = None,
        duration: float | str | None = None,
        rate: float | str | None = None,
        seed: int | None = None,
    ) -> Fault:
        kind = _kind(kind)
        info = KINDS[kind]
        given = {
            "probability": probability,
            "count": count,
            "after": after,
            "seed": seed,
            "for": for_,
            "duration": duration,
            "rate": rate,
        }
        for name, value in given.items():
            if value is not None and name not in info.options:
                raise LocalError(
                    f"{kind} takes no {name}: it takes {', '.join(info.options)}", errno.EINVAL
                )
        if kind is FaultKind.BANDWIDTH and rate is None:
            raise LocalError(f"{kind} needs a rate: 10MB/s, 1GiB/s or 10Gb/s", errno.EINVAL)
        return super().__new__(
            cls,
            kind,
            1.0 if probability is None else quantity.probability(probability),
            info.count if count is None else _u64("count", count),
            0 if after is None else _u64("after", after),
            0 if for_ is None else quantity.nanoseconds(for_),
            info.duration_ns if duration is None else quantity.nanoseconds(duration),
            0 if rate is None else quantity.bytes_per_s(rate),
            None if seed is None else _u64("seed", seed),
        )

    def seeded(self, rng: Random) -> Fault:
        """Returns it with a seed: its own, else one drawn from *rng*."""
        return self if self.seed is not None else self._replace(seed=rng.getrandbits(_SEED_BITS))

    @property
    def options(self) -> dict[str, str]:
        """The options that differ from KINDS, and the seed, as on the command line: {"count": "3"}.

        Fault(kind, **options), with these names mapped to parameters, is an equal fault.
        """
        info, found = KINDS[self.kind], {}
        if quantity.in_steps(self.probability) != quantity.ALWAYS:
            found["probability"] = quantity.say_probability(self.probability)
        if self.count != info.count:
            found["count"] = str(self.count)
        if self.after:
            found["after"] = str(self.after)
        if self.for_ns:
            found["for"] = quantity.say_time(self.for_ns)
        if self.duration_ns != info.duration_ns:
            found["duration"] = quantity.say_time(self.duration_ns)
        if self.bytes_per_s:
            found["rate"] = quantity.say_rate(self.bytes_per_s)
        if self.seed is not None and "seed" in info.options:
            found["seed"] = str(self.seed)
        return found

    @property
    def parameters(self) -> str:
        """All options but kind and seed, in words: "probability 1%, 3 times"."""
        found = []
        if self.bytes_per_s:
            found.append(f"at most {quantity.say_rate(self.bytes_per_s)}")
        if self.duration_ns:
            found.append(f"of {quantity.say_time(self.duration_ns)}")
        if quantity.in_steps(self.probability) != quantity.ALWAYS:
            found.append(f"probability {quantity.say_probability(self.probability)}")
        if self.after:
            found.append(f"after {self.after}")
        if self.count:
            found.append("once" if self.count == 1 else f"{self.count} times")
        return ", ".join(found)

    def __repr__(self) -> str:
        seed = f", seed {self.seed}" if "seed" in self.options else ""
        return f"{self.kind} {self.parameters}".rstrip() + seed

    __str__ = __repr__


class FaultEntry(NamedTuple):
    """A fault in the table.  fault.for_ns is the rest of its time.

    seen: packets that it judged; hits: packets that it affected; ended: its time is over, or its
    hits are used up.
    """

    id: int
    port: str
    fault: Fault
    seen: int
    hits: int
    ended: bool

    @property
    def left(self) -> str:
        """The rest of its life: "2 hits", "1.5 s", both, "until cleared", or "ended"."""
        if self.ended:
            return "ended"
        found = []
        if self.fault.count:
            hits = max(self.fault.count - self.hits, 0)
            found.append(f"{hits} hit" if hits == 1 else f"{hits} hits")
        if self.fault.for_ns:
            found.append(f"{self.fault.for_ns / 1e9:.3g} s")
        return ", ".join(found) or "until cleared"

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, as `nupa fault ls --json` prints them."""
        fault = self.fault._asdict() | {"kind": self.fault.kind.value}
        counts = {"seen": self.seen, "hits": self.hits, "ended": self.ended}
        return {"id": self.id, "port": self.port, **fault, **counts}


def add(segment: Segment, port: PortInfo, fault: Fault) -> int:
    """Adds a fault that has its seed to a port; returns its number.

    The caller holds the control lock.
    LocalError: C refuses a value (EINVAL); FabricError: the table is full (ENOSPC).
    """
    info = ffi.new("struct nupa_fault_info *")
    info.kind = _number(fault.kind)
    info.port = port.index
    info.probability = quantity.in_steps(fault.probability)
    info.seed = fault.seed or 0
    for name in ("after", "count", "for_ns", "duration_ns", "bytes_per_s"):
        setattr(info, name, getattr(fault, name))
    why = ffi.new("char[]", WHY_BYTES)
    found = lib.nupa_fault_add(segment.handle, info, why, WHY_BYTES)
    return check(found, f"cannot add {fault.kind} to {port.name}", text(why))


def clear(segment: Segment, number: int) -> bool:
    """Clears a fault, 0: all; returns whether it was there.  The caller holds the control lock."""
    if not 0 <= number < 1 << 32:
        return False  # no fault has this id
    rc = lib.nupa_fault_clear(segment.handle, number)
    return rc != -errno.ENOENT and check(rc, f"cannot clear fault {number}") == 0


def entries(segment: Segment) -> list[FaultEntry]:
    """Lists the table, oldest first."""
    room = lib.nupa_fault_list(segment.handle, ffi.NULL, 0)
    infos = ffi.new("struct nupa_fault_info[]", room)
    found = min(room, lib.nupa_fault_list(segment.handle, infos, room))
    ports = segment.ports()
    kinds = {_number(kind): kind for kind in FaultKind}
    # Shared memory: entries that we cannot have written are skipped.
    known = [info for info in infos[0:found] if info.kind in kinds and info.port < len(ports)]
    return [_entry(info, kinds[info.kind], ports[info.port].name) for info in known]


def _entry(info: Any, kind: FaultKind, port: str) -> FaultEntry:
    fields = _Fields(
        kind,
        info.probability / quantity.ALWAYS,
        info.count,
        info.after,
        info.for_ns,
        info.duration_ns,
        info.bytes_per_s,
        info.seed,
    )
    return FaultEntry(info.id, port, Fault._make(fields), info.seen, info.hits, bool(info.ended))


def _number(kind: FaultKind) -> int:
    return int(getattr(lib, f"NUPA_FAULT_{kind.name}"))


def _kind(name: FaultKind | str) -> FaultKind:
    try:
        return FaultKind(name)
    except ValueError:
        known = ", ".join(FaultKind)
        message = f"{name!r} is not a kind of fault: there are {known}"
        raise LocalError(message, errno.EINVAL) from None


def _u64(name: str, value: int) -> int:
    if not isinstance(value, int) or not 0 <= value <= _U64_MAX:
        message = f"{name} is {value!r}: give a whole number from 0 to 2^64 - 1"
        raise LocalError(message, errno.EINVAL)
    return value
