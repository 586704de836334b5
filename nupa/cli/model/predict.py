# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model predict`: how long a work takes on a fabric, and why."""

from __future__ import annotations

import argparse

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

_EPILOG = f"""\
{WORK_HELP}
{ON_HELP}
The columns are perftest's or nccl-tests'.  t_min, t_max and BW peak are of the range that follows
from the profiles' figures (RANGE of `nupa model profiles NAME`), not of repeated runs.
--check runs a smaller part in the packet engine, too, and prints the gap.
--json prints what nupa/model/answer/answer.schema.json describes.

examples:
  nupa model predict --work write:8 --on ib-hdr
  nupa model predict --work write-bw:64..8M --on cxl-gen6x4
  nupa model predict --work allreduce:1G --on nvlink4 --ranks 8 --check
  nupa model predict --work write:8 --on ib-ndr --figures 'ib-ndr.hop=90ns'
  nupa model predict --work alltoall:64M --on 'fat_tree(1024,roce-400)' --json
  nupa model predict --work allreduce:1M..1G --on "nvl(72)" --plot x.svg --timeline x.json
"""


def add_parser(verbs: Subparsers) -> None:
    what = "predict the time of a message, a collective or another work, and explain it"
    parser = add_command(verbs, "predict", what, _EPILOG, run)
    parser.add_argument("--on", required=True, metavar="N", help="predict it on this fabric")
    add_question(parser)
    parser.add_argument(
        "--check", action="store_true", help="run a part in the packet engine, and print the gap"
    )
    parser.add_argument(
        "--figures",
        default="",
        metavar="F",
        help="replace figures of profiles, as 'ib-ndr.hop=90ns;ib-ndr.rate=800Gb/s'",
    )
    add_drawings(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.base.progress import Progress
    from nupa.cli.common.text import print_json
    from nupa.model.answer.text import text
    from nupa.model.study.question import network_of, predict, works_of

    works = works_of(args.work, args.algorithm, args.library)
    network = network_of(args.on, args.ranks)
    answers = []
    with Progress(len(works), quiet_s=QUIET_S, beats=True) as progress:
        for work in works:
            progress.step(work.name)
            answers.append(
                predict(
                    work,
                    network,
                    engine=args.engine,
                    check=args.check,
                    seed=args.seed,
                    spans=bool(args.timeline),
                    figures=args.figures,
                    tick=lambda so_far: progress.detail(
                        f"{so_far.completed} of {so_far.operations} operations"
                    ),
                )
            )
    write_drawings(args, answers)
    if args.json:
        print_json(answers[0].shown() if len(works) == 1 else [each.shown() for each in answers])
    else:
        print(text(answers))
    return 0
