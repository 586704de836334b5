# SPDX-License-Identifier: BSD-3-Clause
"""The report of storage by transport: a row for each workload, a column for each transport."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nupa.measure.report import StepReport
from nupa.measure.text import format_number, table
from nupa.programs.disk import DiskRate, DiskWorkload


@dataclass(frozen=True)
class Column:
    """A transport: *name* heads its column, *what* explains it below the table."""

    name: str
    what: str
    rdma: bool


@dataclass
class StorageReport(StepReport):
    """The rates of one kind of storage, by transport and workload."""

    storage: str
    columns: tuple[Column, ...]
    where: dict[str, str] = field(default_factory=dict)  #: what it was measured on
    rates: dict[str, dict[DiskWorkload, DiskRate]] = field(
        default_factory=dict
    )  #: by column's name

    @property
    def workloads(self) -> list[DiskWorkload]:
        """Those with a rate, in the order of measurement."""
        return list(dict.fromkeys(each for rates in self.rates.values() for each in rates))

    def to_json(self) -> dict[str, Any]:
        return {
            "storage": self.storage,
            **self.where,
            "transports": [vars(column) for column in self.columns],
            "results": [
                {"transport": name, **vars(workload), **vars(rate)}
                for name, rates in self.rates.items()
                for workload, rate in rates.items()
            ],
            "notes": self.notes,
            "failures": self.failures,
            "ok": self.ok,
            "elapsed_s": self.elapsed_s,
        }

    def table(self) -> str:
        """Returns the rates, large blocks in MB/s and small ones in requests a second."""
        headings = [self.storage, "", *(column.name for column in self.columns)]
        rows = []
        for workload in self.workloads:
            row = [workload.name, workload.unit]
            for column in self.columns:
                rate = self.rates.get(column.name, {}).get(workload)
                row.append("-" if rate is None else format_number(_shown(workload, rate)))
            rows.append(row)
        return table(headings, rows)


def _shown(workload: DiskWorkload, rate: DiskRate) -> float:
    return rate.bytes_per_s / 1e6 if workload.unit == "MB/s" else rate.operations_per_s


def render(report: StorageReport) -> str:
    """Returns the table, its legend, notes and failures, and the verdict."""
    parts = []
    if report.rates:
        legend = [f"{column.name}: {column.what}" for column in report.columns]
        parts = [report.table(), "\n".join(legend)]
    return report.text(parts, ", ".join(f"{key} {text}" for key, text in report.where.items()))
