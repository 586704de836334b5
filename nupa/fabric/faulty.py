# SPDX-License-Identifier: BSD-3-Clause
"""Faults for the time of a `with` block."""

from __future__ import annotations

import errno
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa.base.errors import LocalError
from nupa.fabric.fault import Fault, FaultEntry, FaultKind

if TYPE_CHECKING:
    from types import TracebackType

    from nupa.fabric.fabric import Fabric


class FabricPort(NamedTuple):
    """A port and its fabric, as Fabric.port() returns them."""

    fabric: Fabric
    name: str


class Faulty:
    """A port with faults, which are cleared when the block ends, by an exception, too.

    port: from Fabric.port().  kinds: Fault values; or names of kinds, with *options* of Fault.
    rng: missing seeds are drawn from it.  An exception that leaves the block gets a note with all
    that repeats the faults.

    LocalError, FabricError: as Fabric.add_fault(); if one cannot be added, none is left.

    >>> from nupa.fabric import Fabric
    >>> with Fabric(hosts=2) as fabric, Faulty(fabric.port("host0"), "drop", probability=0.01) as f:
    ...     f.hits
    0
    """

    def __init__(
        self,
        port: FabricPort,
        *kinds: Fault | FaultKind | str,
        rng: Random | None = None,
        **options: Any,
    ) -> None:
        if not kinds:
            raise LocalError(f"no fault for {port.name}: name a kind or a Fault", errno.EINVAL)
        if options and any(isinstance(kind, Fault) for kind in kinds):
            raise LocalError(
                f"{', '.join(options)}: a Fault has its own; give options with names of kinds only",
                errno.EINVAL,
            )
        rng = rng or SystemRandom()
        self.port = port
        self.faults = tuple(
            (kind if isinstance(kind, Fault) else Fault(kind, **options)).seeded(rng)
            for kind in kinds
        )
        self._ids: list[int] = []
        self._last: dict[int, FaultEntry] = {}

    def __enter__(self) -> Faulty:
        if self._ids:
            raise LocalError(f"{self!r} is in use already: make another one", errno.EBUSY)
        self._last = {}
        try:
            for fault in self.faults:
                self._ids.append(self.port.fabric.add_fault(self.port.name, fault).id)
        except BaseException:
            self._clear()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"under {self!r}")
        self._clear()

    def _clear(self) -> None:
        try:
            self._look()
            for number in self._ids:
                # Another process may have cleared it, which does not matter.
                self.port.fabric.clear_fault(number)
        finally:
            self._ids = []

    @property
    def entries(self) -> tuple[FaultEntry, ...]:
        """Our entries in the table, in the order given; after the block, as they were at its
        end."""
        self._look()
        return tuple(self._last.values())

    @property
    def seen(self) -> int:
        """The number of packets that they judged."""
        return sum(entry.seen for entry in self.entries)

    @property
    def hits(self) -> int:
        """The number of packets that they affected."""
        return sum(entry.hits for entry in self.entries)

    def _look(self) -> None:
        if self._ids:
            found = {entry.id: entry for entry in self.port.fabric.faults()}
            self._last.update((number, found[number]) for number in self._ids if number in found)

    def __repr__(self) -> str:
        return f"Faulty({self.port.name}: {'; '.join(map(str, self.faults))})"
