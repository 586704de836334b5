# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model`: commands of the performance model.

Each command is a module in this folder, with add_parser(verbs), and is named below.
"""

from __future__ import annotations

import importlib

from nupa.cli.common.command import Subparsers, add_command

#: The commands, in the order of the help.
COMMANDS: tuple[str, ...] = (
    "predict",
    "compare",
    "why",
    "sweep",
    "power",
    "replay",
    "calibrate",
    "profiles",
    "validate",
)

_EPILOG = """\
examples:
  nupa model compare --work allreduce:1G --on nvlink4,ib-ndr,cxl-gen6x4     one table
  nupa model predict --work write:8..8M --on roce-400                       a line for each size
  nupa model predict --work alltoall:64M --on 'fat_tree(1024,ib-ndr)'       a network, and why
  nupa model replay FOLDER --on ib-ndr --ranks 64            what `nupa run --record FOLDER` has

These commands need no fabric.  docs/model.md explains what they compute and how right it is.
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "model", "predict times on real fabrics: links, collectives, storage", _EPILOG
    )
    verbs = parser.add_subparsers(prog="nupa model", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"nupa.cli.model.{name}").add_parser(verbs)
