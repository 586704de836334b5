# SPDX-License-Identifier: BSD-3-Clause
"""What a demo measured, and how it is shown: text for a terminal, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from nupa.measure import chart
from nupa.measure.raw import Tcp
from nupa.measure.versus import Contest
from nupa.programs.perftest import Bandwidth, Latency, Operation

_HEADINGS: Mapping[Operation, str] = {
    "send": "SEND",
    "write": "WRITE",
    "read": "READ",
    "atomic": "ATOMIC",
}
_TCP = "TCP over nupa_net0"


@dataclass(frozen=True)
class Transfer:
    """A file that went from one host to the other."""

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
class Results:
    """Grows step by step; a step that failed is a line in *failures*."""

    hosts: tuple[str, str]
    mover: str  #: as forced, or all that the fabric reported; empty: none seen
    latency: dict[Operation, list[Latency]] = field(default_factory=dict)
    bandwidth: dict[Operation, list[Bandwidth]] = field(default_factory=dict)
    tcp: list[Tcp] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    contests: list[Contest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    elapsed_s: float = 0.0
    programs: str = "perftest"  #: by which latency and bandwidth were measured

    @property
    def ok(self) -> bool:
        return not self.failures and all(transfer.intact for transfer in self.transfers)

    def latency_points(self) -> list[chart.Point]:
        """SEND beside TCP at its best, µs one way."""
        tcp = {row.size_bytes: row.best_us for row in self.tcp}
        return [
            chart.Point(row.size_bytes, row.typical_us, tcp[row.size_bytes])
            for row in self.latency.get("send", [])
            if row.size_bytes in tcp and row.typical_us > 0
        ]

    def bandwidth_points(self) -> list[chart.Point]:
        """WRITE beside TCP, GB/s."""
        tcp = {row.size_bytes: row.bytes_per_s / 1e9 for row in self.tcp}
        return [
            chart.Point(row.size_bytes, row.mean_bytes_per_s / 1e9, tcp[row.size_bytes])
            for row in self.bandwidth.get("write", [])
            if row.size_bytes in tcp and row.mean_bytes_per_s > 0
        ]

    def contest_points(self) -> dict[int, list[chart.Point]]:
        """fio's blocks by RDMA beside TCP over the fabric, GB/s, by depth."""
        points: dict[int, list[chart.Point]] = {}
        for contest in self.contests:
            rates = (contest.rdma.bytes_per_s / 1e9, contest.tcp.bytes_per_s / 1e9)
            points.setdefault(contest.depth, []).append(chart.Point(contest.block_bytes, *rates))
        return points

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        for transfer, shown in zip(self.transfers, values["transfers"], strict=True):
            shown["intact"] = transfer.intact
        for contest, shown in zip(self.contests, values["contests"], strict=True):
            shown["ratio"] = contest.ratio
        values["ok"] = self.ok
        return values


def render(results: Results, *, width: int = 80, glyphs: chart.Glyphs = chart.UNICODE) -> str:
    """Tables, charts and the verdict."""
    parts = []
    if results.latency:
        parts.append(_latency_table(results, glyphs))
    if points := results.latency_points():
        title = "Latency of SEND by size, one way, µs"
        parts.append(chart.chart(title, points, lower_is_better=True, width=width, glyphs=glyphs))
    if results.bandwidth:
        parts.append(_bandwidth_table(results, glyphs))
    if points := results.bandwidth_points():
        title = "Bandwidth of WRITE by size, GB/s"
        parts.append(chart.chart(title, points, lower_is_better=False, width=width, glyphs=glyphs))
    if results.contests:
        parts.append(_contest_table(results, glyphs))
    for depth, points in results.contest_points().items():
        title = f"The same fio job by block size, {depth} outstanding, GB/s"
        parts.append(
            chart.chart(title, points, lower_is_better=False, tcp=_TCP, width=width, glyphs=glyphs)
        )
    if results.transfers:
        parts.append(_transfer_table(results))
    parts += [f"note: {note}" for note in results.notes]
    parts += [f"FAILED: {failure}" for failure in results.failures]
    parts.append(_verdict(results))
    return "\n\n".join(parts)


