# SPDX-License-Identifier: BSD-3-Clause
"""Energy of paths, and the power of a network at full rate, by medium.

A bit pays each link's medium (both ends), each switch and both adapters.  Power assumes that all
ports send at full rate in both directions: transceivers hardly save when they are idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.network.path import Cable, Path
from nupa.model.profile.profile import Profile, load, names

BITS = 8
#: A transceiver of 800 Gb/s; slower ports have one of their own rate.
MODULE_BYTES_PER_S = 1e11


class Energy(NamedTuple):
    """pJ for a bit."""

    media: float
    switches: float
    adapters: float

    @property
    def total(self) -> float:
        return self.media + self.switches + self.adapters


class Tier(NamedTuple):
    """The cables of one level, whose ends are ports of *rate* bytes/s."""

    level: str
    medium: str
    length_m: float
    cables: int
    modules: int  #: transceivers, or plugs, at both ends
    rate: float
    watts: float


class Power(NamedTuple):
    """Watts at full rate."""

    tiers: tuple[Tier, ...]
    switches_watts: float | None  #: None: a profile does not say
    adapters_watts: float | None

    @property
    def media_watts(self) -> float:
        return sum(tier.watts for tier in self.tiers)

    @property
    def modules(self) -> int:
        return sum(tier.modules for tier in self.tiers)

    @property
    def watts(self) -> float | None:
        """Returns the sum; None: a part is not known."""
        if self.switches_watts is None or self.adapters_watts is None:
            return None
        return self.media_watts + self.switches_watts + self.adapters_watts


def path_energy(path: Path) -> Energy:
    """Returns what a bit takes over a path.

    Figures that are missing count as 0: `energy_is_known` says whether there are such.
    """
    profile = path.profile
    return Energy(
        sum(link.energy_pj_per_bit for link in path.links),
        path.switches * profile.get("switch_energy"),
        2 * profile.get("adapter_energy"),
    )


def _switches_known(network: Network) -> bool:
    levels = [level for level in network.levels if level.switches]
    return all("switch_energy" in level.profile.figures for level in levels)


def _adapters_known(network: Network) -> bool:
    return all("adapter_energy" in level.profile.figures for level in network.levels)


def energy_is_known(network: Network) -> bool:
    """Returns whether switches and adapters have figures: without them, a sum would be too low."""
    return _switches_known(network) and _adapters_known(network)


def own_links(network: Network, index: int) -> int:
    """Returns how many links of a level itself a path over it passes."""
    level = network.levels[index]
    below = network.levels[index - 1].switches if level.stacked else -1
    return level.switches - below


def _joins(network: Network, index: int) -> bool:
    """Returns whether a level of one group still has links: between the rails of its group."""
    level = network.levels[index]
    return level.stacked and network.levels[network.base(index)].rails


def fabric_power(network: Network) -> Power:
    """Returns the power of all cables, switches and adapters at full rate in both directions."""
    tiers: list[Tier] = []
    switches = adapters = 0.0
    for index, level in enumerate(network.levels):
        base = network.levels[network.base(index)]
        rate = network.endpoints * base.profile["rate"] * base.ways * level.taper
        # A cable joins two ends of a mesh, and one end of a tier with the tier above.
        sides = 0.5 if level.mesh or not level.switches else 1.0
        port = base.profile["rate"]
        if network.group_size(index) > 1 and (level.groups > 1 or _joins(network, index)):
            cables = round(rate * sides / port)
            watts = rate * sides * BITS * 2 * level.link.energy_pj_per_bit * 1e-12
            medium = level.link.medium.name if level.link.medium else "none"
            modules = 2 * cables * ceil(port / MODULE_BYTES_PER_S)
            tiers.append(
                Tier(level.name, medium, level.link.length_m, cables, modules, port, watts)
            )
            # All that enters a switch passes it; a cable of the first tier has one end there.
            entries = 2 if level.stacked else min(1, level.switches)
            switches += rate * sides * entries * BITS * level.profile.get("switch_energy") * 1e-12
        if not level.stacked:
            adapters += rate * BITS * 2 * level.profile.get("adapter_energy") * 1e-12
    return Power(
        tuple(tiers),
        switches if _switches_known(network) else None,
        adapters if _adapters_known(network) else None,
    )


def with_media(network: Network, media: Mapping[str, str] | str) -> Network:
    """Returns the same with one medium everywhere, or one a level by name; lengths stay.

    ModelError: a level's length is beyond the medium's reach.
    """
    levels = []
    for level in network.levels:
        name = media if isinstance(media, str) else media.get(level.name)
        link = Cable(load(name), level.link.length_m) if name else level.link
        levels.append(replace(level, link=link))
    return replace(network, levels=tuple(levels), drawn=None)


def fitting(length_m: float, preferred: str) -> Profile:
    """Returns the preferred medium, or the cheapest that reaches so far where it does not."""
    medium = load(preferred)
    if medium.get("reach") >= length_m:
        return medium
    fit = [found for found in map(load, names("medium")) if found.get("reach") >= length_m]
    if not fit:
        raise ModelError(f"no medium reaches {length_m:g} m: {preferred} neither")
    return min(fit, key=lambda found: (found.get("price"), found.get("energy")))


def by_medium(network: Network, media: Sequence[str] = ()) -> dict[str, tuple[Network, Power]]:
    """Returns the network and its power with each medium where it reaches.

    Levels beyond its reach have the cheapest medium that reaches them, which the tiers name.
    """
    found: dict[str, tuple[Network, Power]] = {}
    for name in media or names("medium"):
        chosen = {level.name: fitting(level.link.length_m, name).name for level in network.levels}
        made = with_media(network, chosen)
        found[name] = (made, fabric_power(made))
    return found
