# SPDX-License-Identifier: BSD-3-Clause
"""Arguments of `nupa show`, and the loop of --watch."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from nupa.cli.common.argument import add_fabric, add_json, seconds
from nupa.cli.common.command import Subparsers, add_command

if TYPE_CHECKING:
    from nupa.fabric import Fabric

_EPILOG = """\
The speed of a link is nominal: no transfer is slowed down to it (`nupa fault add bandwidth` does
that).  Its Gb/s are the next lower rate of InfiniBand, as in ibstat, ibv_devinfo and sysfs.
Data is counted in words of 4 bytes, as in InfiniBand (port_xmit_data, port_rcv_data).  Errors and
faults are listed if they are not 0, including those of ended programs; --json has all counters.
--counters shows what the fast channel caused at each host's cache: requests (RdOwn, RdOwnNoData,
RdShared) and snoops (SnpData, SnpInv).  The numbers are derived, and a lower bound.

--json has everything, and protection domains, completion queues, shared receive queues and rdma_cm
ids, too.  `rdma res` shows the same under `nupa run`.

examples:
  nupa show
  nupa show --qps --mrs
  nupa show --qps --watch 500ms
  nupa show rack --json | jq '.ports[] | select(.state == "DOWN").name'
  nupa show --json | jq '.mrs | map(.length) | add'
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "show", "show a fabric: hosts, ports, processes, movers, counters", _EPILOG, run
    )
    add_fabric(parser, positional=True)
    parser.add_argument(
        "--qps", action="store_true", help="list queue pairs: type, state, partner, mover"
    )
    parser.add_argument(
        "--mrs", action="store_true", help="list memory regions: size, rights, mover"
    )
    parser.add_argument(
        "--counters", action="store_true", help="show the fast channel as CXL.cache requests, too"
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds(),
        const=1.0,
        metavar="SECONDS",
        help="show it again after this time (default: 1), until Ctrl-C",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if args.watch is None:
        print(_report(args))
        return 0
    drawn = sys.stdout.isatty() and not args.json
    try:
        while True:
            report = _report(args)
            if drawn:
                head = f"{time.strftime('%X')}, every {args.watch:g} s; Ctrl-C ends"
                _redraw(f"{head}\n\n{report}")
            else:
                print(report, end="\n" if args.json else "\n\n", flush=True)
            time.sleep(args.watch)
    except KeyboardInterrupt:
        return 0


def _report(args: argparse.Namespace) -> str:
    from nupa.cli.common.text import as_json
    from nupa.core.channel import channels
    from nupa.fabric import Fabric

    # Opened each time: a fabric of `nupa run` goes with its last user, and this is one.
    with Fabric.open(args.fabric) as fabric:
        shown, open_channels = fabric.show(), channels(fabric)
        shown["interfaces"] = _interfaces(fabric.name)
        shown["machines"] = _machines(fabric)
    if args.json:
        return as_json(shown)
    from nupa.cli.show.tables import tables

    return tables(shown, open_channels, qps=args.qps, mrs=args.mrs, counters=args.counters)


def _redraw(page: str) -> None:
    """Draws over the page before, as much as the terminal has room for."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    lines = page.splitlines()
    if len(lines) >= rows > 1:
        lines[rows - 2 :] = [f"... and {len(lines) - rows + 2} more lines"]
    # Home; each line is cleared behind its end, and all below the last.
    print("\x1b[H" + "".join(f"{line[:columns]}\x1b[K\n" for line in lines) + "\x1b[J", end="")
    sys.stdout.flush()


def _machines(fabric: Fabric) -> list[dict[str, Any]]:
    """Returns the machines that a trunk joins, of which this is one."""
    from nupa.trunk.here import own_hosts

    if not own_hosts(fabric):
        return []
    from nupa.trunk import view

    machines: list[dict[str, Any]] = view.part(fabric.name)["machines"]
    return machines


def _interfaces(name: str) -> list[dict[str, Any]]:
    from nupa.netdev import state

    if name not in state.names():
        return []
    from nupa.netdev.view import interfaces

    return interfaces(name)
