# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model why`: a difference between two fabrics, stage by stage and figure by figure."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_json
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.model.common import ON_HELP, QUIET_S, WORK_HELP, add_question

if TYPE_CHECKING:
    from nupa.model.study.difference import FabricDifference

_FIGURES_MOST = 8
_EFFECT_LEAST = 0.01  # of the difference

_EPILOG = f"""\
STAGE: what each part of the time takes on both fabrics.
FIGURE: the numbers of the profiles that differ.  EFFECT is how much less the second fabric takes
with the first one's number alone; effects do not add up, as one limit may hide another.

{WORK_HELP}
{ON_HELP}
examples:
  nupa model why cxl-gen6x4 ib-ndr --work write:64
  nupa model why nvlink4 nvlink5 --work allreduce:1G --ranks 8
  nupa model why ib-hdr roce-200 --work write:1M --json
"""


def add_parser(verbs: Subparsers) -> None:
    what = "explain why a work takes longer on one fabric than on another"
    parser = add_command(verbs, "why", what, _EPILOG, run)
    parser.add_argument("a", metavar="A", help="the first fabric")
    parser.add_argument("b", metavar="B", help="the second fabric")
    add_question(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.base.progress import Progress
    from nupa.cli.common.text import print_json
    from nupa.model.study.difference import difference

    with Progress(1, quiet_s=QUIET_S, beats=True) as progress:
        progress.step(f"{args.work} on {args.a} and {args.b}")
        found = difference(
            args.work,
            args.a,
            args.b,
            args.ranks,
            algorithm=args.algorithm,
            library=args.library,
            engine=args.engine,
            seed=args.seed,
        )
    print_json(found.shown()) if args.json else print(_text(found, args.a, args.b))
    return 0


def _text(found: FabricDifference, a: str, b: str) -> str:
    from nupa.model.answer.text import say_ns

    one, two = found.a, found.b
    more = two.time_ns - one.time_ns
    verdict = f"{abs(more) / one.time_ns:.0%} {'more' if more > 0 else 'less'}"
    parts = [
        f"{one.work}, {one.ranks} ranks: {say_ns(one.time_ns)} on {a}, {say_ns(two.time_ns)} on "
        f"{b}: {verdict if more else 'the same'}",
        "",
        _stages(found, a, b),
    ]
    if one.algorithm != two.algorithm:
        parts.append("")
        parts += [
            f"algorithm on {name}: {each.algorithm}: {each.reason}"
            for name, each in ((a, one), (b, two))
        ]
    figures = _figures(found, a, b)
    parts += ["", figures] if figures else []
    parts += ["", *found.structure] if found.structure else []
    warnings = dict.fromkeys((*one.warnings, *two.warnings))
    parts += [f"warning: {each}" for each in warnings]
    return "\n".join(parts)


def _signed(ns: float) -> str:
    from nupa.model.answer.text import say_ns

    return f"{'-' if ns < 0 else '+'}{say_ns(abs(ns))}"


def _stages(found: FabricDifference, a: str, b: str) -> str:
    from nupa.cli.common.text import table
    from nupa.model.answer.meaning import meaning
    from nupa.model.answer.text import say_ns

    rows = [
        (
            row.name,
            say_ns(row.a_ns) if row.a_ns else "-",
            say_ns(row.b_ns) if row.b_ns else "-",
            _signed(row.more_ns) if row.more_ns else "0",
            meaning(row.name),
        )
        for row in found.stages
    ]
    return table(("STAGE", a, b, "DIFFERENCE", "MEANING"), rows)


def _figures(found: FabricDifference, a: str, b: str) -> str:
    from nupa.cli.common.text import table

    least = _EFFECT_LEAST * abs(found.b.time_ns - found.a.time_ns)
    several = len({row.level for row in found.figures}) > 1
    rows = [
        (
            f"{row.level}: {row.name}" if several else row.name,
            row.a,
            row.b,
            _signed(row.effect_ns),
            row.meaning,
        )
        for row in found.figures
        if abs(row.effect_ns) >= least
    ][:_FIGURES_MOST]
    return table(("FIGURE", a, b, "EFFECT", "MEANING"), rows) if rows else ""
