# SPDX-License-Identifier: BSD-3-Clause
"""The report of `nupa demo`, as text for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nupa.base.quantity import say_bytes
from nupa.measure import chart, elsewhere
from nupa.measure.chart import Chart, Point
from nupa.measure.elsewhere import Elsewhere
from nupa.measure.raw import Tcp
from nupa.measure.report import StepReport
from nupa.measure.text import UNICODE, ReportGlyphs, format_number, format_ratio, table
from nupa.measure.versus import RateComparison
from nupa.programs.perftest import Bandwidth, Latency, Operation

_HEADINGS: Mapping[Operation, str] = {
    "send": "SEND",
    "write": "WRITE",
    "read": "READ",
    "atomic": "ATOMIC",
}
_TCP = "TCP over nupa_net0"


@dataclass(frozen=True)
class FileTransfer:
    """A file sent from one host to the other."""

    operation: Operation
    size_bytes: int
    seconds: float  #: from the first post to the last completion
    sent_sha256: str
    received_sha256: str

    @property
    def intact(self) -> bool:
        return self.sent_sha256 == self.received_sha256

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / self.seconds


@dataclass
class Results(StepReport):
    """The measurements of a demo; `ok` requires intact files, too."""

    hosts: tuple[str, str]
    mover: str  #: as forced, or all that the fabric reported; empty: none seen
    latency: dict[Operation, list[Latency]] = field(default_factory=dict)
    bandwidth: dict[Operation, list[Bandwidth]] = field(default_factory=dict)
    tcp: list[Tcp] = field(default_factory=list)
    transfers: list[FileTransfer] = field(default_factory=list)
    contests: list[RateComparison] = field(default_factory=list)
    programs: str = "perftest"  #: by which latency and bandwidth were measured
    elsewhere: list[Elsewhere] = field(default_factory=list)  #: of one of these programs

    @property
    def ok(self) -> bool:
        return not self.failures and all(transfer.intact for transfer in self.transfers)

    def latency_chart(self) -> Chart:
        """Charts SEND beside the better of both ways to wait for TCP."""
        tcp = {row.size_bytes: row.best_us for row in self.tcp}
        points = [
            Point(row.size_bytes, row.typical_us, tcp[row.size_bytes])
            for row in self.latency.get("send", [])
            if row.size_bytes in tcp and row.typical_us > 0
        ]
        return Chart("Latency of SEND by size, one way", "µs", points, lower_is_better=True)

    def bandwidth_chart(self) -> Chart:
        """Charts WRITE beside TCP."""
        tcp = {row.size_bytes: row.bytes_per_s / 1e9 for row in self.tcp}
        points = [
            Point(row.size_bytes, row.mean_bytes_per_s / 1e9, tcp[row.size_bytes])
            for row in self.bandwidth.get("write", [])
            if row.size_bytes in tcp and row.mean_bytes_per_s > 0
        ]
        return Chart("Bandwidth of WRITE by size", "GB/s", points, lower_is_better=False)

    def contest_charts(self) -> list[Chart]:
        """Charts fio's blocks by RDMA beside TCP over the fabric, one chart for each depth."""
        points: dict[int, list[Point]] = {}
        for contest in self.contests:
            rates = (contest.rdma.bytes_per_s / 1e9, contest.tcp.bytes_per_s / 1e9)
            points.setdefault(contest.depth, []).append(Point(contest.block_bytes, *rates))
        return [
            Chart(
                f"The same fio job by block size, {depth} outstanding",
                "GB/s",
                at_depth,
                lower_is_better=False,
                tcp=_TCP,
            )
            for depth, at_depth in points.items()
        ]

    def charts(self) -> list[Chart]:
        """Returns all charts that have points."""
        charts = [self.latency_chart(), self.bandwidth_chart(), *self.contest_charts()]
        return [chart for chart in charts if chart.points]

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        for transfer, shown in zip(self.transfers, values["transfers"], strict=True):
            shown["intact"] = transfer.intact
        for contest, shown in zip(self.contests, values["contests"], strict=True):
            shown["ratio"] = contest.ratio
        values["ok"] = self.ok
        return values


