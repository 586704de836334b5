# SPDX-License-Identifier: BSD-3-Clause
"""The records of a soak: links between workers, and figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .crew import Worker


class SoakError(Exception):
    """Something that must not happen in a soak."""


@dataclass
class LinkEnd:
    """One end of a link: *id* names it in its worker."""

    id: int
    worker: Worker
    address: str = ""
    ready: bool = False
    down: bool = False
    gone: bool = False

    @property
    def qp_numbers(self) -> set[int]:
        """Returns those of its QPs: one, or two with XRC (control.c, address)."""
        return {int(word) for word in self.address.split()[:2]}


@dataclass
class Link:
    """A connection of two workers, or of one with itself."""

    number: int
    service: str  #: UC, RC or XRC
    ends: tuple[LinkEnd, LinkEnd]
    made_ns: int
    running: bool = False
    dropped: bool = False  #: by us: all that its ends say is right now
    death_ns: int = 0  #: when one of its workers was ended
    progress: int = -1
    progress_ns: int = 0

    @property
    def reliable(self) -> bool:
        return self.service != "UC"

    @property
    def told(self) -> bool:
        """Whether all ends that are there noticed an end of it.

        They stay until their completions have been polled, behind those of all others.
        """
        return all(end.down for end in self.ends if not end.gone)

    @property
    def being_ended(self) -> bool:
        """Whether a process of it was told to end, and has yet to: it says no more of the link."""
        return any(end.worker.ended_by for end in self.ends if not end.gone)


@dataclass
class Figures:
    """The figures of a soak."""

    operations: int = 0
    bytes_checked: int = 0
    datagrams: int = 0
    dials: int = 0
    untold: int = 0
    links: Counter[str] = field(default_factory=Counter)  #: by service, and by what ends had
    strikes: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    hung: int = 0
    notices_ms: list[float] = field(default_factory=list)  #: from a death to the partner's error
    stalls_ms: list[float] = field(default_factory=list)  #: from SIGKILL until the kernel says so
    statuses: Counter[str] = field(default_factory=Counter)
    longest_dereg_s: float = 0.0
    leaked_fds: int = 0
    leaked_heap_bytes: int = 0
    leaked_slots: int = 0
    leaked_ring_bytes: int = 0
    leaked_segments: int = 0
    failures: list[str] = field(default_factory=list)
