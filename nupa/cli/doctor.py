# SPDX-License-Identifier: BSD-3-Clause
"""`nupa doctor`: prints what works on this machine, what follows, and what to do."""

from __future__ import annotations

import argparse

from nupa.cli.common.argument import add_json
from nupa.cli.common.command import EXIT_ERROR, Subparsers, add_command

_EPILOG = """\
States: ok; limited: RDMA works, but slower or with less; missing: nothing works without it.
Exit code: 1 if something is missing, else 0.

examples:
  nupa doctor
  nupa doctor --json | jq '.[] | select(.state != "ok")'
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "doctor", "check what this machine can do", _EPILOG, run)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.cli.common.text import print_json, table
    from nupa.doctor.checks import MISSING, OK, check_all

    checks = list(check_all())
    if args.json:
        print_json([check._asdict() for check in checks])
    else:
        rows = [[check.name, check.state, check.found, check.follows] for check in checks]
        print(table(["CHECK", "STATE", "FOUND", "SO"], rows))
        remedies = [[check.name, check.remedy] for check in checks if check.state != OK]
        if remedies:
            print("\n" + table(["CHECK", "WHAT TO DO"], remedies))
    return EXIT_ERROR if any(check.state == MISSING for check in checks) else 0
