# SPDX-License-Identifier: BSD-3-Clause
"""Fits the figures of a profile that name calibration files.  A prediction needs none of this.

`python -m nupa.model.validate.fit ib-hdr` prints the values that the files give, beside those that
the profile has.  It changes no file: a person does, and rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nupa.model.engine.stages import stages
from nupa.model.network.network import Network
from nupa.model.profile.figure import UNITS
from nupa.model.profile.profile import Profile, load, names
from nupa.model.validate.case import Case
from nupa.model.validate.data import lines
from nupa.model.validate.files import FILES

_GOLDEN = 0.6180339887498949
_SPAN = 1.5  # a figure is looked for from value / 1.5 to value x 1.5, then ever closer
_ROUNDS = 12
_SHRINK = 0.7


class Fit(NamedTuple):
    """The fitted values by figure, in the dimensions' own units; errors before and after."""

    profile: Profile
    values: Mapping[str, float]
    before: float
    after: float


def _cases(profile: Profile, files: Sequence[str]) -> list[list[Case]]:
    """Returns the cases of each file that are predicted with the nominal figures of a profile."""
    by_name = {f"{file.name}.csv": file for file in FILES}
    found = [
        [
            case
            for case in by_name[name].read(lines(by_name[name].name))
            if isinstance(case, Case)
            and case.figures == "nominal"
            and any(level.profile.name == profile.name for level in case.network.levels)
        ]
        for name in files
        if name in by_name
    ]
    return [cases for cases in found if cases]


def _with(network: Network, profile: Profile) -> Network:
    levels = (
        replace(level, profile=profile) if level.profile.name == profile.name else level
        for level in network.levels
    )
    return replace(network, levels=tuple(levels))


def _error(profile: Profile, files: Sequence[Sequence[Case]]) -> float:
    """Returns the mean, over files, of the mean absolute relative error of time."""
    found = []
    for cases in files:
        errors = [
            abs(_time_ns(case, _with(case.network, profile)) / case.measured_ns - 1)
            for case in cases
        ]
        found.append(sum(errors) / len(errors))
    return sum(found) / len(found)


def _time_ns(case: Case, network: Network) -> float:
    return sum(stage.ns for stage in stages(network, case.work.plan(network)))


def _changed(profile: Profile, name: str, value: float) -> Profile:
    figure = profile.figures[name]._replace(value=value, low=value, high=value)
    return replace(profile, figures={**profile.figures, name: figure})


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns where a function is least between two values, by golden sections."""
    a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_a, at_b = function(a), function(b)
    for _ in range(12):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - _GOLDEN * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + _GOLDEN * (high - low)
            at_b = function(b)
    return a if at_a <= at_b else b


def _improved(
    profile: Profile, name: str, span: float, files: Sequence[Sequence[Case]], best: float
) -> tuple[Profile, float]:
    """Returns the profile with a better value of one figure, if there is one, and its error."""
    value, most = profile.figures[name].value, profile.figures[name].kind.most

    def error(tried: float) -> float:
        return _error(_changed(profile, name, tried), files)

    tried = _least(error, value / span, min(value * span, most))
    found = error(tried)
    return (_changed(profile, name, tried), found) if found < best else (profile, best)


def fit(profile: Profile) -> Fit:
    """Fits, one after the other and again, the figures that name files."""
    free = [name for name, figure in profile.figures.items() if figure.fitted and figure.value]
    files = _cases(
        profile, sorted({file for name in free for file in profile.figures[name].fitted})
    )
    if not files:
        return Fit(profile, {}, 0.0, 0.0)
    found, best = profile, _error(profile, files)
    before, span = best, _SPAN
    for _ in range(_ROUNDS):
        for name in free:
            found, best = _improved(found, name, span, files, best)
        span = 1 + (span - 1) * _SHRINK
    return Fit(found, {name: found.figures[name].value for name in free}, before, best)


def main(chosen: Sequence[str]) -> None:
    """Prints the fit of each profile, or of those that have one."""
    for name in chosen or names("fabric"):
        found = fit(load(name))
        if not found.values:
            continue
        print(f"{name}: error {found.before:.2%}, fitted again {found.after:.2%}")
        for figure, value in found.values.items():
            was = load(name).figures[figure]
            scale = UNITS[was.kind.dimension][was.unit]
            print(f"  {figure:14}{was.value / scale:12.4g}{value / scale:12.4g} {was.unit}")


if __name__ == "__main__":
    main(sys.argv[1:])
