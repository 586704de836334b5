# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm`: its parser, from the table of commands."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable

from nupa.cli.common.argument import add_fabric, add_json
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.fm import serve
from nupa.cli.fm.table import COMMANDS, FmCommand

_EPILOG = """\
`nupa fm serve` models a switch with a virtual switch for each host of a fabric.  It answers the FM
API of CXL 3.1 at a socket that only you may use.  All other commands ask it.

examples:
  nupa fm serve --sld 1G --mld 4G &     two devices, one of them for up to 16 hosts
  nupa fm ls                            ports and virtual switches
  nupa fm bind 0 1 2                    host 0 gets the device at port 2 as its vPPB 1
  nupa fm alloc 3 0 1G 512M             LDs 0 and 1 of the device at port 3 get memory
  nupa fm bind 1 0 3 --ld 1             host 1 gets LD 1 of it
  nupa fm dcd-add 3 0 0 64M             LD 0 there gets dynamic capacity (serve --dcd 1G)
  nupa fm unbind 0 1
  nupa fm events --follow               print events as they happen
"""


def add_parser(subparsers: Subparsers) -> None:
    what = "manage the CXL switch: bind devices to hosts, give memory to logical devices"
    parser = add_command(subparsers, "fm", what, _EPILOG)
    add_fabric(parser)
    verbs = parser.add_subparsers(prog="nupa fm", metavar="COMMAND", required=True)
    serve.add_options(_add(verbs, "serve", serve.HELP, serve.EPILOG, serve.run))
    for command in COMMANDS:
        _add_asking(verbs, command)


def _add(
    verbs: Subparsers,
    name: str,
    text: str,
    epilog: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = add_command(verbs, name, text, epilog, run)
    add_fabric(parser)
    return parser


def _add_asking(verbs: Subparsers, command: FmCommand) -> None:
    """Adds a command that asks the server of a fabric."""

    def run(args: argparse.Namespace) -> int:
        from nupa.cxl.fm.client.fabric_manager import FabricManager

        module, _, function = command.run.partition(".")
        work = getattr(importlib.import_module(f"nupa.cli.fm.{module}"), function)
        with FabricManager.open(args.fabric) as fm:
            work(args, fm)
        return 0

    parser = _add(verbs, command.name, command.help, command.epilog, run)
    if command.json:
        add_json(parser)
    for name, options in command.arguments:
        parser.add_argument(name, **options)
