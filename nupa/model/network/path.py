# SPDX-License-Identifier: BSD-3-Clause
"""Paths: the links and switches between two endpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nupa.model.errors import ModelError
from nupa.model.profile.figure import Case
from nupa.model.profile.profile import Profile, load, names


@dataclass(frozen=True)
class Cable:
    """A cable: *length_m* of a medium; no medium: its time and energy are in the profile."""

    medium: Profile | None = None
    length_m: float = 0.0

    def __post_init__(self) -> None:
        # Nominal in each case: a range of the reach is no reason to refuse the worst one.
        reach = self.medium.figures.get("reach") if self.medium else None
        if self.medium and reach and self.length_m > reach.value:
            raise ModelError(
                f"{self.medium.name} reaches {reach.value:g} m: {self.length_m:g} m was "
                f"asked: {_that_reach(self.length_m)}"
            )

    @property
    def latency_ns(self) -> float:
        if not self.medium:
            return 0.0
        return self.medium.get("conversion") + self.length_m * self.medium.get("propagation")

    @property
    def energy_pj_per_bit(self) -> float:
        return self.medium.get("energy") if self.medium else 0.0

    def at(self, case: Case) -> Cable:
        return replace(self, medium=self.medium.at(case)) if self.medium else self


#: The links of a profile whose latency and energy hold the medium's.
PLAIN = Cable()


@dataclass(frozen=True)
class Path:
    """Between two endpoints of one fabric: *switches* in a row, and a link more than those.

    *share* is the part of a port's rate that is left where a level is oversubscribed and busy.
    *ways*: ports of an endpoint, over which it spreads what it sends; see NetworkLevel.
    """

    profile: Profile
    switches: int
    links: tuple[Cable, ...]
    share: float = 1.0
    ways: float = 1.0

    def __post_init__(self) -> None:
        if len(self.links) != self.switches + 1:
            raise ModelError(f"{self.switches} switches need {self.switches + 1} links")

    def at(self, case: Case) -> Path:
        links = tuple(link.at(case) for link in self.links)
        return replace(self, profile=self.profile.at(case), links=links)


def _that_reach(length_m: float) -> str:
    """Names the media that reach so far, the cheapest first."""
    media = [load(name) for name in names("medium")]
    fit = [medium for medium in media if medium.get("reach") >= length_m]
    if not fit:
        farthest = max(media, key=lambda medium: medium.get("reach"), default=None)
        return "no medium does" + (
            f"; {farthest.name} reaches {farthest['reach']:g} m" if farthest else ""
        )
    fit.sort(key=lambda medium: (medium.get("price"), medium.get("energy")))
    return "choose " + " or ".join(medium.name for medium in fit)