def _latency_table(results: Results, glyphs: chart.Glyphs) -> str:
    columns: dict[str, dict[int, float]] = {
        _HEADINGS[operation]: {row.size_bytes: row.typical_us for row in rows}
        for operation, rows in results.latency.items()
    }
    columns["TCP, polling"] = {row.size_bytes: row.polling_us for row in results.tcp}
    columns["TCP, asleep"] = {row.size_bytes: row.blocking_us for row in results.tcp}
    ratio = {point.size_bytes: point.tcp / point.rdma for point in results.latency_points()}
    title = "Latency, µs (median; READ and ATOMIC there and back, the others one way)"
    return f"{title}, by {results.programs}\n" + _table(columns, "TCP/SEND", ratio, glyphs)


def _bandwidth_table(results: Results, glyphs: chart.Glyphs) -> str:
    columns: dict[str, dict[int, float]] = {
        _HEADINGS[operation]: {row.size_bytes: row.mean_bytes_per_s / 1e9 for row in rows}
        for operation, rows in results.bandwidth.items()
    }
    columns["TCP"] = {row.size_bytes: row.bytes_per_s / 1e9 for row in results.tcp}
    ratio = {point.size_bytes: point.rdma / point.tcp for point in results.bandwidth_points()}
    title = f"Bandwidth, GB/s (1 GB = 10^9 bytes), by {results.programs}"
    return f"{title}\n" + _table(columns, "WRITE/TCP", ratio, glyphs)


def _contest_table(results: Results, glyphs: chart.Glyphs) -> str:
    rows = []
    for contest in results.contests:
        both = (contest.rdma, contest.tcp)
        rows.append(
            [
                chart.format_size(contest.block_bytes),
                str(contest.depth),
                *(chart.format_number(rate.operations_per_s / 1e3) for rate in both),
                *(chart.format_number(rate.bytes_per_s / 1e9) for rate in both),
                chart.format_number(contest.ratio) + glyphs.times,
            ]
        )
    headings = ["block", "depth", "RDMA kIOPS", "TCP kIOPS", "RDMA GB/s", "TCP GB/s", "RDMA/TCP"]
    title = f"RDMA WRITE against {_TCP}, between the same hosts, by the same fio job"
    return f"{title}\n{chart.table(headings, rows)}\n{_headline(results.contests, glyphs)}"


def _headline(contests: Sequence[Contest], glyphs: chart.Glyphs) -> str:
    """The least ratio over all depths: in operations of the smallest block, bytes of the largest.

    For one block size both are the same number.
    """
    said = []
    for block_bytes, what in (
        (min(contest.block_bytes for contest in contests), "IOPS"),
        (max(contest.block_bytes for contest in contests), "bandwidth"),
    ):
        least = min(contest.ratio for contest in contests if contest.block_bytes == block_bytes)
        ratio = chart.format_number(least) + glyphs.times
        said.append(f"{ratio} TCP in {what} at {chart.format_size(block_bytes)}")
    return f"At the least RDMA reaches {' and '.join(said)}."


def _table(
    columns: Mapping[str, Mapping[int, float]],
    ratio_heading: str,
    ratio: Mapping[int, float],
    glyphs: chart.Glyphs,
) -> str:
    measured = {size for column in columns.values() for size in column}
    rows = [
        [
            chart.format_size(size),
            *(
                chart.format_number(column[size]) if size in column else ""
                for column in columns.values()
            ),
            chart.format_number(ratio[size]) + glyphs.times if size in ratio else "",
        ]
        for size in sorted(measured)
    ]
    return chart.table(["size", *columns, ratio_heading], rows)


def _transfer_table(results: Results) -> str:
    rows = [
        [
            _HEADINGS[transfer.operation],
            chart.format_size(transfer.size_bytes),
            chart.format_number(transfer.bytes_per_s / 1e9),
            transfer.sent_sha256[:16],
            transfer.received_sha256[:16],
            "same" if transfer.intact else "DIFFERENT",
        ]
        for transfer in results.transfers
    ]
    headings = ["file by", "size", "GB/s", "SHA-256 sent", "SHA-256 received", "data"]
    return chart.table(headings, rows)


def _verdict(results: Results) -> str:
    movers = "movers" if "," in results.mover else "mover"
    where = f"{results.hosts[0]} and {results.hosts[1]}, {movers} {results.mover or 'not seen'}"
    took = f"{results.elapsed_s:.1f} s"
    if results.ok:
        return f"All worked: {where}, {took}."
    broken = [_HEADINGS[t.operation] for t in results.transfers if not t.intact]
    damage = f" Data damaged by {', '.join(broken)}." if broken else ""
    return f"NOT all worked ({where}, {took}): {len(results.failures)} steps failed.{damage}"
