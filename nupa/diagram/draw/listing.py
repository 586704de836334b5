# SPDX-License-Identifier: BSD-3-Clause
"""Prints the transfers of a capture as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nupa.base.quantity import say_count, say_duration
from nupa.core.levels import LEVELS
from nupa.diagram.draw.time_unit import TimeUnit
from nupa.diagram.find.index import Index
from nupa.diagram.find.transfer import Mark, Transfer

#: Keys of a list; all but the start sort from the largest down.
SORTS: dict[str, Callable[[Transfer], Any]] = {
    "start": lambda transfer: transfer.number,
    "duration": lambda transfer: (-transfer.duration_ns, transfer.number),
    "bytes": lambda transfer: (-transfer.length, transfer.number),
    "records": lambda transfer: (-transfer.records, transfer.number),
}
#: Headings of the columns that count records, by level.
_COUNTED = {
    "tlp": "TLPS",
    "queue": "QUEUE RECORDS",
    "transport": "PACKETS",
    "net": "FRAMES",
    "cache": "CACHE MESSAGES",
}
_RIGHT = {"#", "START", "DURATION", *_COUNTED.values()}


def choose(
    transfers: Iterable[Transfer],
    *,
    only: Sequence[Mark] = (),
    slowest: int = 0,
    sort: str | None = None,
) -> list[Transfer]:
    """Chooses and sorts transfers.

    *only*: those with one of these marks.
    *slowest*: so many of the slowest; 0: all.
    *sort*: one of SORTS; None: the slowest first with *slowest*, else the order of their starts.
    """
    wanted = sum(set(only))
    chosen = [one for one in transfers if not wanted or one.marks & wanted]
    if slowest:
        chosen = sorted(chosen, key=SORTS["duration"])[:slowest]
    if sort or not slowest:
        chosen.sort(key=SORTS[sort or "start"])
    return chosen


def render(index: Index, transfers: Sequence[Transfer]) -> str:
    """Prints a table below a summary of the file."""
    lines = [_summary(index, len(transfers))]
    if transfers:
        lines += ["", *_table(index, transfers)]
    return "\n".join(lines)


def to_json(index: Index, transfers: Sequence[Transfer]) -> dict[str, Any]:
    return {
        "file": index.path,
        "packets": index.packets,
        "unassigned": index.unassigned,
        "start_ns": index.first_ns,
        "damage": str(index.damage) if index.damage else None,
        "transfers": [transfer.to_json() for transfer in transfers],
    }


def _summary(index: Index, shown: int) -> str:
    count = len(index.transfers)
    end_ns = max((one.end_ns for one in index.transfers), default=index.first_ns)
    parts = [say_count(count, "transfer") + (f", {shown} shown" if shown != count else "")]
    parts.append(f"{say_count(index.packets, 'packet')} in {say_duration(end_ns - index.first_ns)}")
    if index.unassigned:
        verb = "belongs" if index.unassigned == 1 else "belong"
        parts.append(f"{say_count(index.unassigned, 'packet')} {verb} to no transfer")
    if not index.packets:
        return f"{index.path}: no packets"
    return f"{index.path}: {'; '.join(parts)}"


def _table(index: Index, transfers: Sequence[Transfer]) -> list[str]:
    begin = min(index.first_ns, min(one.start_ns for one in transfers))
    unit = TimeUnit(max(one.start_ns for one in transfers) - begin)
    columns: dict[str, list[str]] = {"#": [str(one.number) for one in transfers]}
    if any(one.id for one in transfers):
        columns["TRANSFER"] = [f"{one.id:#x}" if one.id else "-" for one in transfers]
    columns["FROM"] = [one.source_text for one in transfers]
    columns["TO"] = [one.target_text for one in transfers]
    columns["WHAT"] = [one.what for one in transfers]
    columns["START"] = [f"{unit.text(one.start_ns - begin)} {unit.name}" for one in transfers]
    columns["DURATION"] = [say_duration(one.duration_ns) for one in transfers]
    for name, level in LEVELS.items():
        if any(one.counts[level] for one in transfers):
            columns[_COUNTED[name]] = [str(one.counts[level] or "-") for one in transfers]
    if any(one.marks for one in transfers):
        columns["FLAGS"] = [", ".join(one.flag_names) for one in transfers]
    widths = {head: max(len(head), *map(len, cells)) for head, cells in columns.items()}
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if head in _RIGHT else cell.ljust(width)
            for cell, (head, width) in zip(row, widths.items(), strict=True)
        ).rstrip()
        for row in rows
    ]
