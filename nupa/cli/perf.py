# SPDX-License-Identifier: BSD-3-Clause
"""`nupa perf`: measures latency and bandwidth between two hosts, by NUPA's own loops, and
collectives of several ranks."""

from __future__ import annotations

import argparse
from typing import Literal

from nupa.cli.common.argument import add_fabric, add_json, add_mover
from nupa.cli.common.command import Subparsers, add_command, fail
from nupa.core.mover import BETWEEN_PROCESSES

_VERBS = ("write", "read", "send", "atomic")
_COLLECTIVES = ("allreduce", "reducescatter", "allgather", "broadcast", "barrier")
#: Options of the one kind of operations alone, by their names in the arguments.
_VERBS_ONLY = ("mover", "depth", "qp_type")
_COLLECTIVES_ONLY = ("ranks", "algorithm", "over", "type", "redop", "root")
_EPILOG = """\
Starts two processes on two hosts, on two cores if there are two.  Without --fabric they get a new
fabric.  The loops are in C.  All data that arrives is checked.

lat: one operation at a time.  Half a round trip for write and send, the whole operation for read
     and atomic, in microseconds; typical is the median.
bw:  --depth operations outstanding.  MB (10^6 bytes) and million messages a second.

Collectives (allreduce, reducescatter, allgather, broadcast, barrier) start a process for each of
--ranks and print nccl-tests' columns: out of place, then in place; #wrong counts elements.

examples:
  nupa perf write lat                          8 bytes, over RC, by the best mover
  nupa perf send bw --size all --qp-type UD    1 byte to 4 KiB, in datagrams
  nupa perf read bw --size 1048576 --mover relay
  nupa perf write bw --fabric rack --hosts host3,host17
  nupa perf allreduce --ranks 4 --size all     8 bytes to 4 MiB, reduced by the switch
  nupa perf allreduce --ranks 4 --algorithm ring --over windows
  nupa perf write lat --json | jq '.results[0].latency_typical_us'
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "perf", "measure latency and bandwidth between two hosts", _EPILOG, run
    )
    parser.add_argument("operation", choices=[*_VERBS, *_COLLECTIVES])
    parser.add_argument("kind", choices=["lat", "bw"], nargs="?", help="not for collectives")
    parser.add_argument(
        "--size",
        type=_size,
        metavar="N|all",
        help="send N bytes, or all powers of two (default: lat 8, bw 65536, collectives 1 MiB)",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help="run N operations for each size (default: fewer of larger ones)",
    )
    add_mover(parser, BETWEEN_PROCESSES, "force how bulk data moves (default: the best)")
    add_fabric(parser, "use this fabric (default: a new one)")
    parser.add_argument(
        "--hosts",
        type=_hosts,
        metavar="A,B",
        help="use A as the active host, B as the passive; for collectives: of the ranks in turn",
    )
    parser.add_argument(
        "--qp-type",
        choices=["RC", "UC", "UD"],
        help="use this QP type; write: RC, UC; send: RC, UC, UD; the others: RC (default: RC)",
    )
    parser.add_argument(
        "--depth", type=int, metavar="N", help="bw: keep N operations outstanding (default: 128)"
    )
    _add_collective(parser)
    add_json(parser)


def _add_collective(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("collectives")
    group.add_argument("--ranks", type=int, metavar="N", help="start N processes (default: 2)")
    group.add_argument(
        "--algorithm", choices=["ring", "tree", "in-network"], help="(default: by size and hosts)"
    )
    group.add_argument(
        "--over", choices=["verbs", "windows"], help="move data so, in rings and trees (verbs)"
    )
    group.add_argument(
        "--type",
        choices=["f16", "bf16", "f32", "f64", "i32", "u32", "i64", "u64"],
        help="use elements of this type (default: f32)",
    )
    group.add_argument(
        "--redop", choices=["add", "min", "max", "and", "or", "xor"], help="(default: add)"
    )
    group.add_argument(
        "--root", type=int, metavar="R", help="broadcast from this rank (default: 0)"
    )


def _size(text: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of bytes, or all") from None


def _hosts(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: write hosts, as host0,host1")
    return names


def run(args: argparse.Namespace) -> int:
    """Returns 0: measured; 1: an end failed, a wrong element, or no such fabric or host; 2: a wrong
    command."""
    collective = args.operation in _COLLECTIVES
    for name in _VERBS_ONLY if collective else _COLLECTIVES_ONLY:
        if getattr(args, name) is not None:
            args.parser.error(f"--{name.replace('_', '-')} is not for {args.operation}")
    if collective and args.kind:
        args.parser.error(f"{args.operation} has no {args.kind}: it measures both")
    if not collective and not args.kind:
        args.parser.error("the following arguments are required: kind (lat or bw)")
    if not collective and args.hosts and len(args.hosts) != 2:
        args.parser.error(f"{','.join(args.hosts)!r}: write two hosts, as host0,host1")
    return _run_collective(args) if collective else _run_verbs(args)


def _run_verbs(args: argparse.Namespace) -> int:
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
            qp_type=args.qp_type or "RC",
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


def _run_collective(args: argparse.Namespace) -> int:
    import sys
    from contextlib import ExitStack

    from nupa.base.progress import Progress
    from nupa.cli.common.text import print_json
    from nupa.fabric import Fabric
    from nupa.measure import collective
    from nupa.measure.perf import PerfUsageError
    from nupa.programs.fabric import temporary_fabric
    from nupa.programs.pair import ProgramError

    try:
        job = collective.make_job(
            args.operation,
            ranks=args.ranks,
            size=args.size,
            iterations=args.iterations,
            type_=args.type,
            redop=args.redop,
            root=args.root,
            algorithm=args.algorithm,
            over=args.over,
        )
    except PerfUsageError as error:
        args.parser.error(str(error))
    try:
        with ExitStack() as stack:
            named = (
                Fabric.open(args.fabric)
                if args.fabric
                else temporary_fabric("perf", max(2, job.ranks))
            )
            fabric = stack.enter_context(named)
            hosts = collective.choose_hosts(fabric, job.ranks, args.hosts)
            tick = None
            if sys.stderr.isatty():
                progress = stack.enter_context(Progress(1))
                progress.step(f"{args.operation} of {job.ranks} ranks")
                tick = progress.tick
            report = collective.measure(job, fabric=fabric.name, hosts=hosts, tick=tick)
    except ProgramError as error:
        return fail(str(error))
    if args.json:
        print_json(report.to_json())
    else:
        print(collective.render(report))
    wrong = sum(r[p]["wrong"] for r in report.results for p in ("out_of_place", "in_place"))
    return 1 if wrong else 0
