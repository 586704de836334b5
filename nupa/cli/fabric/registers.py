# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fabric registers`: the register tables of the model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nupa.cli.common.argument import add_json
from nupa.cli.common.command import Subparsers, add_command

if TYPE_CHECKING:
    from nupa.cxl.registers.tables import RegisterTable

_EPILOG = """\
Bits are counted from bit 0 of the byte at OFFSET.  ACCESS is as in PCIe 6.0 7.4 and CXL 3.1:
  RO, RW   read only, read and write   HwInit  set once, before software
  RW1C     a one clears it             WO      reads as 0
  RWO      read only once it is not 0  RWL     read only while it is locked
A final S: a hot reset leaves it as it is.

examples:
  nupa fabric registers                 the tables
  nupa fabric registers hdm             HDM decoders of a device
  nupa fabric registers hdm --json | jq '.[0].fields[] | select(.access == "RWL").name'
"""


def add_parser(verbs: Subparsers) -> None:
    what = "print the register tables: name, offset, bits, access, reset, section"
    parser = add_command(verbs, "registers", what, _EPILOG, run)
    parser.add_argument(
        "block", nargs="*", metavar="BLOCK", help="block to print (default: a list)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.base.errors import LocalError
    from nupa.cli.common.text import print_json, table
    from nupa.cxl.registers.tables import blocks

    known = blocks()
    unknown = [name for name in args.block if name not in known]
    if unknown:
        raise LocalError(f"no block {unknown[0]!r}: there are {', '.join(known)}")
    chosen = [known[name] for name in args.block or known]
    if args.json:
        print_json([_object(each) for each in chosen])
    elif args.block:
        print("\n\n".join(map(_text, chosen)))
    else:
        rows = [(each.name, len(each.rows), each.specification, each.what) for each in chosen]
        print(table(("BLOCK", "FIELDS", "SECTIONS OF", "WHAT"), rows))
    return 0


def _object(block: RegisterTable) -> dict[str, Any]:
    return {
        "block": block.name,
        "what": block.what,
        "specification": block.specification,
        "fields": [
            {
                "name": row.name,
                "offset": row.offset,
                "bits": row.bits,
                "access": str(row.access),
                "reset": row.reset,
                "section": row.section,
            }
            for row in block.rows
        ],
    }


def _text(block: RegisterTable) -> str:
    from nupa.cli.common.text import table

    rows = [
        (row.name, f"{row.offset:#05x}", row.bits, row.access, f"{row.reset:#x}", row.section)
        for row in sorted(block.rows, key=lambda row: row.low)
    ]
    head = ("NAME", "OFFSET", "BITS", "ACCESS", "RESET", "SECTION")
    return f"{block.name}: {block.what} ({block.specification})\n{table(head, rows)}"
