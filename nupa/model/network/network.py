# SPDX-License-Identifier: BSD-3-Clause
"""Networks by levels: a group of each level holds groups of the level below."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from operator import mul

from nupa.model.errors import ModelError
from nupa.model.network.graph import Graph
from nupa.model.network.path import PLAIN, Cable, Path
from nupa.model.profile.figure import Case
from nupa.model.profile.profile import Profile


@dataclass(frozen=True)
class NetworkLevel:
    """One level of a network.

    *groups* of the level below (of endpoints, for the lowest) are joined by paths of *switches*
    over links of *profile*.  *taper* is the rate out of a group of the level below over that of the
    ports of its endpoints: 1 is non-blocking.  *planes* are parallel networks of the level, each
    with a port of an endpoint.  *nics* are the adapters of an endpoint: 0.5 where two share one.

    *stacked*: its links begin at the switches of the level below, whose ports it uses; otherwise
    the level is a network of its own, with ports of its own at the endpoints.  *mesh*: its groups
    are linked directly, each with each.  *rails*: its first switches join the endpoints that have
    the same place in their group below.
    """

    name: str
    groups: int
    profile: Profile
    switches: int = 1
    link: Cable = PLAIN
    taper: float = 1.0
    planes: int = 1
    nics: float = 1.0
    stacked: bool = False
    mesh: bool = False
    rails: bool = False

    @property
    def ways(self) -> float:
        """Returns how many ports of the level an endpoint has; below 1 where some share one."""
        return self.profile.get("ports", 1.0) * self.planes * self.nics

    @property
    def port_bytes_per_s(self) -> float:
        """Returns what an endpoint sends over all its ports of the level, headers included."""
        return self.profile["rate"] * self.profile.get("efficiency", 1.0) * self.ways

    def path(self) -> Path:
        return Path(self.profile, self.switches, (self.link,) * (self.switches + 1), self.taper)


@dataclass(frozen=True)
class Network:
    """Levels, the lowest first.  Ranks are numbered so that neighbours share the lowest group.

    *drawn* is its graph, where it was read from a file that has one; `build.graph` makes others.
    *notes* are printed with answers: how the network differs from the one that was asked for.
    """

    name: str
    levels: tuple[NetworkLevel, ...]
    drawn: Graph | None = field(default=None, compare=False, repr=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.levels or any(level.groups < 1 for level in self.levels):
            raise ModelError(f"{self.name}: a network has levels, and each has groups")
        for index, level in enumerate(self.levels):
            whole = isinstance(level.planes, int)
            if min(level.taper, level.planes, level.nics) <= 0 or level.switches < 0 or not whole:
                raise ModelError(
                    f"{self.name}: {level.name}: taper {level.taper:g}, {level.planes} planes and "
                    f"{level.nics:g} adapters: give numbers above 0"
                )
            if level.stacked and (
                not index or level.switches < self.levels[index - 1].switches + 1
            ):
                raise ModelError(
                    f"{self.name}: {level.name} is stacked: a path over it has more switches than "
                    "one over the level below"
                )

    @cached_property
    def endpoints(self) -> int:
        return prod(level.groups for level in self.levels)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(accumulate((level.groups for level in self.levels), mul))

    def group_size(self, level: int) -> int:
        """Returns how many endpoints a group of levels[level] holds."""
        return self._sizes[level]

    def level_between(self, a: int, b: int) -> int:
        """Returns the index of the lowest level of which one group holds both endpoints."""
        for end in (a, b):
            if not 0 <= end < self.endpoints:
                raise ModelError(f"{self.name} has endpoints 0 to {self.endpoints - 1}: not {end}")
        for index, size in enumerate(self._sizes):
            if a // size == b // size:
                return index
        raise AssertionError("the highest level has one group")

    def base(self, level: int) -> int:
        """Returns the index of the level whose ports a transfer over levels[level] uses."""
        while self.levels[level].stacked:
            level -= 1
        return level

    def level_path(self, level: int) -> Path:
        """Returns the path between two endpoints whose lowest common level it is."""
        top = self.levels[level]
        links: tuple[Cable, ...] = ()
        for below in self.levels[self.base(level) : level + 1]:
            more = (below.link,) * (below.switches + 1 - len(links))
            half = len(links) // 2
            links = (*links[:half], *more, *links[half:])
        share = min(below.taper for below in self.levels[self.base(level) : level + 1])
        ways = self.levels[self.base(level)].ways
        return Path(top.profile, top.switches, links, min(1.0, share), ways)

    def path(self, a: int, b: int) -> Path:
        return self.level_path(self.level_between(a, b))

    def first(self, ranks: int) -> Network:
        """Returns the part that the first *ranks* endpoints use.  ModelError: it has fewer."""
        if not 1 <= ranks <= self.endpoints:
            raise ModelError(
                f"{self.name} has {self.endpoints} endpoints: {ranks} ranks were asked"
            )
        levels = []
        for index, level in enumerate(self.levels):
            below = self.group_size(index) // level.groups
            levels.append(replace(level, groups=min(level.groups, -(-ranks // below))))
        if ranks == self.endpoints:
            return self
        part = replace(self, levels=tuple(levels), drawn=None)
        if part.endpoints != ranks:
            raise ModelError(
                f"{ranks} ranks do not fill whole groups of {self.name}: {part.endpoints} would"
            )
        return part

    def at(self, case: Case) -> Network:
        return replace(
            self,
            levels=tuple(
                replace(lv, profile=lv.profile.at(case), link=lv.link.at(case))
                for lv in self.levels
            ),
        )
