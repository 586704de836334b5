# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model calibrate`: measures this machine, as the profiles here-MOVER."""

from __future__ import annotations

import argparse

from nupa.cli.common.argument import add_mover
from nupa.cli.common.command import Subparsers, add_command
from nupa.core.mover import BETWEEN_PROCESSES

_EPILOG = """\
Measures two processes on a new fabric, for each mover: latency of write, send and read, message
rate, and what a post takes.  It takes some seconds for each mover; leave the machine alone
meanwhile.  The profiles are written to $XDG_CONFIG_HOME/nupa/profiles, or ~/.config/nupa/profiles.

examples:
  nupa model calibrate
  nupa model calibrate --mover shared
  nupa model replay r --on here          a recording, on the mover that it was recorded on
  nupa model profiles here-shared
"""


def add_parser(verbs: Subparsers) -> None:
    what = "measure this machine: the profiles here-MOVER"
    parser = add_command(verbs, "calibrate", what, _EPILOG, run)
    add_mover(parser, BETWEEN_PROCESSES, "measure this one alone (default: all that work here)")


def run(args: argparse.Namespace) -> int:
    """Returns 0: at least one mover was measured; 1: none."""
    import sys

    from nupa.base.progress import Progress
    from nupa.cli.common.command import fail
    from nupa.measure.here import measure, write
    from nupa.measure.perf import PerfError
    from nupa.model.profile.profile import own_folder
    from nupa.programs.fabric import temporary_fabric

    movers = [args.mover] if args.mover else [str(mover) for mover in BETWEEN_PROCESSES]
    measured = 0
    with temporary_fabric("calibrate") as fabric, Progress(len(movers)) as progress:
        for mover in movers:
            progress.step(mover)
            try:
                found = measure(fabric, mover, progress.detail)
            except PerfError as error:
                fail(f"{mover} was left out: {error}")
                continue
            print(write(found, own_folder()))
            sys.stdout.flush()
            measured += 1
    return 0 if measured else 1
