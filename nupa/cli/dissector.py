# SPDX-License-Identifier: BSD-3-Clause
"""`nupa dissector`: installs the dissector of NUPA's link type in Wireshark and tshark."""

from __future__ import annotations

import argparse

from nupa.cli.common.command import Subparsers, add_command

_DESCRIPTION = """\
Wireshark shows the transport and net records of a capture by itself.  For TLPs, CXL.mem
messages and queue entries it needs a Lua script.  This command installs the script in the
folder that `tshark -G folders` names for such scripts.  docs/packet.md has the format.
"""
_EPILOG = """\
examples:
  nupa dissector --install             for this user's Wireshark and tshark, from their next start
  nupa dissector --install --to DIR    into another folder of Lua scripts
  nupa dissector --uninstall           removes it again
  tshark -X lua_script:$(nupa dissector --path) -r x.pcapng        for once, without installing
  tshark -r x.pcapng -Y 'nupa.tlp.length > 16 && nupa.transfer == 0x5'
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "dissector",
        "install Wireshark's dissector of captures",
        _EPILOG,
        run,
        description=_DESCRIPTION,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--install", action="store_true", help="install it in Wireshark's folder")
    what.add_argument("--uninstall", action="store_true", help="remove it from that folder")
    what.add_argument("--path", action="store_true", help="print the path of a copy in your cache")
    parser.add_argument("--to", metavar="DIR", help="use another folder")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from nupa.packet.wireshark import dissector

    if args.path:
        print(dissector.cached())
        return 0
    folder = Path(args.to) if args.to is not None else dissector.plugin_folder()
    if args.install:
        print(f"installed: {dissector.install(folder)}")
    elif removed := dissector.uninstall(folder):
        print(f"removed: {removed}")
    else:
        print(f"nothing to remove: {folder / dissector.NAME} does not exist")
    return 0
