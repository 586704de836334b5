# SPDX-License-Identifier: BSD-3-Clause
"""`nupa top`: a fabric at work, on a terminal or as text."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric, add_json, seconds
from nupa.cli.common.command import Subparsers, add_command, exit_by_signals, fail

if TYPE_CHECKING:
    from nupa.live import Snapshot, Snapshots

_EPILOG = """\
On a terminal it needs textual: `pip install nupa[top]`.  --once and --json do not.  `?` shows the
keys: Tab for the next table, s to sort, / to filter, f to freeze, q to quit.

It reads shared memory and changes nothing.  It does not keep a fabric up; a fabric that goes and
comes again is followed.  docs/serve.md has the keys of --json.

examples:
  nupa top
  nupa top rack --interval 250ms
  nupa top --once                                        tables, with rates over one second
  nupa top --json | jq -c '[.time_ns, .rates.tenants]'   a line each second
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "top", "watch hosts, links, queue pairs, tenants and rates", _EPILOG, run
    )
    add_fabric(parser, positional=True)
    parser.add_argument(
        "--interval",
        type=seconds(3600),
        default=1.0,
        metavar="SECONDS",
        help="read the fabric after this time again (default: 1)",
    )
    parser.add_argument("--once", action="store_true", help="print once, and end")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.live import Snapshots

    if args.once or args.json:
        with Snapshots(_name(args), args.interval) as snapshots:
            return _print(snapshots, once=args.once, as_json=args.json)
    # textual draws on stderr.
    if not all(file.isatty() for file in (sys.stdin, sys.stdout, sys.stderr)):
        return fail("top draws on a terminal, and there is none: --once and --json print text")
    try:
        from nupa.live.top.app import TopApp
    except ImportError as error:
        return fail(f"top needs {error.name}, which is not installed: `pip install nupa[top]`")
    with Snapshots(_name(args), args.interval) as snapshots:
        # Until the app has handlers of its own, which also restore the terminal.
        exit_by_signals()
        return TopApp(snapshots).run() or 0


def _name(args: argparse.Namespace) -> str:
    """Returns the name of the fabric, which is there now; it may go later."""
    from nupa.live import Observed

    with Observed.open(args.fabric) as fabric:
        return args.fabric or fabric.name


def _print(snapshots: Snapshots, *, once: bool, as_json: bool) -> int:
    import json

    # The first has no rates.
    skipped = once
    try:
        for snapshot in snapshots.follow():
            if skipped:
                skipped = False
                continue
            if snapshot.error and once:
                return fail(snapshot.error)
            if as_json:
                print(json.dumps(snapshot.as_dict()), flush=True)
            else:
                print(_tables(snapshot))
            if once:
                break
    except KeyboardInterrupt:
        return 0
    return 0


def _tables(snapshot: Snapshot) -> str:
    """Returns all tables that have rows."""
    from nupa.cli.common.text import table
    from nupa.live.top.tables import TABLES
    from nupa.live.top.view import TopView

    view = TopView()
    view.put(snapshot)
    parts = [view.head()]
    for name, each in TABLES.items():
        view.go(name)
        rows = [[cell.text for cell in row.cells] for row in each.rows(snapshot)]
        if rows:
            parts.append(f"{name}\n{table(list(each.columns), rows)}")
    return "\n\n".join(parts)
