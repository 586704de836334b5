# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model replay`: what a recorded program would take on another fabric."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_json, count
from nupa.cli.common.command import Subparsers, add_command
from nupa.cli.model.common import QUIET_S, add_drawings, write_drawings

if TYPE_CHECKING:
    from nupa.model.engine.replay import Replay
    from nupa.model.work.schedule import Schedule

_EPILOG = """\
FILE is the folder of `nupa run --record`, a capture (.pcapng, .pcap), a Chakra execution trace
(.et, one of each rank) or a schedule in GOAL's text (.goal).

Each process is a rank, and each rank an endpoint.  A rank does its operations in
order.  Each waits for the completions that the program had seen before it posted; the computation
between takes as long as it took when it was recorded.
--on here is this machine, by the mover that was recorded: `nupa model calibrate` measures it.

examples:
  nupa model replay r --on ib-ndr                   r: of `nupa run --record r -- mpirun -n 8 ./app`
  nupa model replay r --on ib-ndr --ranks 64        if its pattern permits
  nupa model replay r --on nvlink5 --json | jq .time_ns
  nupa model replay r --on ib-ndr --timeline x.json
  nupa model replay r --goal app.goal               converts it, for other simulators
"""


def add_parser(verbs: Subparsers) -> None:
    what = "predict a recorded program on another fabric"
    parser = add_command(verbs, "replay", what, _EPILOG, run)
    parser.add_argument("file", metavar="FILE", help="recording, capture, trace or schedule")
    parser.add_argument(
        "--on",
        metavar="NETWORK",
        help="a profile, preset, generator or file, as everywhere in `nupa model`; or `here`",
    )
    parser.add_argument(
        "--ranks", type=count, metavar="N", help="grow the recorded pattern to N ranks"
    )
    parser.add_argument("--goal", metavar="OUT", help="write the operations as GOAL text")
    parser.add_argument(
        "--chakra", metavar="OUT", help="write OUT.0.et, OUT.1.et, ...: Chakra execution traces"
    )
    add_drawings(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from nupa.base.progress import Progress
    from nupa.cli.common.text import print_json
    from nupa.model.engine.replay import network_for, replay
    from nupa.model.formats.read import read
    from nupa.model.work.grow import grow

    if not (args.on or args.goal or args.chakra):
        args.parser.error("name a network with --on, or a file with --goal or --chakra")
    schedule = read(args.file)
    if args.ranks:
        schedule = grow(schedule, args.ranks)
    _write(args, schedule)
    if not args.on:
        return 0
    network = network_for(schedule, args.on)
    with Progress(1, quiet_s=QUIET_S, beats=True) as progress:
        progress.step(schedule.name)
        found = replay(
            schedule,
            network,
            lambda done: progress.detail(f"{done} operations"),
            spans=bool(args.timeline),
        )
    write_drawings(args, [found.answer])
    print_json(found.shown()) if args.json else print(_text(found))
    return 0


def _write(args: argparse.Namespace, schedule: Schedule) -> None:
    """Writes what --goal and --chakra ask for.  ModelError: it cannot be written."""
    from pathlib import Path

    from nupa.model.errors import ModelError
    from nupa.model.formats import chakra, goal

    files = {args.goal: goal.write(schedule).encode()} if args.goal else {}
    if args.chakra:
        parts = enumerate(chakra.write(schedule))
        files |= {f"{args.chakra}.{rank}.et": data for rank, data in parts}
    for name, data in files.items():
        try:
            Path(name).write_bytes(data)
        except OSError as error:
            raise ModelError(f"{name}: {error.strerror}") from error


def _text(found: Replay) -> str:
    from nupa.cli.common.text import table
    from nupa.model.answer.text import say_ns, why

    lines = [*why(found.answer)]
    if found.recorded_ns:
        times = found.answer.time_ns / found.recorded_ns
        lines.append(f"  {'recorded':<10}{say_ns(found.recorded_ns)}; this is {times:.2f} x that")
    lines += [f"  {'note':<10}{note}" for note in found.notes]
    rows = [
        (
            index,
            rank.label,
            rank.messages,
            rank.bytes,
            f"{rank.computation_ns / 1e3:.3f}",
            f"{rank.end_ns / 1e3:.3f}",
        )
        for index, rank in enumerate(found.ranks)
    ]
    head = ("RANK", "PROCESS", "MESSAGES", "BYTES", "COMPUTATION us", "END us")
    return "\n".join([*lines, "", table(head, rows)])
