# SPDX-License-Identifier: BSD-3-Clause
"""The demo's charts as a picture: .png, .svg, .pdf.  matplotlib is imported when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nupa.measure.chart import Point, format_size
from nupa.measure.results import Results


class PlotError(Exception):
    """The picture cannot be drawn; the message says what to install or to change."""


def check(path: Path) -> None:
    """PlotError if `draw` to *path* is bound to fail: asked before minutes are spent."""
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
    """A picture of each chart that there are numbers for; PlotError if it cannot be written."""
    charts = [
        (results.latency_points(), "SEND, one way", "µs", "TCP on loopback"),
        (results.bandwidth_points(), "WRITE", "GB/s", "TCP on loopback"),
        *(
            (points, f"fio, {depth} outstanding", "GB/s", "TCP over nupa_net0")
            for depth, points in results.contest_points().items()
        ),
    ]
    charts = [chart for chart in charts if chart[0]]
    figure = _figure(len(charts))
    for at, (points, title, unit, tcp) in enumerate(charts, 1):
        _axes(figure.add_subplot(1, len(charts), at), points, title, unit, tcp)
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


def _axes(axes: Any, points: list[Point], title: str, unit: str, tcp: str) -> None:
    sizes = [point.size_bytes for point in points]
    axes.loglog(sizes, [point.rdma for point in points], "o-", label="RDMA over NUPA")
    axes.loglog(sizes, [point.tcp for point in points], "s--", label=tcp)
    ticks = sizes[:: max(1, len(sizes) // 6)]
    axes.set_xticks(ticks, [format_size(size) for size in ticks])
    axes.minorticks_off()
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.set_xlabel("message size")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
