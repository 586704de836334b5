# SPDX-License-Identifier: BSD-3-Clause
"""`nupa events`: prints the changes of a fabric, as they were or as they happen."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric, add_json, seconds, whole
from nupa.cli.common.command import Subparsers, add_command

if TYPE_CHECKING:
    from nupa.fabric import FabricEvent

_EPILOG = """\
Events are numbered from 1; a fabric keeps its last 4096.  They tell of tenants, partitions,
members, states of hosts, ports, faults, rates, and refusals by a quota or the admission policy.

With --follow, --json prints an object on each line.

examples:
  nupa events
  nupa events --follow                  from now on; with --after 0 the old ones first
  nupa events --after 17 --json | jq '.[] | select(.severity != "ok")'
  nupa events --follow --for 30s --json
"""


def add_parser(subparsers: Subparsers) -> None:
    what = "print what changed: tenants, partitions, hosts, ports, faults"
    parser = add_command(subparsers, "events", what, _EPILOG, run)
    parser.add_argument("--follow", action="store_true", help="print events as they happen")
    parser.add_argument(
        "--after", type=whole, metavar="N", help="print events later than this number"
    )
    parser.add_argument(
        "--for", dest="for_s", type=seconds(), metavar="TIME", help="with --follow: end after this"
    )
    add_json(parser)
    add_fabric(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.cli.common.text import print_json
    from nupa.fabric import Fabric

    if args.for_s is not None and not args.follow:
        args.parser.error("--for is for --follow")
    with Fabric.open(args.fabric) as fabric:
        if args.follow:
            for event in fabric.events.follow(args.after, args.for_s):
                _print_line(event, as_json=args.json)
            return 0
        events = fabric.events.read(args.after or 0)
        if args.json:
            print_json([_plain(event) for event in events])
        for event in () if args.json else events:
            _print_line(event, as_json=False)
    return 0


def _print_line(event: FabricEvent, *, as_json: bool) -> None:
    """Prints and flushes, since a reader of a pipe waits for the line."""
    if as_json:
        import json

        print(json.dumps(_plain(event)), flush=True)
        return
    at = time.strftime("%H:%M:%S", time.localtime(event.time_ns // 10**9))
    ms = event.time_ns // 10**6 % 1000
    mark = "" if event.severity == "ok" else f"{event.severity}: "
    print(f"{event.seq:>5}  {at}.{ms:03}  {event.kind:<18}  {mark}{event.text}", flush=True)


def _plain(event: FabricEvent) -> dict[str, object]:
    return event._asdict() | {"severity": str(event.severity)}
