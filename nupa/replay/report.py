# SPDX-License-Identifier: BSD-3-Clause
"""What came of a replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from nupa.base.errors import FabricError

DIFFERENCES_MAX = 10_000  # kept; all are counted


@dataclass(frozen=True, slots=True)
class Difference:
    """One request whose outcome is another.  *packet*: the number of its first packet in the
    capture, from 1, as Wireshark counts; *what*: status, read data, ...; then both sides."""

    packet: int
    request: str
    what: str
    captured: str
    came: str

    def __str__(self) -> str:
        return (
            f"packet {self.packet}: {self.request}\n"
            f"  {self.what}: the capture has {self.captured}; the replay got {self.came}"
        )


class ReplayDifferenceError(FabricError):
    """The fabric answered otherwise than the capture; `report` says where."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass
class Report:
    """The outcome of replay(): counts of requests, and the differences.

    played = matched + differed + not_comparable (of which nothing in the capture says what should
    have come).  *skipped*: requests that were not played, by reason; *left_out*: packets that are
    no part of a request, by reason; *notes*: what else was done, with counts.
    """

    path: str
    hosts: int = 0
    packets: int = 0
    played: int = 0
    matched: int = 0
    differed: int = 0
    not_comparable: int = 0
    partly: int = 0  # of those that matched: some of their bytes were not captured
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def raise_for_differences(self) -> Report:
        """Itself if all that could be compared matched; else ReplayDifferenceError, which says what
        differed: one line in a test is a regression test."""
        if self.differed:
            raise ReplayDifferenceError(self)
        return self

    def differs(self, differences: list[Difference]) -> None:
        """Counts one request, for all its differences."""
        self.differed += 1
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences += differences

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values: what `nupa replay --json` prints."""
        return {
            "path": self.path,
            "hosts": self.hosts,
            "packets": self.packets,
            "played": self.played,
            "matched": self.matched,
            "differed": self.differed,
            "not_comparable": self.not_comparable,
            "partly_compared": self.partly,
            "skipped": dict(self.skipped),
            "left_out": dict(self.left_out),
            "notes": dict(self.notes),
            "differences": [
                {name: getattr(difference, name) for name in Difference.__slots__}
                for difference in self.differences
            ],
        }

    def text(self, shown: int = 20) -> str:
        """For people; at most *shown* differences."""
        lines = [str(difference) for difference in self.differences[:shown]]
        if self.differed > shown:
            lines.append(f"... and {self.differed - shown} more")
        lines.append(
            f"{self.path}: {self.packets} packets, {self.played} requests played between "
            f"{self.hosts} hosts: {self.matched} matched, {self.differed} differed, "
            f"{self.not_comparable} could not be compared"
        )
        if self.partly:
            lines.append(f"  compared as far as captured: {self.partly} of those that matched")
        for title, counts in (
            ("requests not played", self.skipped),
            ("packets left out", self.left_out),
            ("notes", self.notes),
        ):
            lines.extend(f"  {title}: {count} {why}" for why, count in sorted(counts.items()))
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()