def render(results: Results, *, width: int = 80, glyphs: ReportGlyphs = UNICODE) -> str:
    """Returns tables, charts, the verdict, and what a program would take on other fabrics."""

    def drawn(*charts: Chart) -> list[str]:
        return [chart.render(c, width=width, glyphs=glyphs) for c in charts if c.points]

    parts = []
    if results.latency:
        parts.append(_latency_table(results, glyphs))
    parts += drawn(results.latency_chart())
    if results.bandwidth:
        parts.append(_bandwidth_table(results, glyphs))
    parts += drawn(results.bandwidth_chart())
    if results.contests:
        parts.append(_contest_table(results, glyphs))
    parts += drawn(*results.contest_charts())
    if results.transfers:
        parts.append(_transfer_table(results))
    movers = "movers" if "," in results.mover else "mover"
    where = f"{results.hosts[0]} and {results.hosts[1]}, {movers} {results.mover or 'not seen'}"
    broken = [_HEADINGS[t.operation] for t in results.transfers if not t.intact]
    damage = f". Data damaged by {', '.join(broken)}" if broken else ""
    text = results.text(parts, where, damage)
    return "\n".join([text, *([elsewhere.say(results.elsewhere)] if results.elsewhere else [])])


def _latency_table(results: Results, glyphs: ReportGlyphs) -> str:
    columns: dict[str, dict[int, float]] = {
        _HEADINGS[operation]: {row.size_bytes: row.typical_us for row in rows}
        for operation, rows in results.latency.items()
    }
    columns["TCP, polling"] = {row.size_bytes: row.polling_us for row in results.tcp}
    columns["TCP, asleep"] = {row.size_bytes: row.blocking_us for row in results.tcp}
    title = "Latency, µs (median; READ and ATOMIC there and back, the others one way)"
    return f"{title}, by {results.programs}\n" + _table(
        columns, "TCP/SEND", results.latency_chart().ratios, glyphs
    )


def _bandwidth_table(results: Results, glyphs: ReportGlyphs) -> str:
    columns: dict[str, dict[int, float]] = {
        _HEADINGS[operation]: {row.size_bytes: row.mean_bytes_per_s / 1e9 for row in rows}
        for operation, rows in results.bandwidth.items()
    }
    columns["TCP"] = {row.size_bytes: row.bytes_per_s / 1e9 for row in results.tcp}
    title = f"Bandwidth, GB/s (1 GB = 10^9 bytes), by {results.programs}"
    return f"{title}\n" + _table(columns, "WRITE/TCP", results.bandwidth_chart().ratios, glyphs)


def _contest_table(results: Results, glyphs: ReportGlyphs) -> str:
    rows = []
    for contest in results.contests:
        both = (contest.rdma, contest.tcp)
        rows.append(
            [
                say_bytes(contest.block_bytes, " "),
                str(contest.depth),
                *(format_number(rate.operations_per_s / 1e3) for rate in both),
                *(format_number(rate.bytes_per_s / 1e9) for rate in both),
                format_ratio(contest.ratio, glyphs),
            ]
        )
    headings = ["block", "depth", "RDMA kIOPS", "TCP kIOPS", "RDMA GB/s", "TCP GB/s", "RDMA/TCP"]
    title = f"RDMA WRITE against {_TCP}, between the same hosts, by the same fio job"
    return f"{title}\n{table(headings, rows)}\n{_headline(results.contests, glyphs)}"


def _headline(contests: Sequence[RateComparison], glyphs: ReportGlyphs) -> str:
    """Says the least ratios over all depths: IOPS of the smallest block, GB/s of the largest."""
    said = []
    for block_bytes, what in (
        (min(contest.block_bytes for contest in contests), "IOPS"),
        (max(contest.block_bytes for contest in contests), "bandwidth"),
    ):
        least = min(contest.ratio for contest in contests if contest.block_bytes == block_bytes)
        ratio = format_ratio(least, glyphs)
        said.append(f"{ratio} TCP in {what} at {say_bytes(block_bytes, ' ')}")
    return f"At the least RDMA reaches {' and '.join(said)}."


def _table(
    columns: Mapping[str, Mapping[int, float]],
    ratio_heading: str,
    ratio: Mapping[int, float],
    glyphs: ReportGlyphs,
) -> str:
    measured = {size for column in columns.values() for size in column}
    rows = [
        [
            say_bytes(size, " "),
            *(format_number(column[size]) if size in column else "" for column in columns.values()),
            format_ratio(ratio[size], glyphs) if size in ratio else "",
        ]
        for size in sorted(measured)
    ]
    return table(["size", *columns, ratio_heading], rows)


def _transfer_table(results: Results) -> str:
    rows = [
        [
            _HEADINGS[transfer.operation],
            say_bytes(transfer.size_bytes, " "),
            format_number(transfer.bytes_per_s / 1e9),
            transfer.sent_sha256[:16],
            transfer.received_sha256[:16],
            "same" if transfer.intact else "DIFFERENT",
        ]
        for transfer in results.transfers
    ]
    headings = ["file by", "size", "GB/s", "SHA-256 sent", "SHA-256 received", "data"]
    return table(headings, rows)
