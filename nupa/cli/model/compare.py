# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model compare`: one work on several fabrics, in one table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_json
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.model.common import (
    ON_HELP,
    QUIET_S,
    WORK_HELP,
    add_drawings,
    add_question,
    write_drawings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nupa.model.answer.answer import Answer
    from nupa.model.study.compare import Comparison

_EPILOG = f"""\
{WORK_HELP}
{ON_HELP}
A fabric on which the work is impossible has a line below the table, with the reason.
SLOWER is the time over that of the fastest fabric.  RANGE follows from the profiles' figures.

examples:
  nupa model compare --work allreduce:1G --ranks 8 --on nvlink4,ualink-200g,ib-ndr,roce-400
  nupa model compare --work write:64 --on cxl-gen5x4,cxl-gen6x4,nupa-448,ib-ndr --plot x.svg
  nupa model compare --work alltoall:64M --on 'fat_tree(64,roce-400),fat_tree(64,ib-ndr)' --json
"""


def add_parser(verbs: Subparsers) -> None:
    what = "compare fabrics for one work, in one table"
    parser = add_command(verbs, "compare", what, _EPILOG, run)
    parser.add_argument("--on", required=True, metavar="A,B,...", help="compare these fabrics")
    add_question(parser)
    add_drawings(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.base.progress import Progress
    from nupa.cli.common.text import print_json
    from nupa.model.study.compare import compare
    from nupa.model.study.question import fabrics

    names = fabrics(args.on)
    with Progress(len(names), quiet_s=QUIET_S, beats=True) as progress:
        found = compare(
            args.work,
            names,
            args.ranks,
            algorithm=args.algorithm,
            library=args.library,
            engine=args.engine,
            seed=args.seed,
            step=progress.step,
        )
    write_drawings(args, list(found.answers.values()))
    print_json(found.shown()) if args.json else print(_text(found))
    return 0


def _text(found: Comparison) -> str:
    from nupa.cli.common.text import table

    collective = any(each.form == "collective" for each in found.answers.values())
    rows = [_row(name, each, found, collective) for name, each in found.answers.items()]
    rates = ("ALGBW, GB/s", "BUSBW, GB/s") if collective else ("RATE, GB/s",)
    head = (
        "FABRIC",
        "RANKS",
        "TIME",
        "RANGE",
        "SLOWER",
        *rates,
        "ENERGY",
        "ALGORITHM",
        "MOST OF IT",
    )
    parts = [f"{found.work}", table(head, rows)]
    parts += [f"{name}: impossible: {error}" for name, error in found.errors.items()]
    parts += _warnings(found)
    return "\n".join(parts)


def _warnings(found: Comparison) -> Iterator[str]:
    """Yields each warning once, with all profiles, or fabrics, that it is of."""
    of: dict[str, dict[str, None]] = {}
    for name, each in found.answers.items():
        for warning in each.warnings:
            profile, colon, text = warning.partition(": ")
            if not colon or " " in profile:
                profile, text = name, warning
            of.setdefault(text, {})[profile] = None
    for text, names in of.items():
        yield f"warning: {', '.join(names)}: {text}"


def _row(name: str, one: Answer, found: Comparison, collective: bool) -> tuple[object, ...]:
    from nupa.model.answer.text import say_energy, say_ns

    stage, share = next(iter(one.shares().items()))
    rates = (
        [one.algbw_bytes_per_s, one.busbw_bytes_per_s] if collective else [one.algbw_bytes_per_s]
    )
    low_high = f"{say_ns(one.low_ns)} to {say_ns(one.high_ns)}"
    return (
        name,
        one.ranks,
        say_ns(one.time_ns),
        low_high if one.low_ns < one.high_ns else "-",
        f"{one.time_ns / found.best_ns:.3g} x",
        *(f"{rate / 1e9:.4g}" for rate in rates),
        say_energy(one.energy_pj) if one.energy_pj else "-",
        one.algorithm,
        f"{share:.0%} {stage}",
    )
