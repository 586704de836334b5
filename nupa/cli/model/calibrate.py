# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model calibrate`: measures this machine, as the profiles here-MOVER and here-netdev."""

from __future__ import annotations

import argparse

from nupa.cli.common.argument import add_mover
from nupa.cli.common.command import Subparsers, add_command
from nupa.core.mover import BETWEEN_PROCESSES

_EPILOG = """\
Measures two processes on a new fabric, for each mover: messages by size, what a post takes, and
many messages in flight.  Measures TCP over nupa_net0 as well, where network namespaces can be made.
It takes 20 seconds for each mover; leave the machine alone meanwhile.  The profiles are written to
$XDG_CONFIG_HOME/nupa/profiles, or ~/.config/nupa/profiles.

examples:
  nupa model calibrate
  nupa model calibrate --mover shared
  nupa model calibrate --netdev
  nupa model replay r --on here          a recording, on the mover that it was recorded on
  nupa model profiles here-shared
"""


def add_parser(verbs: Subparsers) -> None:
    what = "measure this machine: the profiles here-MOVER and here-netdev"
    parser = add_command(verbs, "calibrate", what, _EPILOG, run)
    one = parser.add_mutually_exclusive_group()
    add_mover(one, BETWEEN_PROCESSES, "measure this one alone (default: all that work here)")
    one.add_argument("--netdev", action="store_true", help="measure the netdev alone")


def run(args: argparse.Namespace) -> int:
    """Returns 0: something was measured; 1: nothing could be."""
    import sys

    from nupa.base.progress import Progress
    from nupa.cli.common.command import fail
    from nupa.measure import here, here_netdev
    from nupa.measure.perf import PerfError
    from nupa.measure.versus import NetworkError
    from nupa.model.profile.profile import own_folder
    from nupa.programs.fabric import temporary_fabric
    from nupa.programs.pair import ProgramError

    names = [args.mover] if args.mover else [str(mover) for mover in BETWEEN_PROCESSES]
    if args.netdev:
        names = []
    if not args.mover:
        names.append(here_netdev.NAME)
    measured = 0
    with temporary_fabric("calibrate") as fabric, Progress(len(names)) as progress:
        for name in names:
            progress.step(name)
            try:
                if name == here_netdev.NAME:
                    found = here_netdev.measure(fabric, progress.detail)
                else:
                    found = here.measure(fabric, name, progress.detail)
            except (PerfError, ProgramError, NetworkError) as error:
                fail(f"{name} was left out: {error}")
                continue
            print(here.write(found, own_folder()))
            sys.stdout.flush()
            measured += 1
    return 0 if measured else 1
