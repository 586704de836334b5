# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fabric transactions`: how many lines a second cross the switch, and what one of them is."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.command import Help

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_EPILOG = """\
A host writes and reads 64 bytes at random places of a region that it made behind a switch: root
port, upstream port, vPPB, decoders, device.  Of two ways the second is a logical device's.

c:       one at a time, each a call in C
packet:  each request, flit, and answer is an object; flits are packed, their CRCs checked, and
         unpacked at each port on the way (128 requests a call)

examples:
  nupa fabric transactions
  nupa fabric transactions --json | jq .packet_write_per_s
  nupa fabric transactions --flits 256 --ways 1
  nupa fabric transactions --show 3     three of them, with their flits, hop by hop
"""


def add_parser(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "transactions",
        help="how many lines a second cross the switch, in C and as flits",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=1.0, metavar="S", help="for each figure (1)"
    )
    parser.add_argument(
        "--ways", type=int, choices=[1, 2], default=2, help="devices that the region has (2)"
    )
    parser.add_argument("--flits", type=int, choices=[68, 256], default=68, help="their bytes (68)")
    parser.add_argument("--show", type=_count, metavar="N", help="print N transactions instead")
    parser.add_argument("--json", action="store_true", help="for scripts: one object")
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: more than 0, and up to 3600")
    return seconds


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: a number from 1 to 1000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    from nupa.cli.common.text import print_json, table
    from nupa.cxl.link.flit import Format
    from nupa.cxl.site import rates

    shape = Format.FLIT_68 if args.flits == 68 else Format.FLIT_256
    if args.show:
        print(rates.show(args.show, ways=args.ways, shape=shape))
        return 0
    found = rates.measure(args.seconds, ways=args.ways, shape=shape)
    if args.json:
        print_json({name: round(value) for name, value in found._asdict().items()})
        return 0
    rows = [
        [name, f"{write / 1e6:.2f}", f"{read / 1e6:.2f}"]
        for name, write, read in (("c", *found[:2]), ("packet", *found[2:]))
    ]
    print(table(["", "WRITES, M/s", "READS, M/s"], rows))
    return 0
