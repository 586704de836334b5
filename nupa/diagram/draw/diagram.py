# SPDX-License-Identifier: BSD-3-Clause
"""The contents of a sequence diagram: actors and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from nupa.base.quantity import say_bytes, say_count, say_duration
from nupa.diagram.find.actors import Actor, Actors
from nupa.diagram.find.event import Event
from nupa.diagram.find.events import read_events
from nupa.diagram.find.index import Index
from nupa.diagram.find.transfer import Transfer
from nupa.diagram.find.transmissions import Transmission, transmissions_of
from nupa.packet.tables.record import Flag

#: Records in a diagram; later ones are left out.
RECORDS_MAX = 100_000

_SHOWN = Flag.CORRUPT | Flag.POISON | Flag.DUPLICATE | Flag.DELAYED | Flag.INJECTED | Flag.REPLAYED
_GAP_MEDIANS = 8  # a gap is long from so many times the median of all on ...
_GAP_PART = 20  # ... and at least this part of the whole ...
_GAP_NS_MIN = 1_000  # ... and more than jitter
_GAPS_MIN = 3


@dataclass(slots=True)
class Row:
    """One line of a diagram.  Times begin with the transfer.

    *source* and *target*: places of actors, equal for a record that stays with one; *seen*: places
    between them where it was seen, too.
    """

    time_ns: int
    end_ns: int
    source: int
    target: int
    seen: tuple[int, ...]
    level: str
    events: list[Event]
    gap_ns: int = 0  # the gap before it, if it is long
    is_retry: bool = False
    is_lost: bool = False
    is_error: bool = False
    flags: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.events)

    @property
    def label(self) -> str:
        """The name of the record, in a few words."""
        event = self.events[0]
        if self.count > 1:
            return f"{event.name} × {self.count}"
        if event.psn is not None:
            return f"{event.name} PSN {event.psn}"
        return event.name if event.size_bytes is None else f"{event.name} {_bytes(event)}"

    @property
    def detail(self) -> str:
        """The rest of the fields; may be empty."""
        event = self.events[0]
        parts = []
        if self.count > 1:
            parts += self._folded()
        elif event.psn is not None and event.size_bytes:
            parts.append(_bytes(event))
        if event.address is not None:
            parts.append(f"@{event.address:#x}")
        if self.count == 1:
            parts += event.extra
        elif self.end_ns > self.time_ns:
            parts.append(f"in {say_duration(self.end_ns - self.time_ns)}")
        return ", ".join([*parts, *self.flags])

    @property
    def text(self) -> str:
        """Label and detail."""
        between = " " if self.detail.startswith("@") else ", "
        return f"{self.label}{between}{self.detail}" if self.detail else self.label

    def _folded(self) -> list[str]:
        parts = []
        first, last = self.events[0], self.events[-1]
        if first.psn is not None and last.psn is not None:
            parts.append(f"PSN {first.psn}..{last.psn}")
        sizes = [event.size_bytes for event in self.events if event.size_bytes]
        if sizes and len(set(sizes)) == 1 and len(sizes) == self.count:
            parts.append(f"{sizes[0]} B each")
        elif sizes:
            parts.append(f"{say_bytes(sum(sizes), ' ')} in all")
        return parts

    def to_json(self) -> dict[str, Any]:
        first = self.events[0]
        return {
            "packets": [event.packet for event in self.events],
            "level": self.level,
            "time_ns": self.time_ns,
            "end_ns": self.end_ns,
            "gap_ns": self.gap_ns,
            "source": self.source,
            "target": self.target,
            "seen": list(self.seen),
            "label": self.label,
            "detail": self.detail,
            "count": self.count,
            "psn": first.psn,
            "bytes": sum(event.size_bytes or 0 for event in self.events),
            "retry": self.is_retry,
            "dropped": self.is_lost,
            "error": self.is_error,
        }


@dataclass
class Diagram:
    """A diagram before it is drawn.  *left_out*: records beyond RECORDS_MAX."""

    path: str
    transfer: Transfer
    actors: list[Actor]
    rows: list[Row]
    records: int
    left_out: int

    @property
    def title(self) -> str:
        transfer = self.transfer
        name = f"transfer {transfer.id:#x}" if transfer.id else f"transfer {transfer.number}"
        return f"{name}: {transfer.what}"

    @property
    def subtitle(self) -> str:
        transfer = self.transfer
        parts = [
            f"{transfer.source_text} → {transfer.target_text}",
            say_duration(transfer.duration_ns),
            say_count(self.records, "record"),
            *transfer.flag_names,
        ]
        return ", ".join(parts)

    @property
    def footnotes(self) -> list[str]:
        notes = []
        if self.transfer.acknowledged_by:
            notes.append(
                f"packet {self.transfer.acknowledged_by} acknowledges it together with a later one"
            )
        if self.left_out:
            notes.append(f"{say_count(self.left_out, 'record')} more, not shown")
        return notes

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.path,
            **self.transfer.to_json(),
            "actors": [actor.to_json() for actor in self.actors],
            "rows": [row.to_json() for row in self.rows],
            "left_out": self.left_out,
        }


def read_diagram(index: Index, transfer: Transfer, *, everything: bool = False) -> Diagram:
    """Reads the diagram of a transfer of the index from the file.

    *everything*: each packet is a row, at each port where it was seen.
    """
    packets = index.packets_of(transfer)
    events = read_events(index.path, packets[:RECORDS_MAX])
    return diagram_of(index.path, transfer, events, len(packets), everything=everything)


def diagram_of(
    path: str,
    transfer: Transfer,
    events: Sequence[Event],
    records: int,
    *,
    everything: bool = False,
) -> Diagram:
    """Makes the diagram of these events; *records*: the number of all, with those left out."""
    transmissions = transmissions_of(events, apart=everything)
    columns = Actors(transfer, transmissions)
    rows = _rows(columns, transmissions, everything)
    return Diagram(path, transfer, columns.actors, rows, records, records - len(events))


def _rows(columns: Actors, transmissions: Sequence[Transmission], everything: bool) -> list[Row]:
    if not transmissions:
        return []
    start = transmissions[0].ts_ns
    longest = _longest_usual(transmissions)
    rows: list[Row] = []
    open_rows: dict[object, Row] = {}
    latest = start
    for transmission in transmissions:
        event = transmission.event
        source, target, seen = columns.place(transmission)
        gap = transmission.ts_ns - latest
        latest = max(latest, transmission.ts_ns)
        is_long = gap > longest
        key = None
        if not everything and event.fold is not None and not transmission.is_lost:
            flags = transmission.flags & _SHOWN
            key = (event.fold, source, target, seen, transmission.is_retry, flags)
        if key is None or is_long:
            open_rows.clear()  # later records are not folded into rows before this
        row = open_rows.get(key) if key else None
        if row is not None:
            row.events.append(event)
            row.end_ns = transmission.ts_ns - start
            continue
        time_ns = transmission.ts_ns - start
        row = Row(time_ns, time_ns, source, target, seen, event.level, [event])
        row.gap_ns = gap if is_long else 0
        row.is_retry, row.is_lost = transmission.is_retry, transmission.is_lost
        row.is_error = event.is_error
        row.flags = transmission.flag_names
        rows.append(row)
        if key:
            open_rows[key] = row
    return rows


def _longest_usual(transmissions: Sequence[Transmission]) -> int:
    """Returns the longest gap that is not marked."""
    times = [transmission.ts_ns for transmission in transmissions]
    gaps = sorted(b - a for a, b in pairwise(times) if b > a)
    if len(gaps) < _GAPS_MIN:
        return max(times) - min(times)
    median = gaps[len(gaps) // 2]
    return max(_GAP_MEDIANS * median, (max(times) - min(times)) // _GAP_PART, _GAP_NS_MIN)


def _bytes(event: Event) -> str:
    """Prints the size of a record: exact for packets, with a larger unit for work requests."""
    assert event.size_bytes is not None
    exact = f"{event.size_bytes} B"
    return say_bytes(event.size_bytes, " ") if event.name.startswith("WQE") else exact
