# SPDX-License-Identifier: BSD-3-Clause
"""A line of the report, and the places where its two sides run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.links import Links
from benchmarks.machines import Machines
from nupa.programs.pair import run


@dataclass(frozen=True)
class Bench:
    """Where the cases run."""

    fabric: str
    cpus: tuple[int, int]
    hosts: tuple[str, str] = ("host0", "host1")
    #: Fewer iterations: to see that all works, not to compare.
    quick: bool = False
    #: Networks for the cases that need them; the maker of this object closes them.
    links: Links = field(default_factory=Links)
    #: Machines for the cases that need them, likewise.
    machines: Machines = field(default_factory=Machines)

    def iterations(self, count: int) -> str:
        return str(max(100, count // 20) if self.quick else count)


@dataclass(frozen=True)
class Target:
    """A target for the medians of a line; *met* gets both, the second is 0 without a reference."""

    text: str
    met: Callable[[float, float], bool]


def at_most(ratio: float) -> Target:
    return Target(f"<= {ratio:g} x", lambda value, reference: value <= ratio * reference)


def at_least(ratio: float) -> Target:
    return Target(f">= {ratio:g} x", lambda value, reference: value >= ratio * reference)


def no_more(limit: float) -> Target:
    return Target(f"<= {limit:,g}", lambda value, _: value <= limit)


def no_less(limit: float) -> Target:
    return Target(f">= {limit:,g}", lambda value, _: value >= limit)


@dataclass(frozen=True)
class Case:
    """One line: *measure* and *reference* return one sample each, in *unit*."""

    what: str
    unit: str
    target: Target | None
    measure: Callable[[Bench], float]
    reference_name: str = ""
    reference: Callable[[Bench], float] | None = None
    once: bool = False  #: whether it takes so long that one round must do


def output(argv: list[str], cpu: int) -> str:
    """Returns the output of a program on that CPU.  ProgramError: it failed."""
    return run(argv, cpu=cpu).check().stdout
