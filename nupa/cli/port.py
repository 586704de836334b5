# SPDX-License-Identifier: BSD-3-Clause
"""`nupa port`: takes a link down or up."""

from __future__ import annotations

import argparse

from nupa.cli.common.argument import add_fabric
from nupa.cli.common.command import Subparsers, add_command

_EPILOG = """\
While the link is down, work requests wait.  Those that wait longer than their queue pair's timeout
* retry_cnt complete with a retry error.  If the link is up again in time, nothing is lost.

Windows on memory behind the link are lost before the command returns: loads return all ones.  They
are mapped again once the link is up.

examples:
  nupa port host1 down
  nupa port host1 up
  nupa port gpu7 down --fabric cluster
  nupa port leaf0-spine0 down           a link between two switches
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "port", "take a link down or up", _EPILOG, run)
    parser.add_argument(
        "port", help="a host, by name or number; a port (switch0/3), or a link (switch0-switch1)"
    )
    parser.add_argument("state", choices=["down", "up"])
    add_fabric(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.fabric import Fabric

    with Fabric.open(args.fabric) as fabric:
        fabric.set_port(args.port, args.state == "up")
    return 0
