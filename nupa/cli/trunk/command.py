# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of `nupa trunk`."""

from __future__ import annotations

import argparse

from nupa.cli.common.argument import add_fabric, add_json, seconds
from nupa.cli.common.command import Subparsers, add_command

_EPILOG = """\
docs/trunk.md explains cluster files, and when a wire (`nupa wire`) is the better choice.

examples:
  nupa trunk up cluster.toml                 on all machines, by ssh
  srun --ntasks-per-node=1 nupa trunk up cluster.toml --foreground
  nupa run --fabric cluster --host host0 -- ib_send_lat
  nupa trunk ls
  nupa trunk down
"""
_UP_EPILOG = """\
Without --machine and --foreground, each machine's part is started by ssh, which must not ask for a
password, and NUPA must be installed there.  Parts that are up stay; broken ones are repaired.  If a
part does not start, those that this command made are taken down.

Under srun, each task starts its node's part.  A file without [[machine]] takes Slurm's nodes.
With --foreground the part ends with the command.

examples:
  nupa trunk up cluster.toml
  nupa trunk up cluster.toml --ssh "ssh -p 2222"
  nupa trunk up cluster.toml --machine alpha      by hand, on alpha, and on each other machine
"""
_LS_EPILOG = """\
The round trip and the bytes are those between this machine and each other one.

examples:
  nupa trunk ls
  nupa trunk ls --json | jq -r '.machines[] | select(.state == "down").name'
  nupa trunk ls cluster.toml           from a machine that has no part: asks each one, by ssh
"""
_DOWN_EPILOG = """\
A copy of the fabric that programs use stays without its trunk, unless --force is given.

examples:
  nupa trunk down                  on all machines, by ssh
  nupa trunk down --here           this machine's part
  nupa trunk down cluster.toml     from a machine that has no part
"""
_PART_EPILOG = """\
The order comes on stdin, as JSON, and the answer goes to stdout.  `nupa trunk up`, `ls` and `down`
run this on each machine.
"""
WAIT_S = 20.0
_SSH_HELP = (
    'reach machines by this command, given a destination and words as ssh is (default: "ssh -o '
    'BatchMode=yes -o ConnectTimeout=10")'
)


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "trunk", "join machines to one fabric: up, down, ls", _EPILOG)
    add_fabric(parser)
    verbs = parser.add_subparsers(prog="nupa trunk", metavar="COMMAND", required=True)
    _add_up(verbs)
    _add_ls(verbs)
    _add_down(verbs)
    add_command(verbs, "part", "carry out an order about this machine's part", _PART_EPILOG, _part)


def _add_up(verbs: Subparsers) -> None:
    parser = add_command(
        verbs, "up", "start or repair the parts of a cluster's machines", _UP_EPILOG, _up
    )
    parser.add_argument("file", metavar="FILE", help="a cluster file, as cluster.toml")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--machine", metavar="NAME", help="start the part of this machine alone, which is here"
    )
    where.add_argument("--ssh", metavar="COMMAND", help=_SSH_HELP)
    parser.add_argument(
        "--foreground",
        action="store_true",
        help="stay until a signal comes, and take the part down then",
    )
    parser.add_argument(
        "--wait",
        type=seconds(600),
        metavar="SECONDS",
        help=f"wait so long until all machines are joined (default: {WAIT_S:g}; with --machine "
        "or under srun: do not wait)",
    )


def _add_ls(verbs: Subparsers) -> None:
    parser = add_command(verbs, "ls", "list machines: state, round trip, bytes", _LS_EPILOG, _ls)
    parser.add_argument("file", metavar="FILE", nargs="?", help="ask the machines of this file")
    parser.add_argument("--ssh", metavar="COMMAND", help=_SSH_HELP)
    add_fabric(parser)
    add_json(parser)


def _add_down(verbs: Subparsers) -> None:
    parser = add_command(verbs, "down", "take the parts of all machines down", _DOWN_EPILOG, _down)
    parser.add_argument("file", metavar="FILE", nargs="?", help="take those of this file down")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--here", action="store_true", help="take this machine's part down only")
    where.add_argument("--ssh", metavar="COMMAND", help=_SSH_HELP)
    parser.add_argument(
        "--force", action="store_true", help="take copies down even if programs use them"
    )
    add_fabric(parser)


def _up(args: argparse.Namespace) -> int:
    from nupa.cli.trunk.up import run

    return run(args)


def _ls(args: argparse.Namespace) -> int:
    from nupa.cli.trunk.ls import run

    return run(args)


def _down(args: argparse.Namespace) -> int:
    from nupa.cli.trunk.down import run

    return run(args)


def _part(args: argparse.Namespace) -> int:
    import json
    import sys

    from nupa.trunk.part import ORDER_BYTES_MAX, obey

    del args
    print(json.dumps(obey(sys.stdin.buffer.read(ORDER_BYTES_MAX + 1))))
    return 0
