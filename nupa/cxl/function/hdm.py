# SPDX-License-Identifier: BSD-3-Clause
"""HDM decoders: the checks and locks of a commit, and decoding (CXL 3.1 8.2.4.20)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nupa.cxl.function.interleave import GRANULARITIES, WAYS, Interleave
from nupa.cxl.registers.block import Registers
from nupa.cxl.registers.component_tables import DECODER_COUNTS, STEP_BITS, TARGETS

#: Address bits that may select a target, by capability (8.2.4.20.1).
_INTERLEAVE_BITS = {"interleave_11_8": range(8, 12), "interleave_14_12": range(12, 15)}


@dataclass(frozen=True, slots=True)
class Committed:
    """The values that a decoder was committed with, in bytes.

    The decoder uses these even if its registers change.  Host bridges and switches have *targets*,
    one for each way; devices have *dpa* and *skip*."""

    base: int
    size: int
    interleave: Interleave
    locked: bool
    targets: tuple[int, ...] = ()
    dpa: int = 0
    skip: int = 0

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def dpa_end(self) -> int:
        """The end of a device's own memory behind the decoder."""
        return self.dpa + self.size // self.interleave.ways

    def __contains__(self, hpa: int) -> bool:
        return self.base <= hpa < self.end


class CommitError(ValueError):
    """The reason of an Error Not Committed."""


