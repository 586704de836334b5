# SPDX-License-Identifier: BSD-3-Clause
"""Cases: a measured time, and what it was measured with; files and their bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nupa.model.engine.packets.protocol import PacketProtocol
from nupa.model.engine.packets.run import PacketTransfer, Run
from nupa.model.network.graph import Graph
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

    @property
    def network_name(self) -> str:
        return self.network.name


class PacketCase(NamedTuple):
    """A row whose contention only the packet engine has: transfers on a graph.

    *time_ns* is the time of a run that is compared.
    """

    label: str
    graph: Graph
    transfers: Sequence[PacketTransfer]
    protocol: PacketProtocol
    time_ns: Callable[[Run], float]
    measured_ns: float

    @property
    def network_name(self) -> str:
        return self.graph.name


AnyCase = Case | PacketCase
Reader = Callable[[Sequence[Line]], Iterator[AnyCase]]


class Threshold(NamedTuple):
    """The mean absolute relative error of time that the cases in *holds* may have.

    *each*: the largest error, in place of the mean.
    """

    name: str
    limit: float
    holds: Callable[[AnyCase], bool]
    each: bool = False


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


def each_by_packets(limit: float) -> Threshold:
    """Returns the bar of each single case of the packet engine."""
    return Threshold("each case", limit, lambda case: isinstance(case, PacketCase), each=True)


def at_least(size_bytes: int, limit: float) -> Threshold:
    """Returns the bar over the cases whose plan has that many bytes or more."""
    size = f"{size_bytes // MIB} MiB"

    def holds(case: AnyCase) -> bool:
        return isinstance(case, Case) and case.work.plan(case.network).bytes >= size_bytes

    return Threshold(f">= {size}", limit, holds)


def pair(profile: str, switches: int = 1) -> Network:
    """Returns two endpoints of a profile behind *switches*."""
    return Network(profile, (NetworkLevel("pair", 2, load(profile), switches),))
