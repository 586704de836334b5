# SPDX-License-Identifier: BSD-3-Clause
"""Answers: a time, what it consists of, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

from nupa.model.errors import ModelError


class StageTime(NamedTuple):
    """A part of the time: "serialisation", "switch", …; the stages add up to the time."""

    name: str
    ns: float


class LinkLoad(NamedTuple):
    """Equal links: how many carry data, how much each, and for which part of the time."""

    name: str
    links: int
    bytes: float
    busy: float  #: 0 to 1


class TimelineSpan(NamedTuple):
    """An operation of a rank, for the timeline."""

    rank: int
    name: str
    start_ns: float
    ns: float


class SampleCheck(NamedTuple):
    """A sampled part in the packet engine, beside the same part in the answer's engine.

    *sample* says which part it was, and *note* what a large gap consists of.
    """

    sample: str
    time_ns: float
    packets_ns: float
    note: str = ""

    @property
    def gap(self) -> float:
        """Returns the packet engine's time over the other, less 1."""
        return self.packets_ns / self.time_ns - 1


@dataclass(frozen=True)
class Answer:
    """*low_ns* and *high_ns* follow from the ranges of the profiles' figures.

    *messages*: how many equal operations the time is of (perftest's iterations, times its
    *directions*).  *form*: the plan's, by which it is printed.  *seed*: of an engine that draws
    random numbers.  ModelError: the time is 0 or no number.
    """

    work: str
    network: str
    ranks: int
    bytes: int
    time_ns: float
    low_ns: float
    high_ns: float
    stages: tuple[StageTime, ...]
    algorithm: str
    reason: str
    engine: str
    engine_reason: str
    bus_factor: float = 1.0
    links: tuple[LinkLoad, ...] = ()
    energy_pj: float | None = None
    warnings: tuple[str, ...] = ()
    seed: int | None = None
    check: SampleCheck | None = None
    form: str = "time"
    messages: int = 1
    directions: int = 1
    spans: tuple[TimelineSpan, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not (isfinite(self.time_ns) and self.time_ns > 0):
            raise ModelError(
                f"{self.work} on {self.network}: the engine {self.engine} found a time of "
                f"{self.time_ns:g} ns: give a work that moves data or computes"
            )

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
        """Returns it as `--json` prints it, and as answer.schema.json describes it."""
        optional: dict[str, Any] = {"energy_pj": self.energy_pj, "seed": self.seed}
        if self.directions > 1:
            optional["directions"] = self.directions
        if self.check:
            optional["check"] = self.check._asdict() | {"gap": self.check.gap}
        return {
            "work": self.work,
            "network": self.network,
            "ranks": self.ranks,
            "bytes": self.bytes,
            "messages": self.messages,
            "time_ns": self.time_ns,
            "low_ns": self.low_ns,
            "high_ns": self.high_ns,
            "algbw_bytes_per_s": self.algbw_bytes_per_s,
            "busbw_bytes_per_s": self.busbw_bytes_per_s,
            "algorithm": self.algorithm,
            "reason": self.reason,
            "engine": self.engine,
            "engine_reason": self.engine_reason,
            "stages": [
                stage._asdict() | {"share": stage.ns / self.time_ns} for stage in self.stages
            ],
            "links": [link._asdict() for link in self.links],
            "warnings": list(self.warnings),
        } | {key: value for key, value in optional.items() if value is not None}
