# SPDX-License-Identifier: BSD-3-Clause
"""Media compared: a network's power with each of them, and what a small write takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nupa.model.engine.predict import predict
from nupa.model.network.energy import Power, by_medium
from nupa.model.network.network import Network
from nupa.model.study.question import network_of
from nupa.model.work.perftest import Perftest

_WRITE_BYTES = 8


@dataclass(frozen=True)
class Medium:
    """A network with one medium in all levels that it reaches.

    *power* is that at full rate in both directions; its tiers name the medium of each level.
    *write_ns*: a write of 8 bytes between the endpoints that are farthest from each other.
    """

    name: str
    power: Power
    write_ns: float

    @property
    def levels(self) -> int:
        """Returns how many levels the medium reaches."""
        return sum(tier.medium == self.name for tier in self.power.tiers)

    def shown(self) -> dict[str, Any]:
        """Returns it as `nupa model power --json` prints it: ns, and watts or None: not known."""
        return {
            "medium": self.name,
            "watts": self.power.watts,
            "media_watts": self.power.media_watts,
            "switches_watts": self.power.switches_watts,
            "adapters_watts": self.power.adapters_watts,
            "modules": self.power.modules,
            "write_ns": self.write_ns,
            "tiers": [tier._asdict() for tier in self.power.tiers],
        }


def media(fabric: Network | str, ranks: int = 0) -> list[Medium]:
    """Returns the network with each medium, the least power first.

    Levels beyond a medium's reach have the cheapest that reaches them.  ModelError: no medium does,
    or there is no such network.
    """
    network = network_of(fabric, ranks)
    found = [
        Medium(name, power, predict(Perftest("write", _WRITE_BYTES), made, "stages").time_ns)
        for name, (made, power) in by_medium(network).items()
    ]
    return sorted(found, key=lambda each: (each.power.media_watts, each.name))
