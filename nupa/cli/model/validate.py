# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model validate`: predictions beside published measurements, and their errors."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_json
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.model.common import QUIET_S

if TYPE_CHECKING:
    from nupa.model.validate.judge import Judged, Judgement, Order

_EPILOG = """\
ERROR is the mean absolute relative error of time over the cases of a bar, for the bar `each case`
the largest; LIMIT is what it may be.  Rows of that bar run in the packet engine.
FITTED: figures of profiles were fitted to that file; other files only judge.

examples:
  nupa model validate                               every file
  nupa model validate perftest-ib-hdr-write-lat     each case of one
  nupa model validate --json | jq '.files[] | {file, bars}'
"""


def add_parser(verbs: Subparsers) -> None:
    what = "compare predictions with published measurements"
    parser = add_command(verbs, "validate", what, _EPILOG, run)
    parser.add_argument("file", nargs="*", metavar="FILE", help="calibration file (default: all)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.base.progress import Progress
    from nupa.cli.common.text import print_json
    from nupa.model.validate.files import FILES, find
    from nupa.model.validate.judge import judge, order

    files = [find(name) for name in args.file] or FILES
    reports = []
    with Progress(len(files), quiet_s=QUIET_S) as progress:
        for file in files:
            progress.step(file.name)
            reports.append(judge(file, progress.tick))
    found = order(reports)
    if args.json:
        print_json({"files": [report.shown() for report in reports], "order": found.shown()})
    else:
        print(_text(reports, found, cases=bool(args.file)))
    return 0


def _text(reports: list[Judgement], found: Order, *, cases: bool) -> str:
    parts = [_bars(reports)]
    parts += [
        f"{each.file.name}: left out: {each.file.left_out}"
        for each in reports
        if each.file.left_out
    ]
    parts += [
        f"{each.file.name}: missing: {each.file.missing}" for each in reports if each.file.missing
    ]
    if found.pairs:
        parts.append(
            f"which is faster, where they differ by more than 10 %: right in {found.right} of "
            f"{found.pairs} pairs ({found.share:.1%}; at least {found.limit:.0%} is asked)"
        )
    if cases:
        parts += ["\n" + _cases(each.judged) for each in reports]
    return "\n".join(parts)


def _bars(reports: list[Judgement]) -> str:
    from nupa.cli.common.text import table

    rows = []
    for report in reports:
        for verdict in report.verdicts():
            rows.append(
                (
                    report.file.name,
                    "yes" if report.file.fitted else "no",
                    verdict.bar.name,
                    verdict.cases,
                    f"{verdict.error:.1%}",
                    f"{verdict.bar.limit:.0%}",
                    "yes" if verdict.met else "no",
                    f"{verdict.worst.case.label} {verdict.worst.error:+.0%}",
                )
            )
    head = ("FILE", "FITTED", "BAR", "CASES", "ERROR", "LIMIT", "MET", "WORST CASE")
    return table(head, rows)


def _cases(judged: tuple[Judged, ...]) -> str:
    from nupa.cli.common.text import table

    rows = [
        (
            each.case.label,
            each.case.network_name,
            f"{each.case.measured_ns / 1e3:.2f}",
            f"{each.predicted_ns / 1e3:.2f}",
            f"{each.error:+.1%}",
        )
        for each in judged
    ]
    return table(("CASE", "NETWORK", "MEASURED, us", "PREDICTED, us", "ERROR"), rows)
