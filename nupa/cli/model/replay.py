# SPDX-License-Identifier: BSD-3-Clause
"""`nupa model replay`: what a recorded program would take on another fabric."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_json, count
from nupa.cli.common.command import Subparsers, add_command

if TYPE_CHECKING:
    from nupa.model.engine.replay import Replay
    from nupa.model.work.schedule import Schedule

_QUIET_S = 2.0  # nothing is said of what takes less
_EVERY_S = 1.0

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
    add_json(parser)


def run(args: argparse.Namespace) -> int:
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
    found = replay(schedule, network, _progress())
    print_json(found.shown()) if args.json else print(_text(found))
    return 0


def _write(args: argparse.Namespace, schedule: Schedule) -> None:
    from pathlib import Path

    from nupa.model.formats import chakra, goal

    if args.goal:
        Path(args.goal).write_text(goal.write(schedule), encoding="utf-8")
    if args.chakra:
        for rank, data in enumerate(chakra.write(schedule)):
            Path(f"{args.chakra}.{rank}.et").write_bytes(data)


def _progress() -> Callable[[int], None]:
    """Returns what says on stderr how many operations are done, from the second second on."""
    import sys
    import time

    said_s = time.monotonic() + _QUIET_S - _EVERY_S

    def tick(done: int) -> None:
        nonlocal said_s
        if time.monotonic() - said_s >= _EVERY_S:
            said_s = time.monotonic()
            print(f"nupa: {done} operations done", file=sys.stderr)

    return tick


def _text(found: Replay) -> str:
    from nupa.cli.common.text import table

    answer = found.answer
    lines = [
        f"{answer.work} on {answer.network}, {answer.ranks} ranks: {_time(answer.time_ns)} "
        f"({_time(answer.low_ns)} to {_time(answer.high_ns)})"
    ]
    if found.recorded_ns:
        lines.append(
            f"recorded: {_time(found.recorded_ns)}; that is "
            f"{answer.time_ns / found.recorded_ns:.2f} times as long"
        )
    lines.append(
        "why: " + ", ".join(f"{share:.0%} {name}" for name, share in answer.shares().items())
    )
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
    lines += ["", table(head, rows)]
    lines += [f"note: {note}" for note in (*found.notes, *answer.warnings)]
    return "\n".join(lines)


def _time(ns: float) -> str:
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.3f} {unit}"
    return f"{ns:.0f} ns"
