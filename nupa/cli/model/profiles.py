# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model profiles`: figures of fabrics, media and libraries, with their sources."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_json
from nupa.cli.common.command import Subparsers, add_command

if TYPE_CHECKING:
    from nupa.model.profile.figure import Figure
    from nupa.model.profile.profile import Profile
    from nupa.model.profile.table import FigureTable

_EPILOG = """\
Rates are of one direction.  Of each figure, its unit, source and confidence are printed:
  measured    raw output that was published, or derived from it
  published   a specification, a paper, source code
  vendor      a claim of the maker or of a consortium
  assumed     an estimate of this project, whose source says why
RANGE: where sources differ, the least and the largest value; predictions have a range from it.
FITTED: the calibration files that a value was fitted to (`nupa model validate`).

examples:
  nupa model profiles                   a table of all
  nupa model profiles ib-hdr            each figure of one
  nupa model profiles ./mine.toml       checks a file, and prints it
  nupa model profiles cpo --json | jq .figures.energy
"""


#: The tables of the list: kinds of profiles, and the figures of their columns.
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "fabric": {"RATE": "rate", "SWITCH": "hop", "DOMAIN": "domain"},
    "medium": {
        "REACH": "reach",
        "LATENCY": "conversion",
        "ENERGY": "energy",
        "PRICE": "price",
        "YEAR": "year",
    },
    "drive": {"READ": "read_stream", "WRITE": "write_stream", "LATENCY": "read_latency"},
    "processor": {"FLOPS": "flops", "MEMORY": "memory", "RATE": "memory_rate"},
    "library": {},
}
_UNMEASURED = "no curve was measured: predictions have a warning"


def add_parser(verbs: Subparsers) -> None:
    what = "print the figures of fabrics and media, with source, confidence and range"
    parser = add_command(verbs, "profiles", what, _EPILOG, run)
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="profile, or path of one that ends with .toml"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.cli.common.text import print_json
    from nupa.model.profile.profile import load, names

    if args.name:
        profile = load(args.name)
        print_json(profile.shown()) if args.json else print(_text(profile))
        return 0
    profiles = [load(name) for name in names()]
    if args.json:
        print_json([profile.shown() for profile in profiles])
        return 0
    parts = [_of_kind(profiles, kind, columns) for kind, columns in _COLUMNS.items()]
    print("\n\n".join(part for part in parts if part))
    return 0


def _shown(profile: Profile, name: str) -> str:
    """Returns a figure in the unit of its file, or - where the profile has none."""
    if name not in profile.figures:
        return "-"
    figure = profile.figures[name]
    return f"{_number(figure, figure.value)} {figure.unit}".removesuffix(" 1")


def _number(figure: Figure, value: float) -> str:
    from nupa.model.profile.figure import UNITS

    return f"{value / UNITS[figure.kind.dimension][figure.unit]:.6g}"


def _of_kind(profiles: list[Profile], kind: str, columns: Mapping[str, str]) -> str:
    from nupa.cli.common.text import table

    rows = [
        (each.name, *(_shown(each, figure) for figure in columns.values()), each.title)
        for each in profiles
        if each.kind == kind
    ]
    return table((kind.upper(), *columns, "TITLE"), rows) if rows else ""


def _text(profile: Profile) -> str:
    """Returns all that is known of a profile."""
    from nupa.cli.common.text import table

    parts = [f"{profile.name}: {profile.title}"]
    if profile.kind == "fabric":
        envelope = _envelope(profile)
        parts.append(
            f"from {envelope}; predictions beyond have a warning" if envelope else _UNMEASURED
        )
    parts += profile.notes
    rows = [
        (
            name,
            _shown(profile, name),
            _range(figure),
            figure.confidence,
            ", ".join(figure.fitted) or "-",
            figure.source,
        )
        for name, figure in profile.figures.items()
    ]
    if rows:
        head = ("FIGURE", "VALUE", "RANGE", "CONFIDENCE", "FITTED", "SOURCE")
        parts.append("\n" + table(head, rows))
    if profile.packets:
        packets = ", ".join(f"{name} {_word(value)}" for name, value in profile.packets.items())
        parts.append(f"\npackets: {packets}")
    parts += ["\n" + _table(each) for each in profile.tables.values()]
    return "\n".join(parts)


def _word(value: str | bool) -> str:
    return value if isinstance(value, str) else ("no", "yes")[value]


def _range(figure: Figure) -> str:
    if (figure.low, figure.high) == (figure.value, figure.value):
        return "-"
    return f"{_number(figure, figure.low)} to {_number(figure, figure.high)}"


def _envelope(profile: Profile) -> str:
    envelope = profile.envelope
    found = [envelope.sizes] if envelope.sizes else []
    if envelope.ranks:
        least, most = envelope.ranks
        found.append(f"{least} to {most} ranks" if least != most else f"{least} ranks")
    if envelope.operations:
        found.append(" and ".join(envelope.operations))
    return ", ".join(found)


def _table(found: FigureTable) -> str:
    from nupa.cli.common.text import table

    shown = found.shown()
    fitted = f"; fitted to {', '.join(found.fitted)}" if found.fitted else ""
    unit = "" if found.unit == "1" else f", in {found.unit}"
    rows = [(name, *(f"{cell:g}" for cell in row)) for name, row in shown["rows"].items()]
    return (
        f"{found.name}{unit}: {found.kind.meaning} ({found.confidence}: {found.source}{fitted})\n"
        + table(("", *found.columns), rows)
    )
