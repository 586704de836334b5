# SPDX-License-Identifier: BSD-3-Clause
"""`nupa shell`: runs a shell or a program with both the network and the verbs of a host."""

from __future__ import annotations

import argparse
import os

from nupa.cli.common.argument import add_fabric, add_mover, add_program, command_of
from nupa.cli.common.command import Subparsers, add_command
from nupa.core.mover import Mover

_EPILOG = """\
The program has the host's nupa_net0, and nupa_rdma0, whose GID 1 is nupa_net0's address.  So it can
use TCP for its handshake and RDMA for its data.  Without a command, $SHELL runs.
Exit code: the program's; 126 or 127 if it cannot be started.  If a signal ends the program, the
same one ends nupa.

examples:
  nupa net up
  nupa shell host0
  nupa shell host1 -- ib_write_bw             on one terminal, and on another:
  nupa shell host0 -- ib_write_bw 10.0.0.2
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "shell",
        "run a shell on a host, with network and RDMA",
        _EPILOG,
        run,
        usage="nupa shell [--fabric NAME] [--mover MOVER] HOST [-- COMMAND ...]",
    )
    add_fabric(parser)
    add_mover(parser, Mover)
    add_program(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.cli.run.inside import run_inside

    command = command_of(args, [os.environ.get("SHELL") or "/bin/sh"])
    return run_inside(args.fabric, args.host, command, verbs=True, mover=args.mover)
