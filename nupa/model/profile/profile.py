# SPDX-License-Identifier: BSD-3-Clause
"""Profiles: what is known of one kind of link, adapter, library or medium, read from TOML."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from os.path import normpath
from pathlib import Path
from typing import Any

from nupa.base.quantity import say_bytes
from nupa.model.bounded import read_bytes
from nupa.model.errors import ModelError
from nupa.model.profile.figure import Case, Figure, read_figure
from nupa.model.profile.kinds import KINDS
from nupa.model.profile.schema import check
from nupa.model.profile.table import FigureTable, read

FILE_BYTES_MAX = 1 << 20
_FOLDER = resources.files("nupa.model") / "profiles"


@dataclass(frozen=True)
class Envelope:
    """The cases that the figures come from: outside them, an answer has a warning.

    *bytes* and *ranks* are the smallest and the largest; *operations* empty: all.  An envelope
    without any of them: no curve was measured.
    """

    bytes: tuple[int, int] | None = None
    ranks: tuple[int, int] | None = None
    operations: tuple[str, ...] = ()

    def outside(self, operation: str, size_bytes: int, ranks: int) -> Iterable[str]:
        """Yields a sentence for each way in which that lies outside."""
        if self == Envelope():
            yield "no curve was measured: figures are published, claimed, or of related hardware"
        if self.operations and operation not in self.operations:
            yield f"{operation} was not measured: only {', '.join(self.operations)}"
        if self.bytes and not self.bytes[0] <= size_bytes <= self.bytes[1]:
            yield f"{say_bytes(size_bytes, ' ')} is outside of what was measured: {self.sizes}"
        if self.ranks and not self.ranks[0] <= ranks <= self.ranks[1]:
            least, most = self.ranks
            yield f"{ranks} ranks are outside of what was measured: {least} to {most}"

    @property
    def sizes(self) -> str:
        """Returns the sizes as text; empty: all."""
        if not self.bytes:
            return ""
        least, most = (say_bytes(size, " ") for size in self.bytes)
        return f"{least} to {most}" if least != most else least


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
    tables: Mapping[str, FigureTable] = field(default_factory=dict)
    packets: Mapping[str, str | bool] = field(default_factory=dict)

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
            "packets": dict(self.packets),
            "tables": {name: table.shown() for name, table in self.tables.items()},
        }


def _files(folder: Traversable = _FOLDER) -> Iterator[tuple[str, Traversable]]:
    """Yields the names and files of the profiles that come with NUPA."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry)
        elif entry.name.endswith(".toml"):
            yield entry.name.removesuffix(".toml"), entry


def own_folder() -> Path:
    """Returns where this user's profiles lie, which `nupa model calibrate` writes.

    ModelError: the user has no home directory.
    """
    try:
        config = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    except RuntimeError as error:
        raise ModelError(f"{error}: set HOME or XDG_CONFIG_HOME") from error
    return config / "nupa" / "profiles"


def names(kind: str = "") -> list[str]:
    """Returns the names of the profiles that come with NUPA, of one kind or of all but bases."""
    found = sorted(name for name, _ in _files())
    return [name for name in found if load(name).kind == kind or (not kind and not is_base(name))]


def is_base(name: str) -> bool:
    """Returns whether a profile only holds figures that others share."""
    return load(name).kind == "base"


@cache
def load(name: str) -> Profile:
    """Reads a profile by its name, or by the path of a TOML file.

    ModelError: there is none of that name, with the nearest; the file is invalid.
    """
    return _load(name, ())


def _load(name: str, through: tuple[str, ...]) -> Profile:
    """Reads a profile that those of *through* are based on, the last one directly."""
    if name in through:
        circle = " -> ".join((*through[through.index(name) :], name))
        raise ModelError(f"{through[-1]}: the bases are a circle: {circle}; remove one `base`")
    if name.endswith(".toml"):
        return parse(read_bytes(Path(name), FILE_BYTES_MAX), name, through)
    known = dict(_files())
    own = own_folder() / f"{name}.toml"
    if name not in known and "/" not in name and own.is_file():
        return parse(read_bytes(own, FILE_BYTES_MAX), str(own), through)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        raise ModelError(
            (f"{through[-1]}: " if through else "")
            + f"no profile {name!r}"
            + (f": is {near[0]!r} meant?" if near else ":")
            + " `nupa model profiles` lists them; a path that ends with .toml is read"
        )
    return parse(known[name].read_bytes(), name, through)


def parse(data: bytes, source: str, through: tuple[str, ...] = ()) -> Profile:
    """Checks and converts the text of a profile.  ModelError names *source*, table and key."""
    table = _table(data, source)
    check(table, source)
    base = _base(table["base"], source, through) if "base" in table else None
    figures = dict(base.figures) if base else {}
    for name, entry in table["figures"].items():
        figures[name] = read_figure(name, entry, source, KINDS[name])
    envelope = {key: tuple(value) for key, value in table.get("envelope", {}).items()}
    return Profile(
        name=table["name"],
        title=table["title"],
        kind=table["kind"],
        figures=figures,
        envelope=base.envelope if base and "envelope" not in table else Envelope(**envelope),
        notes=tuple(table.get("notes", ())),
        packets=dict(base.packets if base else {}) | table.get("packets", {}),
        tables=dict(base.tables if base else {})
        | {name: read(name, entry, source) for name, entry in table.get("tables", {}).items()},
    )


def _base(name: str, source: str, through: tuple[str, ...]) -> Profile:
    """Reads a base: by its name, or by a path relative to the file that names it."""
    if name.endswith(".toml"):
        name = normpath(Path(source).parent / name)
    return _load(name, (*through, source))


def _table(data: bytes, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ModelError(f"{source}:{line}: not UTF-8; save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:  # ValueError: a number of 4,300 digits, too
        raise ModelError(f"{source}: not TOML: {error}") from error
