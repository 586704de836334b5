# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fabric transactions`: how many lines a second cross the switch."""

from __future__ import annotations

import argparse

from nupa.cli.common.argument import add_json, seconds
from nupa.cli.common.command import Subparsers, add_command

_EPILOG = """\
A host writes and reads 64 bytes at random places of a region behind a switch: root port, upstream
port, vPPB, decoders, device.  Each request is a call in C.  With two ways, the second device of the
region is a logical device.

examples:
  nupa fabric transactions
  nupa fabric transactions --ways 1
  nupa fabric transactions --json | jq .c_write_per_s
"""


def add_parser(verbs: Subparsers) -> None:
    what = "measure how many lines a second cross the switch"
    parser = add_command(verbs, "transactions", what, _EPILOG, run)
    parser.add_argument(
        "--seconds",
        type=seconds(3600),
        default=1.0,
        metavar="S",
        help="measure each figure for S seconds (default: 1)",
    )
    parser.add_argument(
        "--ways",
        type=int,
        choices=[1, 2],
        default=2,
        help="interleave the region over 1 or 2 devices (default: 2)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.cli.common.text import print_json, table
    from nupa.cxl.site import rates

    found = rates.measure(args.seconds, ways=args.ways)
    if args.json:
        print_json({name: round(value) for name, value in found._asdict().items()})
        return 0
    rows = [
        ["calls in C, each of 64 B", *(f"{rate / 1e6:.2f}" for rate in found)],
    ]
    print(table(["CXL.mem REQUESTS", "WRITES, M/s", "READS, M/s"], rows))
    return 0
