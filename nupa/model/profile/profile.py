# SPDX-License-Identifier: BSD-3-Clause
"""Profiles: what is known of one kind of link, adapter, library or medium, read from TOML."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from nupa.model.errors import ModelError
from nupa.model.profile.figure import UNITS, Case, Figure
from nupa.model.profile.kinds import KINDS
from nupa.model.profile.schema import check
from nupa.model.profile.table import Table, read

FILE_BYTES_MAX = 1 << 20
_FOLDER = resources.files("nupa.model") / "profiles"


@dataclass(frozen=True)
class Envelope:
    """What the figures come from: outside it, an answer has a warning.

    *bytes* and *ranks* are the smallest and the largest; *operations* empty: all.
    """

    bytes: tuple[int, int] | None = None
    ranks: tuple[int, int] | None = None
    operations: tuple[str, ...] = ()

    def outside(self, operation: str, size_bytes: int, ranks: int) -> Iterable[str]:
        """Yields a sentence for each way in which that lies outside."""
        if self.operations and operation not in self.operations:
            yield f"{operation} was not measured: {', '.join(self.operations)} were"
        for found, limits, unit in ((size_bytes, self.bytes, "B"), (ranks, self.ranks, "ranks")):
            if limits and not limits[0] <= found <= limits[1]:
                yield f"{found} {unit} is outside {limits[0]} to {limits[1]} {unit}"


@dataclass(frozen=True)
class Profile:
    """Figures by name.  `profile["hop"]` is the value in its dimension's own unit."""

    name: str
    title: str
    kind: str
    figures: Mapping[str, Figure]
    envelope: Envelope = field(default_factory=Envelope)
    notes: tuple[str, ...] = ()
    case: Case = "nominal"
    tables: Mapping[str, Table] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        if name not in self.figures:
            raise ModelError(f"{self.name} has no figure {name!r}: {KINDS[name].meaning}")
        return self.figures[name].at(self.case)

    def get(self, name: str, default: float = 0.0) -> float:
        return self[name] if name in self.figures else default

    def at(self, case: Case) -> Profile:
        """Returns the same with each figure at the end of its range that is best, or worst."""
        return replace(self, case=case)

    def shown(self) -> dict[str, Any]:
        """Returns it as `nupa model profiles NAME --json` prints it."""
        return {
            "name": self.name,
            "title": self.title,
            "kind": self.kind,
            "envelope": {k: v for k, v in vars(self.envelope).items() if v},
            "notes": list(self.notes),
            "figures": {
                name: {"meaning": figure.kind.meaning, **figure.shown()}
                for name, figure in self.figures.items()
            },
            "tables": {name: table.shown() for name, table in self.tables.items()},
        }


def names(kind: str = "") -> list[str]:
    """Returns the names of the profiles that come with NUPA, of one kind or of all."""
    found = sorted(f.name.removesuffix(".toml") for f in _FOLDER.iterdir() if _is_profile(f.name))
    return [name for name in found if not kind or load(name).kind == kind]


@cache
def load(name: str) -> Profile:
    """Reads a profile by its name, or by the path of a TOML file.

    ModelError: there is none of that name, with the nearest; the file is invalid.
    """
    if name.endswith(".toml"):
        path = Path(name)
        try:
            with path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ModelError(f"{name}: {error.strerror}") from error
        if len(data) > FILE_BYTES_MAX:
            raise ModelError(f"{name}: a profile has at most {FILE_BYTES_MAX} bytes")
        return parse(data, name)
    known = sorted(f.name.removesuffix(".toml") for f in _FOLDER.iterdir() if _is_profile(f.name))
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        raise ModelError(
            f"no profile {name!r}"
            + (f": is {near[0]!r} meant?" if near else "")
            + " `nupa model profiles` lists them; a path that ends with .toml is read"
        )
    return parse((_FOLDER / f"{name}.toml").read_bytes(), f"{name}.toml")


def parse(data: bytes, source: str) -> Profile:
    """Checks and converts the text of a profile.  ModelError names *source*, table and key."""
    try:
        table = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ModelError(f"{source}: {error}") from error
    check(table, source)
    base = load(table["base"]) if "base" in table else None
    figures = dict(base.figures) if base else {}
    for name, entry in table["figures"].items():
        figures[name] = _figure(name, entry, source)
    envelope = {key: tuple(value) for key, value in table.get("envelope", {}).items()}
    return Profile(
        name=table["name"],
        title=table["title"],
        kind=table["kind"],
        figures=figures,
        envelope=Envelope(**envelope) if envelope or not base else base.envelope,
        notes=tuple(table.get("notes", ())),
        tables=dict(base.tables if base else {})
        | {name: read(name, entry, source) for name, entry in table.get("tables", {}).items()},
    )


def _is_profile(file_name: str) -> bool:
    return file_name.endswith(".toml")


def _figure(name: str, entry: Mapping[str, Any], source: str) -> Figure:
    kind = KINDS[name]
    scale = UNITS[kind.dimension].get(entry["unit"])
    if scale is None:
        units = ", ".join(UNITS[kind.dimension])
        raise ModelError(f"{source}: {name}: the unit is {entry['unit']!r}: one of {units}")
    low, value, high = (
        float(entry.get(key, entry["value"])) * scale for key in ("low", "value", "high")
    )
    if not low <= value <= high:
        raise ModelError(f"{source}: {name}: low <= value <= high does not hold")
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
