# SPDX-License-Identifier: BSD-3-Clause
"""Answers as a drawing: bars of stages, or times over sizes.  matplotlib is imported here alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nupa.model.answer.answer import Answer
from nupa.model.errors import ModelError

_SUFFIXES = (".svg", ".pdf", ".png")
_SALT = "nupa"  # of the names in an SVG: equal answers give equal files


def plot(answers: Sequence[Answer], out: str) -> None:
    """Writes the drawing.  ModelError: no matplotlib, a suffix that it has not, or no such folder.

    Answers of several sizes are lines, a line for each network; others are bars.
    """
    if Path(out).suffix not in _SUFFIXES:
        raise ModelError(f"--plot {out}: the name ends with one of {', '.join(_SUFFIXES)}")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ModelError(
            f"--plot needs matplotlib, which is not installed ({error}): `pip install nupa[plot]`"
        ) from error
    sizes = {each.bytes // each.messages for each in answers}
    with rc_context({"svg.hashsalt": _SALT}):
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.add_subplot()
        (_lines if len(sizes) > 1 else _bars)(axes, answers)
        figure.legend(loc="outside right upper", fontsize="small")
        metadata = {"Date": None} if Path(out).suffix == ".svg" else {}
        try:
            figure.savefig(out, metadata=metadata)
        except OSError as error:
            raise ModelError(f"--plot {out}: {error.strerror}") from error


def _bars(axes: Any, answers: Sequence[Answer]) -> None:
    """Draws a bar for each answer, its stages beside each other, and its range as a whisker."""
    from matplotlib import colormaps

    scale, unit = _unit(max(each.time_ns for each in answers))
    names = list(dict.fromkeys(stage.name for each in answers for stage in each.stages))
    places = range(len(answers))
    left = [0.0] * len(answers)
    palette = colormaps["tab20"]
    for at, name in enumerate(names):
        widths = [
            sum(stage.ns for stage in each.stages if stage.name == name) / scale for each in answers
        ]
        axes.barh(places, widths, left=left, label=name, color=palette(at % 20))
        left = [a + b for a, b in zip(left, widths, strict=True)]
    ranges = [
        [(each.time_ns - each.low_ns) / scale for each in answers],
        [(each.high_ns - each.time_ns) / scale for each in answers],
    ]
    axes.errorbar(left, places, xerr=ranges, fmt="none", ecolor="black", capsize=3)
    axes.set_yticks(places, [each.network for each in answers])
    axes.invert_yaxis()
    axes.set_xlabel(f"time, {unit}")
    axes.set_title(f"{answers[0].work}, {answers[0].ranks} ranks")


def _lines(axes: Any, answers: Sequence[Answer]) -> None:
    """Draws time over size, both logarithmic, with the range as a band."""
    for network in dict.fromkeys(each.network for each in answers):
        mine = [each for each in answers if each.network == network]
        sizes = [each.bytes // each.messages for each in mine]
        times = [each.time_ns / each.messages / 1e3 for each in mine]
        axes.plot(sizes, times, marker="o", label=network)
        low = [each.low_ns / each.messages / 1e3 for each in mine]
        high = [each.high_ns / each.messages / 1e3 for each in mine]
        axes.fill_between(sizes, low, high, alpha=0.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("size, bytes")
    axes.set_ylabel("time, µs")
    axes.set_title(f"{answers[0].work.partition(':')[0]}, {answers[0].ranks} ranks")


def _unit(ns: float) -> tuple[float, str]:
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= scale:
            return scale, unit
    return 1.0, "ns"
