# SPDX-License-Identifier: BSD-3-Clause
"""The report of a replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from nupa.base.errors import FabricError

DIFFERENCES_MAX = 10_000  # that are kept; all are counted


@dataclass(frozen=True, slots=True)
class Difference:
    """One request with another outcome.

    *packet*: the number of its first packet in the capture, from 1, as in Wireshark; *what*:
    status, read data, ...; *captured* and *came*: the two outcomes.
    """

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
    """The fabric's outcomes differ from the capture; `report` has the differences."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass
class Report:
    """The outcome of replay(): counts of requests, and the differences.

    played = matched + differed + not_comparable (the capture has no outcome).  *skipped*: requests
    that were not played, by reason; *left_out*: packets that are not part of a request, by reason;
    *notes*: other counts.
    """

    path: str
    hosts: int = 0
    packets: int = 0
    played: int = 0
    matched: int = 0
    differed: int = 0
    not_comparable: int = 0
    partly: int = 0  # matched, but some of their bytes were not captured
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def raise_for_differences(self) -> Report:
        """Returns itself if all that could be compared matched; else ReplayDifferenceError.

        One such line in a test makes a regression test of a capture.
        """
        if self.differed:
            raise ReplayDifferenceError(self)
        return self

    def differs(self, differences: list[Difference]) -> None:
        """Counts one request, with all its differences."""
        self.differed += 1
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences += differences

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, for `nupa replay --json`."""
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
        """Prints the report with at most *shown* differences."""
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