class DecoderSet:
    """The decoders in *registers*, the "hdm" block of a component; *memory_bytes* is for devices.

    A write of Commit sets `committed` or `error` at once.  `decoders[n]` is what decoder n is
    committed with, or None.  A decommit takes effect in any order; other decoders keep their
    values."""

    def __init__(self, registers: Registers, memory_bytes: int = 0) -> None:
        self.registers = registers
        self.memory_bytes = memory_bytes
        self.is_device = "decoder0.dpa_skip" in registers.fields
        count = DECODER_COUNTS[registers["capability.decoder_count"]]
        self.decoders: list[Committed | None] = [None] * count
        #: Why the last commit of a decoder failed.
        self.errors: dict[int, str] = {}
        self._changed: list[Callable[[], None]] = []
        for number in range(count):
            registers.locks[f"decoder{number}.lock"] = partial(self._is_locked, number)
            registers.on_write(f"decoder{number}.commit", partial(self._write_commit, number))
        registers.on_write("control.enable", self._write_enable)
        registers.on_reset(self._reset)

    @property
    def enabled(self) -> bool:
        """Whether it decodes (8.2.4.20.2): a device once this bit is set; host bridges and switches
        always."""
        return not self.is_device or bool(self.registers["control.enable"])

    def find(self, hpa: int) -> Committed | None:
        """Returns the decoder of *hpa*; None: there is none, or decoding is not enabled."""
        if not self.enabled:
            return None
        return next((each for each in self.decoders if each and hpa in each), None)

    def on_change(self, handler: Callable[[], None]) -> None:
        """Calls *handler* after a decoder has changed."""
        self._changed.append(handler)

    # Writes of software, and resets

    def _is_locked(self, number: int) -> bool:
        there = self.decoders[number]
        return there is not None and there.locked

    def _write_commit(self, number: int, written: int, _old: int) -> None:
        there = self.decoders[number]
        if self._is_locked(number):
            return  # 8.2.4.20.13: until the next reset
        if not written:
            self.errors.pop(number, None)
            self._set(number, None)
        elif there is None:
            try:
                self._set(number, self._check(number))
                self.errors.pop(number, None)
            except CommitError as error:
                self.errors[number] = str(error)
                self.registers[f"decoder{number}.error"] = 1

    def _set(self, number: int, now: Committed | None) -> None:
        before, self.decoders[number] = self.decoders[number], now
        self.registers[f"decoder{number}.committed"] = int(now is not None)
        self.registers[f"decoder{number}.error"] = 0
        if before != now:
            self._tell()

    def _write_enable(self, written: int, old: int) -> None:
        if self.is_device and written != old:
            self._tell()

    def _reset(self) -> None:
        """Frees all decoders, except those that a CXL reset keeps locked."""
        for number, there in enumerate(self.decoders):
            kept = there is not None and bool(self.registers[f"decoder{number}.commit"])
            self.decoders[number] = there if kept else None
            self.registers[f"decoder{number}.committed"] = int(kept)
        self.errors.clear()
        self._tell()

    def _tell(self) -> None:
        for handler in self._changed:
            handler()

    # Checks of a commit: 8.2.4.20.12

    def _check(self, number: int) -> Committed:
        """Returns the programmed values of decoder *number*.  CommitError: it cannot be
        committed."""
        field = partial(self._field, number)
        interleave = self._interleave(field("ways"), field("granularity"))
        ways = interleave.ways
        base, size = field("base") << STEP_BITS, field("size") << STEP_BITS
        if (size >> STEP_BITS) % ways:
            raise CommitError(f"{size:#x} bytes are not a multiple of {ways} times 256 MiB")
        if base + size > 1 << 64:
            raise CommitError(f"{size:#x} bytes at {base:#x} do not end before 2**64")
        below, above = self.decoders[:number], self.decoders[number + 1 :]
        if None in below:
            raise CommitError(f"decoder {below.index(None)} is not committed: commit it first")
        last = below[-1] if below else None
        following = next((each for each in above if each), None)
        if last and base < last.end:
            raise CommitError(
                f"its base {base:#x} is below {last.end:#x}, the end of the one before"
            )
        if following and base + size > following.base:
            raise CommitError(f"its end is above {following.base:#x}, where a later one begins")
        now = Committed(base, size, interleave, bool(field("lock_on_commit")))
        if self.is_device:
            return self._place(now, field("dpa_skip") << STEP_BITS, last, following)
        return self._aim(now, tuple(field(f"target{i}") for i in range(min(ways, TARGETS))))

    def _field(self, number: int, name: str) -> int:
        return self.registers[f"decoder{number}.{name}"]

    def _interleave(self, code: int, granularity: int) -> Interleave:
        """Decodes 8.2.4.20.7, limited by the capabilities of this component (8.2.4.20.1)."""
        can = self.registers
        ways = WAYS.get(code)
        if ways is None or granularity >= len(GRANULARITIES):
            raise CommitError(f"ways {code} or granularity {granularity} are reserved encodings")
        needs = "3_6_12" if ways % 3 == 0 else "16" if ways == 16 else ""
        if needs and not can[f"capability.interleave_{needs}"]:
            raise CommitError(f"the component does not interleave {ways} ways")
        if not self.is_device and ways > can["capability.target_count"]:
            raise CommitError(f"{ways} ways exceed {can['capability.target_count']} targets")
        interleave = Interleave(ways, GRANULARITIES[granularity])
        choosing = range(interleave.shift, interleave.shift + interleave.bits)
        able = {
            bit
            for name, some in _INTERLEAVE_BITS.items()
            if can[f"capability.{name}"]
            for bit in some
        }
        if not able.issuperset(choosing):
            raise CommitError(f"address bits {choosing[-1]}:{choosing[0]} cannot select a target")
        return interleave

    def _place(
        self, now: Committed, skip: int, last: Committed | None, following: Committed | None
    ) -> Committed:
        """Places a device's decoder: its memory follows that of the decoder before, after the skip
        (8.2.4.20.9)."""
        dpa = (last.dpa_end if last else 0) + skip
        placed = Committed(now.base, now.size, now.interleave, now.locked, dpa=dpa, skip=skip)
        if placed.dpa_end > self.memory_bytes:
            raise CommitError(f"its memory ends at {placed.dpa_end:#x} of {self.memory_bytes:#x}")
        if following and placed.dpa_end > following.dpa - following.skip:
            raise CommitError("its memory overlaps that of a later decoder")
        return placed

    def _aim(self, now: Committed, targets: tuple[int, ...]) -> Committed:
        """Checks the targets of a host bridge or switch: one for each way (8.2.4.20.8)."""
        if len(set(targets)) < len(targets):
            raise CommitError(f"targets {', '.join(map(str, targets))} are not distinct")
        return Committed(now.base, now.size, now.interleave, now.locked, targets)
