# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fabric`: commands that show the CXL model.

Each command is a module in this folder, with add_parser(verbs), and is named below.
"""

from __future__ import annotations

import importlib

from nupa.cli.common.command import Subparsers, add_command

#: The commands, in the order of the help.
COMMANDS: tuple[str, ...] = ("registers", "transactions")

_EPILOG = """\
These commands need no fabric.  `nupa up`, `nupa show` and `nupa ls` are for fabrics that are up,
`nupa fm` is for the bindings of their devices.
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "fabric", "show the CXL model: its registers and its speed", _EPILOG
    )
    verbs = parser.add_subparsers(prog="nupa fabric", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"nupa.cli.fabric.{name}").add_parser(verbs)
