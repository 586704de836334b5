# SPDX-License-Identifier: BSD-3-Clause
"""Networks by levels: a group of each level holds groups of the level below."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from nupa.model.errors import ModelError
from nupa.model.network.path import Link, Path
from nupa.model.profile.figure import Case
from nupa.model.profile.profile import Profile


@dataclass(frozen=True)
class Level:
    """One level of a network.

    *groups* of the level below (of endpoints, for the lowest) are joined by paths of *switches*
    over links of *profile*.  *taper* is the rate of all uplinks over that of all downlinks: 1 is
    non-blocking.  *planes* are parallel networks of the level, each with a port of an endpoint.
    """

    name: str
    groups: int
    profile: Profile
    switches: int = 1
    link: Link = Link()
    taper: float = 1.0
    planes: int = 1

    def path(self) -> Path:
        return Path(self.profile, self.switches, (self.link,) * (self.switches + 1), self.taper)


@dataclass(frozen=True)
class Network:
    """Levels, the lowest first.  Ranks are numbered so that neighbours share the lowest group."""

    name: str
    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        if not self.levels or any(level.groups < 1 for level in self.levels):
            raise ModelError(f"{self.name}: a network has levels, and each has groups")

    @cached_property
    def endpoints(self) -> int:
        return prod(level.groups for level in self.levels)

    def group_size(self, level: int) -> int:
        """Returns how many endpoints a group of levels[level] holds."""
        return prod(below.groups for below in self.levels[: level + 1])

    def level_between(self, a: int, b: int) -> int:
        """Returns the index of the lowest level of which one group holds both endpoints."""
        for end in (a, b):
            if not 0 <= end < self.endpoints:
                raise ModelError(f"{self.name} has endpoints 0 to {self.endpoints - 1}: not {end}")
        for index in range(len(self.levels)):
            if a // self.group_size(index) == b // self.group_size(index):
                return index
        raise AssertionError("the highest level has one group")

    def path(self, a: int, b: int) -> Path:
        return self.levels[self.level_between(a, b)].path()

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
        part = replace(self, levels=tuple(levels))
        if part.endpoints != ranks:
            raise ModelError(
                f"{ranks} ranks do not fill whole groups of {self.name}: {part.endpoints} would"
            )
        return part

    def at(self, case: Case) -> Network:
        return replace(
            self,
            levels=tuple(replace(lv, profile=lv.profile.at(case)) for lv in self.levels),
        )
