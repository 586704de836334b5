# SPDX-License-Identifier: BSD-3-Clause
"""`nupa perf`: measures latency and bandwidth between two hosts, by NUPA's own loops."""

from __future__ import annotations

import argparse
from typing import Literal

from nupa.cli.common.argument import add_json, add_mover
from nupa.cli.common.command import Subparsers, add_command, fail
from nupa.core.mover import BETWEEN_PROCESSES

_EPILOG = """\
Starts two processes on two hosts, on two cores if there are two.  Without --fabric they get a new
fabric.  The loops are in C.  All data that arrives is checked.

lat: one operation at a time.  Half a round trip for write and send, the whole operation for read
     and atomic, in microseconds; typical is the median.
bw:  --depth operations outstanding.  MB (10^6 bytes) and million messages a second.

examples:
  nupa perf write lat                          8 bytes, over RC, by the best mover
  nupa perf send bw --size all --qp-type UD    1 byte to 4 KiB, in datagrams
  nupa perf read bw --size 1048576 --mover relay
  nupa perf write bw --fabric rack --hosts host3,host17
  nupa perf write lat --json | jq '.results[0].latency_typical_us'
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "perf", "measure latency and bandwidth between two hosts", _EPILOG, run
    )
    parser.add_argument("operation", choices=["write", "read", "send", "atomic"])
    parser.add_argument("kind", choices=["lat", "bw"])
    parser.add_argument(
        "--size",
        type=_size,
        metavar="N|all",
        help="send N bytes, or all powers of two to 8 MiB (default: lat 8, bw 65536)",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="run N operations for each size (default: fewer of larger ones)",
    )
    add_mover(parser, BETWEEN_PROCESSES, "force how bulk data moves (default: the best)")
    parser.add_argument("--fabric", metavar="NAME", help="use this fabric (default: a new one)")
    parser.add_argument(
        "--hosts",
        type=_hosts,
        metavar="A,B",
        help="use A as the active host, B as the passive (default: the first two)",
    )
    parser.add_argument(
        "--qp-type",
        choices=["RC", "UC", "UD"],
        default="RC",
        help="use this QP type; write: RC, UC; send: RC, UC, UD; the others: RC (default: RC)",
    )
    parser.add_argument(
        "--depth", type=int, metavar="N", help="bw: keep N operations outstanding (default: 128)"
    )
    add_json(parser)


def _size(text: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of bytes, or all") from None


def _hosts(text: str) -> tuple[str, str]:
    names = text.split(",")
    if len(names) != 2 or not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: write two hosts, as host0,host1")
    return names[0], names[1]


def run(args: argparse.Namespace) -> int:
    """Returns 0: measured; 1: an end failed, or no such fabric or host; 2: a wrong command."""
    # Imported here, because `nupa run` must not wait for them.
    import sys
    from contextlib import ExitStack

    from nupa.base.progress import Progress
    from nupa.cli.common.text import print_json
    from nupa.fabric import Fabric
    from nupa.measure import perf
    from nupa.measure.text import glyphs_for
    from nupa.programs.cpus import pick_two
    from nupa.programs.fabric import temporary_fabric
    from nupa.programs.pair import ProgramError

    try:
        job = perf.make_job(
            args.operation,
            args.kind,
            size=args.size,
            iterations=args.iterations,
            qp_type=args.qp_type,
            depth=args.depth,
        )
    except perf.PerfUsageError as error:
        args.parser.error(str(error))
    try:
        with ExitStack() as stack:
            named = Fabric.open(args.fabric) if args.fabric else temporary_fabric("perf")
            fabric = stack.enter_context(named)
            hosts = perf.choose_hosts(fabric, args.hosts)
            tick = None
            if sys.stderr.isatty():
                progress = stack.enter_context(Progress(1))
                progress.step(f"{args.operation} {args.kind}")
                tick = progress.tick
            report = perf.measure(
                job,
                fabric=fabric.name,
                hosts=hosts,
                mover=args.mover,
                cpus=pick_two(),
                tick=tick,
            )
    except ProgramError as error:
        return fail(str(error))
    if args.json:
        print_json(report.to_json())
    else:
        print(perf.render(report, glyphs_for(sys.stdout.encoding)))
    return 0
