# SPDX-License-Identifier: BSD-3-Clause
"""The calibration files: CSV with a head of `# key: value` lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

from nupa.model.errors import ModelError
from nupa.model.validate.case import Line

_FOLDER = resources.files("nupa.model") / "calibration"


def _walk(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry)
        elif entry.name.endswith(".csv"):
            yield entry


def _files() -> dict[str, Traversable]:
    """Returns all calibration files by name, without .csv."""
    found = {file.name.removesuffix(".csv"): file for file in _walk(_FOLDER)}
    return dict(sorted(found.items()))


def names() -> list[str]:
    """Returns the names of all calibration files, without .csv."""
    return list(_files())


def _text(name: str) -> str:
    files = _files()
    if name not in files:
        raise ModelError(f"no calibration file {name!r}: there are {', '.join(files)}")
    return files[name].read_text(encoding="utf-8")


def head(name: str) -> Mapping[str, str]:
    """Returns its source, hardware, software and notes; several notes are joined by blanks."""
    found: dict[str, str] = {}
    for line in _text(name).splitlines():
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            key = key.strip()
            found[key] = f"{found[key]} {value.strip()}" if key in found else value.strip()
    return found


def lines(name: str) -> list[Line]:
    """Returns its rows, by the names of the columns."""
    return list(csv.DictReader(line for line in _text(name).splitlines() if line[:1] != "#"))
