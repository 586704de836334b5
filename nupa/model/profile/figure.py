# SPDX-License-Identifier: BSD-3-Clause
"""Figures: numbers with a unit, a source, a confidence and, where sources differ, a range."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal, NamedTuple

from nupa.model.errors import ModelError

Confidence = Literal["measured", "published", "vendor", "assumed"]
Case = Literal["nominal", "best", "worst"]

#: Units of a file, by the dimension: how many of the dimension's own unit one of them is.
UNITS: Mapping[str, Mapping[str, float]] = {
    "ns": {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9},
    "B": {"B": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3, "GB": 1e9},
    "B/s": {"B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "Mb/s": 1.25e5, "Gb/s": 1.25e8},
    "1/s": {"1/s": 1.0, "k/s": 1e3, "M/s": 1e6, "G/s": 1e9, "T/s": 1e12},
    "ns/B": {"ns/B": 1.0, "ps/B": 1e-3},
    "ns/m": {"ns/m": 1.0},
    "m": {"m": 1.0, "km": 1e3},
    "pJ/b": {"pJ/b": 1.0},
    "W": {"W": 1.0, "kW": 1e3},
    "1": {"1": 1.0, "%": 0.01},
}


class FigureKind(NamedTuple):
    """The kind of all figures of one name: its dimension (a key of UNITS) and its meaning.

    *better*: +1 where a larger value is faster or cheaper, -1 where a smaller one is, 0 where it is
    neither.  *positive*: 0 is refused, as a time is divided by it; rates are so, too.
    """

    dimension: str
    better: Literal[-1, 0, 1]
    meaning: str
    positive: bool = False
    most: float = inf


class Figure(NamedTuple):
    """One number of a profile, in its dimension's own unit.

    *unit* is the file's, for printing.  *fitted* names the calibration files that the number was
    fitted to; empty: it was not.
    """

    value: float
    unit: str
    kind: FigureKind
    source: str
    confidence: Confidence
    low: float
    high: float
    fitted: tuple[str, ...] = ()

    def at(self, case: Case) -> float:
        """Returns the value in that case: the end of the range that is best, or worst."""
        if case == "nominal" or not self.kind.better:
            return self.value
        return self.high if (case == "best") == (self.kind.better > 0) else self.low

    def shown(self) -> dict[str, Any]:
        """Returns it as the file has it, for `--json`."""
        scale = UNITS[self.kind.dimension][self.unit]
        shown: dict[str, Any] = {"value": self.value / scale, "unit": self.unit}
        if (self.low, self.high) != (self.value, self.value):
            shown |= {"low": self.low / scale, "high": self.high / scale}
        shown |= {"source": self.source, "confidence": self.confidence}
        return shown | ({"fitted": list(self.fitted)} if self.fitted else {})


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return inf


def read_figure(name: str, entry: Mapping[str, Any], source: str, kind: FigureKind) -> Figure:
    """Converts a figure of a file.  ModelError names *source*, the figure and what is wrong."""
    scale = UNITS[kind.dimension].get(entry["unit"])
    if scale is None:
        units = ", ".join(UNITS[kind.dimension])
        raise ModelError(f"{source}: {name}: the unit is {entry['unit']!r}: give one of {units}")
    low, value, high = (
        _float(entry.get(key, entry["value"])) * scale for key in ("low", "value", "high")
    )
    if not 0 <= low <= value <= high < inf:
        low, value, high = (low / scale, value / scale, high / scale)
        raise ModelError(
            f"{source}: {name}: low is {low:g}, value {value:g}, high {high:g}: give numbers "
            "with low <= value <= high"
        )
    if not low and (kind.positive or kind.dimension in ("B/s", "1/s")):
        raise ModelError(f"{source}: {name}: 0 was given: give a number above 0")
    if high > kind.most:
        raise ModelError(f"{source}: {name}: {high:g} was given: {kind.most:g} is the most")
    return Figure(
        value,
        entry["unit"],
        kind,
        entry["source"],
        entry["confidence"],
        low,
        high,
        tuple(entry.get("fitted", ())),
    )
