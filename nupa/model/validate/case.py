# SPDX-License-Identifier: BSD-3-Clause
"""Cases: a measured time, and the work and network it was measured with; files and their bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nupa.model.network.network import Network, NetworkLevel
from nupa.model.profile.figure import Case as Figures
from nupa.model.profile.profile import load
from nupa.model.work.phase import Work

MIB = 1 << 20

#: One line of a file, by the names of its columns.
Line = Mapping[str, str]


class Case(NamedTuple):
    """A row of a file: what was done where, and how long it took.

    *figures*: the profiles' figures to predict with; "worst" is for a published 99th percentile.
    """

    label: str
    work: Work
    network: Network
    measured_ns: float
    figures: Figures = "nominal"


Reader = Callable[[Sequence[Line]], Iterator[Case]]


class Threshold(NamedTuple):
    """The mean absolute relative error of time that the cases in *holds* may have."""

    name: str
    limit: float
    holds: Callable[[Case], bool]


@dataclass(frozen=True)
class CalibrationFile:
    """A calibration file: how its lines become cases, and what is asked of them.

    *fitted*: figures of shipped profiles were fitted to it; otherwise it only judges.
    *left_out* says which lines no case is made of, and why; *missing* is the mechanism that the
    model lacks, where a bar is not met.
    """

    name: str
    read: Reader
    bars: tuple[Threshold, ...]
    fitted: bool = False
    left_out: str = ""
    missing: str = ""


def everything(limit: float) -> Threshold:
    """Returns the bar over all cases of a file."""
    return Threshold("full range", limit, lambda _case: True)


def at_least(size_bytes: int, limit: float) -> Threshold:
    """Returns the bar over the cases whose plan has that many bytes or more."""
    size = f"{size_bytes // MIB} MiB"
    return Threshold(
        f">= {size}", limit, lambda case: case.work.plan(case.network).bytes >= size_bytes
    )


def pair(profile: str, switches: int = 1) -> Network:
    """Returns two endpoints of a profile behind *switches*."""
    return Network(profile, (NetworkLevel("pair", 2, load(profile), switches),))
