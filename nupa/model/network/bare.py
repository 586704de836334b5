# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of links that a file describes by no more than a rate and a latency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nupa.model.network.path import Cable
from nupa.model.profile.figure import Confidence, Figure
from nupa.model.profile.kinds import KINDS
from nupa.model.profile.profile import Profile


def _figure(name: str, value: float, unit: str, source: str, confidence: Confidence) -> Figure:
    return Figure(value, unit, KINDS[name], source, confidence, value, value)


def bare(
    name: str,
    rate_bytes_per_s: float,
    hop_ns: float,
    source: str,
    ports: int = 1,
    confidence: Confidence = "published",
) -> Profile:
    """Returns a profile of links of that rate, whose switches take *hop_ns*; *source* says it."""
    figures = {
        "rate": _figure("rate", rate_bytes_per_s, "B/s", source, confidence),
        "hop": _figure("hop", hop_ns, "ns", source, confidence),
    }
    if ports != 1:
        figures["ports"] = _figure("ports", ports, "1", source, confidence)
    return Profile(name, f"{name}: as in {source}", "fabric", figures)


def at_rate(profile: Profile, factor: float, name: str) -> Profile:
    """Returns the profile of a link with *factor* times the lanes, or the speed, of this one."""
    figures: Mapping[str, Figure] = profile.figures
    rate = figures["rate"]
    scaled = rate._replace(
        value=rate.value * factor,
        low=rate.low * factor,
        high=rate.high * factor,
        source=f"{rate.source}; {factor:g} times, for {name}",
    )
    return replace(profile, name=name, figures={**figures, "rate": scaled})


def cable(latency_ns: float, source: str) -> Cable:
    """Returns a link of which only the latency is known."""
    figures = {"conversion": _figure("conversion", latency_ns, "ns", source, "published")}
    return Cable(Profile("cable", f"a cable, as in {source}", "medium", figures))
