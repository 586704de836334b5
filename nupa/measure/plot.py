# SPDX-License-Identifier: BSD-3-Clause
"""The demo's charts as a picture: .png, .svg, .pdf.  Imports matplotlib on demand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nupa.base.quantity import say_bytes
from nupa.measure.chart import Chart
from nupa.measure.results import Results


class PlotError(Exception):
    """The picture cannot be drawn; the message says what to install or to change."""


def check(path: Path) -> None:
    """Raises PlotError if `draw` to *path* would fail, before minutes are spent."""
    figure = _figure()
    known = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise PlotError(
            f"--plot {path}: '{path.suffix}' was given, one of "
            f"{', '.join('.' + name for name in sorted(known))} is needed"
        )
    if not path.absolute().parent.is_dir():
        raise PlotError(f"--plot {path}: there is no directory {path.absolute().parent}")


def draw(results: Results, path: Path) -> None:
    """Draws the charts of *results* beside each other; PlotError if *path* cannot be written."""
    charts = results.charts()
    figure = _figure(len(charts))
    for at, chart in enumerate(charts, 1):
        _axes(figure.add_subplot(1, len(charts), at), chart)
    figure.suptitle(f"RDMA over NUPA (mover {results.mover or 'not seen'}) and TCP")
    try:
        figure.savefig(path)
    except OSError as error:
        raise PlotError(f"--plot {path}: {error}") from error


def _figure(charts: int = 1) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError(f"--plot needs matplotlib ({error}): `pip install 'nupa[plot]'`") from error
    # No pyplot: it would look for a display.
    return Figure(figsize=(5.5 * max(1, charts), 4.5), layout="constrained")


def _axes(axes: Any, chart: Chart) -> None:
    sizes = [point.size_bytes for point in chart.points]
    axes.loglog(sizes, [point.rdma for point in chart.points], "o-", label="RDMA over NUPA")
    axes.loglog(sizes, [point.tcp for point in chart.points], "s--", label=chart.tcp)
    ticks = sizes[:: max(1, len(sizes) // 6)]
    axes.set_xticks(ticks, [say_bytes(size, " ") for size in ticks])
    axes.minorticks_off()
    axes.set_title(chart.title)
    axes.set_ylabel(chart.unit)
    axes.set_xlabel("message size")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
