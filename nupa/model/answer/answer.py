# SPDX-License-Identifier: BSD-3-Clause
"""Answers: a time, what it consists of, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Stage(NamedTuple):
    """A part of the time: "serialisation", "switch", …; the stages add up to the time."""

    name: str
    ns: float


class LinkLoad(NamedTuple):
    """Equal links: how many carry data, how much each, and for which part of the time."""

    name: str
    links: int
    bytes: float
    busy: float  #: 0 to 1


@dataclass(frozen=True)
class Answer:
    """*low_ns* and *high_ns* follow from the ranges of the profiles' figures.

    *gap*: the packet engine's time of a sampled part over this engine's, less 1 (`--check`).
    """

    work: str
    network: str
    ranks: int
    bytes: int
    time_ns: float
    low_ns: float
    high_ns: float
    stages: tuple[Stage, ...]
    algorithm: str
    reason: str
    engine: str
    engine_reason: str
    bus_factor: float = 1.0
    links: tuple[LinkLoad, ...] = ()
    energy_pj: float | None = None
    warnings: tuple[str, ...] = ()
    seed: int | None = None
    gap: float | None = None

    @property
    def algbw_bytes_per_s(self) -> float:
        """Returns bytes over time, as nccl-tests and perftest print it."""
        return self.bytes / self.time_ns * 1e9

    @property
    def busbw_bytes_per_s(self) -> float:
        return self.algbw_bytes_per_s * self.bus_factor

    def shares(self) -> Mapping[str, float]:
        """Returns the part of each stage, the largest first: they add up to 1."""
        ordered = sorted(self.stages, key=lambda stage: -stage.ns)
        return {stage.name: stage.ns / self.time_ns for stage in ordered}

    def shown(self) -> dict[str, Any]:
        """Returns it as `--json` prints it; times in ns, rates in bytes a second."""
        shown = {key: value for key, value in vars(self).items() if value not in (None, ())}
        shown["stages"] = [stage._asdict() for stage in self.stages]
        shown["links"] = [link._asdict() for link in self.links]
        return shown | {
            "algbw_bytes_per_s": self.algbw_bytes_per_s,
            "busbw_bytes_per_s": self.busbw_bytes_per_s,
        }
