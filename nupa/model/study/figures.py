# SPDX-License-Identifier: BSD-3-Clause
"""Other values of figures, for what-if questions: `ib-ndr.hop=90ns;ib-ndr.rate=800Gb/s`."""

from __future__ import annotations

import re
from dataclasses import replace

from nupa.model.errors import ModelError
from nupa.model.network.network import Network
from nupa.model.profile.figure import UNITS, read_figure
from nupa.model.profile.kinds import KINDS
from nupa.model.profile.profile import Profile

_PART = re.compile(r"([\w.-]+)\.(\w+)\s*=\s*([0-9.eE+-]+?)\s*([A-Za-z%][\w/%]*)?\Z")


def with_figures(network: Network, text: str) -> Network:
    """Returns the network with other figures, without ranges; empty: unchanged.

    ModelError: no level has the profile, the profile has no such figure, or the value is wrong.
    """
    for part in filter(None, (each.strip() for each in text.split(";"))):
        found = _PART.match(part)
        if not found:
            raise ModelError(f"figure {part!r}: write PROFILE.FIGURE=VALUE, as ib-ndr.hop=90ns")
        network = _with(network, part, *found.groups())
    return network


def _with(network: Network, part: str, profile: str, figure: str, value: str, unit: str) -> Network:
    names = dict.fromkeys(level.profile.name for level in network.levels)
    if profile not in names:
        raise ModelError(
            f"figure {part!r}: {network.name} has no level of {profile}: it has {', '.join(names)}"
        )
    levels = tuple(
        replace(level, profile=_changed(level.profile, part, figure, value, unit))
        if level.profile.name == profile
        else level
        for level in network.levels
    )
    return replace(network, levels=levels, drawn=None)


def _changed(profile: Profile, part: str, figure: str, value: str, unit: str) -> Profile:
    if figure not in profile.figures:
        raise ModelError(
            f"figure {part!r}: {profile.name} has no {figure}: it has {', '.join(profile.figures)}"
        )
    try:
        number = float(value)
    except ValueError:
        raise ModelError(f"figure {part!r}: {value!r} is not a number") from None
    kind = KINDS[figure]
    if not unit and "1" not in UNITS[kind.dimension]:
        units = ", ".join(UNITS[kind.dimension])
        raise ModelError(f"figure {part!r}: {value} has no unit: give one of {units}")
    entry = {
        "value": number,
        "unit": unit or "1",
        "source": "asked for",
        "confidence": "assumed",
    }
    made = read_figure(figure, entry, f"figure {part!r}", kind)
    return replace(profile, figures={**profile.figures, figure: made})
