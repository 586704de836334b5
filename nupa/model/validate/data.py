# SPDX-License-Identifier: BSD-3-Clause
"""The calibration files: CSV with a head of `# key: value` lines."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from importlib import resources

from nupa.model.errors import ModelError
from nupa.model.validate.case import Line

_FOLDER = resources.files("nupa.model") / "calibration"


def names() -> list[str]:
    """Returns the names of all calibration files, without .csv."""
    return sorted(
        file.name.removesuffix(".csv") for file in _FOLDER.iterdir() if file.name.endswith(".csv")
    )


def _text(name: str) -> str:
    try:
        return (_FOLDER / f"{name}.csv").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelError(f"no calibration file {name!r}: there are {', '.join(names())}") from None


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
